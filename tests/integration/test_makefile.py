"""The cluster of `make e2e`: never the one of an exported KUBECONFIG."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOW = "show:\n\t@echo KUBECONFIG is $${KUBECONFIG:-not there}\n"


def make(*arguments: str, **environ: str) -> str:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_a_cluster_named_on_the_command_line_is_tested() -> None:
    said = make("-n", "e2e", "KUBECONFIG=other.yaml")
    assert "NAVARCHOS_E2E_KUBECONFIG='other.yaml' " in said
    assert "navarchos.testing.controlplane kubectl\n" in said
    assert "tests/contract" not in said


@pytest.mark.parametrize("flags", [[], ["-e"]])
def test_a_cluster_exported_by_the_shell_is_not_used(flags: list[str]) -> None:
    said = make(*flags, "-n", "e2e", KUBECONFIG="mine.yaml")
    assert "NAVARCHOS_E2E_KUBECONFIG" not in said
    assert "mine.yaml" not in said
    on_a_real_one = "tests/contract tests/integration/framework tests/integration/peers"
    assert f"{on_a_real_one}\n" in said


def test_no_program_sees_the_exported_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "show.mk").write_text(SHOW)
    said = make("-f", "Makefile", "-f", str(tmp_path / "show.mk"), "show", KUBECONFIG="mine.yaml")
    assert said == "KUBECONFIG is not there\n"
