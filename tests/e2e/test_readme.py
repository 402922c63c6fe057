"""The commands in the README and in docs/jobs-at-night.md print the output that stands there."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from navarchos.testing.apiserver import ApiServer

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- readme: (?P<how>\w+) -->\n```console\n(?P<text>.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A command, and the lines that it should print."""

    command: str
    lines: list[str]


def steps(how: str, page: str = "README.md") -> list[Step]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[Step] = []
    for block in BLOCK.finditer(text):
        if block["how"] != how:
            continue
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                found.append(Step(line.removeprefix("$ "), []))
            else:
                found[-1].lines.append(line)
    return found


# The parts that differ from run to run: generated names, ages, ports.
VARIABLE = re.compile(
    r"(?P<rollout>rollout-[a-z0-9]{5})\b"
    r"|(?P<age>(?<![\w.-])\d+[smhd](?:\d+[smhd])?(?![\w.-]))"
    r"|(?P<address>127\.0\.0\.1:\d+)"
    r"|(?P<space> +)"
)
ANY_OF = {
    "rollout": r"rollout-[a-z0-9]{5}",
    "age": r"\d+[smhd](?:\d+[smhd])?",
    "address": r"127\.0\.0\.1:\d+",
    "space": r" +",
}


def pattern(line: str) -> str:
    """Return the pattern of the output for a line of the README."""
    if line.strip() == "...":
        return "(?:.*\n)*?"
    text, expression, end = line.removesuffix(" ...").strip(), "", 0
    for found in VARIABLE.finditer(text):
        expression += re.escape(text[end : found.start()]) + ANY_OF[found.lastgroup or ""]
        end = found.end()
    expression += re.escape(text[end:])
    return rf" *{expression}{'.*' if line.endswith(' ...') else ' *'}\n"


def answers(step: Step, output: str) -> bool:
    return re.fullmatch("".join(map(pattern, step.lines)), output) is not None


@pytest.fixture
def sandbox() -> Iterator[None]:
    """Run the command that the README runs in a first terminal."""
    (step,) = steps("background")
    process = subprocess.Popen(
        ["bash", "-c", f"exec {step.command}"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        announced = "".join(process.stderr.readline() for _ in step.lines)
        assert answers(step, announced), announced
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode == 0
    assert not (ROOT / "sandbox.kubeconfig").exists()


@pytest.fixture
def empty_cluster(tmp_path: Path) -> Iterator[Path]:
    with ApiServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"


def run(todo: list[Step], kubectl: Path, env: dict[str, str]) -> None:
    """Run commands in one shell, and compare the output of each."""
    marker = "--- next ---"
    script = f"\necho '{marker}'\n".join(["set -e", *(step.command for step in todo)])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{kubectl.parent}:{os.environ['PATH']}", **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = done.stdout.split(f"{marker}\n")[1:]
    assert len(outputs) == len(todo)
    for step, output in zip(todo, outputs, strict=True):
        assert answers(step, output), f"$ {step.command}\n{output}"


@pytest.mark.usefixtures("sandbox")
def test_the_walk_through_prints_the_output(kubectl_path: Path) -> None:
    todo = steps("sandbox")
    assert len(todo) > 8
    run(todo, kubectl_path, {})


@pytest.mark.usefixtures("sandbox")
def test_jobs_run_at_night_as_the_page_says(kubectl_path: Path) -> None:
    page = "docs/jobs-at-night.md"
    assert steps("background", page) == steps("background")
    run(steps("sandbox", page), kubectl_path, {})
    rollout = (ROOT / "docs" / "night.yml").read_text(encoding="utf-8")
    assert f"```yaml\n{rollout}```" in (ROOT / page).read_text(encoding="utf-8")


def test_the_installation_prints_the_output(kubectl_path: Path, empty_cluster: Path) -> None:
    todo = steps("install")
    assert len(todo) == 2
    run(todo, kubectl_path, {"KUBECONFIG": str(empty_cluster)})
