"""The selection of tests on an existing cluster: no test that starts its own server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.foreign import FOREIGN

from navarchos.testing.apiserver import ApiServer

ROOT = Path(__file__).parents[2]
SUITES = ("tests/e2e", "tests/integration/operator")


def collect(kubeconfig: Path | None) -> "subprocess.CompletedProcess[str]":
    """Return the tests that pytest would run on a cluster, without running them."""
    environment = {name: value for name, value in os.environ.items() if name != FOREIGN}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--server=real", "--collect-only", *SUITES),
        ],
        cwd=ROOT,
        env=environment | ({FOREIGN: str(kubeconfig)} if kubeconfig else {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def cases(said: str) -> set[str]:
    return {line for line in said.splitlines() if "::" in line}


def test_on_an_existing_cluster_only_cases_of_one_cluster_run(
    api_server: ApiServer, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    api_server.write_kubeconfig(kubeconfig)
    everything, chosen = collect(None), collect(kubeconfig)
    assert f"cases run on the cluster at {api_server.url}, context navarchos" in chosen.stdout
    assert cases(chosen.stdout) < cases(everything.stdout)

    left_out = cases(everything.stdout) - cases(chosen.stdout)
    assert re.search(rf"\b{len(left_out)} deselected", chosen.stdout)
    modules = {case.partition("::")[0] for case in cases(chosen.stdout)}
    assert modules & {case.partition("::")[0] for case in left_out} == set()
    assert {Path(module).name for module in modules} >= {
        "test_control.py",
        "test_machines.py",
        "test_operator_manifests.py",
        "test_processes.py",
        "test_rollouts.py",
    }
    for module in {case.partition("::")[0] for case in left_out}:
        text = (ROOT / module).read_text(encoding="utf-8")
        assert re.search(r"\b(ControlPlane|ApiServer|subprocess|navarchos sandbox)\b", text), module
    assert list(api_server.audit) == []


@pytest.mark.parametrize("text", ["", yaml.safe_dump({"kind": "Config", "clusters": []})])
def test_an_invalid_kubeconfig_ends_the_run_before_any_test(tmp_path: Path, text: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(text)
    done = collect(kubeconfig)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {FOREIGN}: kubeconfig=" in done.stdout + done.stderr
