from pathlib import Path

import pytest

from navarchos.errors import ConfigError
from navarchos.testing.controlplane.tools import (
    ETCD,
    KIND,
    KUBECTL,
    NODE,
    NODE_TOOLS,
    PINS,
    PROMETHEUS,
    TOOLS,
    ToolVersion,
    find_tools,
    parse_version,
)

NODES_GO_MOD = Path(__file__).parents[3] / "e2e" / "nodes" / "go.mod"
GO_MOD = Path(__file__).parents[3] / "e2e" / "controlplane" / "go.mod"


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Kubernetes v1.36.3\n", ToolVersion(1, 36, 3)),
        ("etcd Version: 3.6.8\nGit SHA: none\nGo Version: go1.26.8\n", ToolVersion(3, 6, 8)),
        ("Client Version: v1.36.3\nKustomize Version: v5.8.1\n", ToolVersion(1, 36, 3)),
        ("Client Version: v1.32.4-dispatcher\n", ToolVersion(1, 32, 4)),
        ("kwok version v0.8.0 go1.26.8 (linux/amd64)\n", ToolVersion(0, 8, 0)),
        ("kind v0.33.0 go1.26.8 linux/amd64\n", ToolVersion(0, 33, 0)),
        ("prometheus, version 2.42.0+ds (branch: debian/sid)\n", ToolVersion(2, 42, 0)),
        ("containerd github.com/containerd/containerd/v2 v2.3.7 \n", ToolVersion(2, 3, 7)),
        ("containerd-shim-runc-v2:\n  Version:  v2.3.7\n", ToolVersion(2, 3, 7)),
        ("CNI ptp plugin v1.9.1\nCNI protocol versions supported: 0.1.0", ToolVersion(1, 9, 1)),
        ("no idea", None),
    ],
)
def test_the_version_is_the_first_one_a_program_names(
    said: str, version: ToolVersion | None
) -> None:
    assert parse_version(said) == version


def test_a_later_minor_will_do_and_an_older_one_will_not() -> None:
    pinned = ToolVersion(1, 36, 3)
    assert ToolVersion(1, 36, 0).is_at_least_the_minor_of(pinned)
    assert ToolVersion(1, 37, 0).is_at_least_the_minor_of(pinned)
    assert ToolVersion(2, 0, 0).is_at_least_the_minor_of(pinned)
    assert not ToolVersion(1, 35, 9).is_at_least_the_minor_of(pinned)


def test_the_go_module_builds_the_pinned_versions() -> None:
    required = dict(
        line.split()[:2] for line in GO_MOD.read_text().splitlines() if line.startswith("\t")
    )
    assert required["k8s.io/kubernetes"] == f"v{PINS['kubernetes']}"
    assert required["go.etcd.io/etcd/server/v3"] == f"v{PINS['etcd']}"
    assert required["sigs.k8s.io/kwok"] == f"v{PINS['kwok']}"
    assert required["sigs.k8s.io/kind"] == f"v{PINS['kind']}"


def test_containerd_and_plugins_have_a_module_of_their_own() -> None:
    text = NODES_GO_MOD.read_text()
    required = dict(line.split()[:2] for line in text.splitlines() if line.startswith("\t"))
    assert required["github.com/containerd/containerd/v2"] == f"v{PINS['containerd']}"
    assert required["github.com/containernetworking/plugins"] == f"v{PINS['cni']}"
    assert "github.com/containerd/containerd/v2 v" not in GO_MOD.read_text()


def test_the_modules_name_every_program_of_a_node() -> None:
    sources = "".join(each.with_name("tools.go").read_text() for each in (GO_MOD, NODES_GO_MOD))
    assert [tool.name for tool in NODE_TOOLS if f'"{tool.package}"' not in sources] == []
    assert {tool.project for tool in NODE_TOOLS} == set(NODE)


def test_a_control_plane_needs_no_program_of_a_node() -> None:
    assert set(TOOLS) & set(NODE_TOOLS) == set()
    assert find_tools(()) == TOOLS


def test_every_staging_module_is_of_the_pinned_minor() -> None:
    published = f"v0.{PINS['kubernetes'].partition('.')[2]}"
    replaced = [line.split() for line in GO_MOD.read_text().splitlines() if "=>" in line]
    assert len(replaced) > 30
    assert {words[-1] for words in replaced} == {published}


def test_the_module_names_every_program() -> None:
    sources = GO_MOD.with_name("tools.go").read_text()
    assert [tool.name for tool in (*TOOLS, KIND) if f'"{tool.package}"' not in sources] == []


def test_the_documentation_names_the_pinned_versions() -> None:
    rows = (GO_MOD.parents[3] / "docs/testing/control-plane.md").read_text().splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if row.startswith("|")]
    versions = {row[0].lower(): row[1] for row in cells if row[0].lower() in PINS}
    assert versions == PINS


def test_tools_are_found_by_name_in_the_given_order() -> None:
    assert find_tools(("kubectl", "etcd")) == (KUBECTL, ETCD)
    assert find_tools(()) == TOOLS
    assert find_tools(("prometheus",)) == (PROMETHEUS,)


def test_debian_may_have_a_later_minor_and_a_release_must_be_the_pinned_one() -> None:
    later, older = ToolVersion(2, 53, 0), ToolVersion(2, 41, 9)
    assert PROMETHEUS.is_usable(PROMETHEUS.pinned)
    assert PROMETHEUS.is_usable(later)
    assert not PROMETHEUS.is_usable(older)
    assert not PROMETHEUS.is_usable(None)
    assert ETCD.is_usable(ETCD.pinned)
    assert not ETCD.is_usable(ToolVersion(3, 7, 0))


def test_an_unknown_tool_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'etdc': it must be one of etcd, kube-apiserver"):
        find_tools(("etdc",))
