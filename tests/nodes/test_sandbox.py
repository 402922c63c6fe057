"""`navarchos sandbox --real-nodes`: a rollout, kubectl, and the end."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.nodes.conftest import Kubectl, until

from navarchos.testing.controlplane import KUBECTL
from navarchos.testing.controlplane.binaries import find_binaries
from navarchos.testing.nodes.lab import REGISTRY

pytestmark = pytest.mark.timeout(300)


def labs() -> set[str]:
    return {each.name for each in REGISTRY.glob("*")}


def test_a_rollout_runs_on_real_nodes_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    before, kubeconfig = labs(), tmp_path / "kubeconfig"
    argv = [sys.executable, "-m", "navarchos.cli", "sandbox", "--real-nodes", "2"]
    argv += ["--pods-per-node", "5", "--serve", "-f", "jobs.yml", "-o", "json"]
    with (tmp_path / "errors").open("wb") as errors_file:
        sandbox = subprocess.Popen(
            [*argv, "--kubeconfig", str(kubeconfig)],
            stdout=subprocess.PIPE,
            stderr=errors_file,
            text=True,
        )
    assert sandbox.stdout is not None
    try:
        line = sandbox.stdout.readline()
        errors = (tmp_path / "errors").read_text(encoding="utf-8")
        assert line, errors
        result = json.loads(line)
        # The second node is a worker, and gets a Job after its pods have left.
        assert [each["phase"] for each in result["rollouts"]] == ["Completed"]
        assert result["order"] == ["node-1"]
        assert result["evictions"] > 0
        assert "patch-node:1.0 is not on the nodes" in errors
        kubectl = Kubectl(find_binaries([KUBECTL])[KUBECTL].path, kubeconfig)
        nodes = kubectl("get", "nodes", "-o", "name").split()
        assert nodes == ["node/important-node", "node/node-1"]
        agent = ("-n", "kube-system", "exec", "daemonset/node-agent", "--", "hostname")
        assert until(lambda: kubectl(*agent, check=False)).startswith("node-agent-")
        (lab,) = labs() - before
        sandbox.send_signal(signal.SIGINT)
        sandbox.communicate(timeout=60)
        assert sandbox.returncode == 0, (tmp_path / "errors").read_text(encoding="utf-8")
    finally:
        sandbox.kill()
        sandbox.wait()
        sandbox.stdout.close()
    assert not kubeconfig.exists()
    assert labs() == before
    groups = Path("/sys/fs/cgroup").glob(f"*/navarchos-lab-{lab}")
    assert list(groups) == []
