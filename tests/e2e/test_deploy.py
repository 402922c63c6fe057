"""`config/deploy` through the real kubectl, into the in-process API server."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from navarchos.operator.deployment import manifests
from navarchos.testing.apiserver import ApiServer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def create(kubectl: Path, server: ApiServer, home: Path, *words: str) -> str:
    config = home / "config"
    server.write_kubeconfig(config)
    done = subprocess.run(
        [kubectl, "create", "-f", str(ROOT / "config" / "deploy"), *words],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # a warning would be here
    return done.stdout


def kinds_of(output: str) -> list[str]:
    """The kinds that kubectl names, such as `role`, without their groups."""
    return sorted(line.split("/")[0].split(".")[0] for line in output.splitlines())


def test_a_dry_run_accepts_every_manifest_and_creates_nothing(
    kubectl_path: Path, server: ApiServer, tmp_path: Path
) -> None:
    output = create(kubectl_path, server, tmp_path, "--dry-run=server")
    assert kinds_of(output) == sorted(str(m["kind"]).lower() for m in manifests())
    assert server.list("deployments", group="apps") == []


def test_the_command_of_the_readme_installs_the_operator(
    kubectl_path: Path, server: ApiServer, tmp_path: Path
) -> None:
    output = create(kubectl_path, server, tmp_path)
    assert "deployment.apps/navarchos created" in output
    assert server.get("deployments", "navarchos", "kube-system", "apps")["spec"]["replicas"] == 2
