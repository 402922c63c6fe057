from pathlib import Path

import pytest

from navarchos.testing.controlplane.installer import (
    BuildFailed,
    build,
    build_command,
    find_module,
)
from navarchos.testing.controlplane.tools import APISERVER, CNI_PLUGINS, CONTAINERD, ETCD, PINS

CHECKOUT = Path(__file__).parents[4]


def pretend_go(directory: Path, script: str) -> dict[str, str]:
    go = directory / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}


def test_programs_are_stamped_with_their_version_and_free_of_paths() -> None:
    command = build_command(APISERVER, Path("/out/kube-apiserver"))
    assert command[:3] == ["go", "build", "-trimpath"]
    version = f"-X k8s.io/component-base/version.gitVersion=v{PINS['kubernetes']}"
    assert version in command[command.index("-ldflags") + 1]
    assert command[-3:] == ["-o", "/out/kube-apiserver", APISERVER.package]


def test_containerd_is_stamped_and_leaves_out_what_needs_libraries() -> None:
    command = build_command(CONTAINERD, Path("/out/containerd"))
    assert command[command.index("-tags") + 1] == "no_btrfs,no_zfs,no_devmapper"
    flags = command[command.index("-ldflags") + 1]
    assert f"-X github.com/containerd/containerd/v2/version.Version=v{PINS['containerd']}" in flags
    assert "k8s.io" not in flags


def test_plugins_are_stamped() -> None:
    command = build_command(CNI_PLUGINS[0], Path("/out/ptp"))
    assert f"buildversion.BuildVersion=v{PINS['cni']}" in command[command.index("-ldflags") + 1]
    assert "-tags" not in command


def test_the_build_runs_in_the_module_whatever_its_owner_has_set(
    tmp_path: Path,
) -> None:
    # The seventh argument is the output.
    environ = pretend_go(tmp_path, 'echo "$PWD $CGO_ENABLED $GOWORK [$GOFLAGS]" > "$6"')
    environ |= {"GOFLAGS": "-mod=vendor", "GOWORK": "/elsewhere/go.work"}
    module = tmp_path / "module"
    module.mkdir()
    build(ETCD, tmp_path / "etcd", module, environ)
    assert (tmp_path / "etcd").read_text() == f"{module} 0 off []\n"


def test_a_build_that_fails_shows_the_end_of_what_was_said(tmp_path: Path) -> None:
    environ = pretend_go(tmp_path, "seq 1 100; echo no such module >&2; exit 1")
    with pytest.raises(BuildFailed) as caught:
        build(ETCD, tmp_path / "etcd", tmp_path, environ)
    lines = str(caught.value).splitlines()
    assert lines[0] == "go build failed:"
    assert lines[-1].strip() == "no such module"
    assert len(lines) == 13


def test_a_toolchain_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    (tmp_path / "go").write_text("no program")
    (tmp_path / "go").chmod(0o755)
    with pytest.raises(BuildFailed, match=r"go cannot be run: .*Exec format error"):
        build(ETCD, tmp_path / "etcd", tmp_path, {"PATH": str(tmp_path)})


def test_without_a_toolchain_there_is_nothing_to_build_with(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="no go toolchain on the PATH"):
        build(ETCD, tmp_path / "etcd", tmp_path, {"PATH": str(tmp_path)})


def test_without_a_module_there_is_nothing_to_build(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="run in a checkout, or use --module"):
        build(ETCD, tmp_path / "etcd", None, pretend_go(tmp_path, "exit 1"))


def test_the_module_is_found_from_anywhere_in_an_editable_installation(tmp_path: Path) -> None:
    assert find_module(tmp_path) == CHECKOUT / "tests" / "e2e" / "controlplane"


def test_the_working_directory_comes_first(tmp_path: Path) -> None:
    module = tmp_path / "tests" / "e2e" / "controlplane"
    module.mkdir(parents=True)
    (module / "go.mod").touch()
    assert find_module(tmp_path) == module


@pytest.mark.parametrize("project", ["containerd", "cni"])
def test_programs_of_nodes_have_a_module_of_their_own(project: str) -> None:
    assert find_module(project=project) == CHECKOUT / "tests" / "e2e" / "nodes"
