"""The start of a node's container runtime, with programs that take its place."""

import subprocess
import sys
from pathlib import Path

import pytest

from navarchos.testing.nodes import node_process

# It waits for every child of its process, so it gets a process for itself.
_START = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("node_process", sys.argv[1])
module = sys.modules["node_process"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module._LOGS, module._RUNTIME_TIMEOUT = sys.argv[2], float(sys.argv[3])
settings = module.Settings("node", *[""] * 9, {}, {}, {})
programs = module.Programs(settings, sys.argv[2].lstrip("/"))
try:
    programs.start_runtime()
except OSError as error:
    if programs.status()["containerd"] is None:
        programs.stop("containerd")
    sys.exit(str(error))
sys.stdout.write(open("steps").read())
"""

_CONTAINERD = """#!{python}
import os, socket, sys
reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
reports.connect(chr(0) + os.environ["NOTIFY_SOCKET"].removeprefix("@"))
def step(text):
    with open("steps", "a") as file:
        file.write(text)
{body}
"""


def start(folder: Path, body: str, timeout: float = 60.0) -> "subprocess.CompletedProcess[str]":
    program = folder / "containerd"
    program.write_text(_CONTAINERD.format(python=sys.executable, body=body), encoding="utf-8")
    program.chmod(0o755)
    return subprocess.run(
        [sys.executable, "-c", _START, node_process.__file__, str(folder), str(timeout)],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=90,
        check=False,
    )


def test_the_runtime_has_started_when_it_reports_that_it_is_ready(tmp_path: Path) -> None:
    done = start(
        tmp_path,
        """
step("listens ")
reports.send(b"STATUS=starts")
step("serves")
reports.send(b"STATUS=serves\\nREADY=1")
""",
    )
    assert (done.returncode, done.stdout) == (0, "listens serves"), done.stderr


@pytest.mark.parametrize(
    ("body", "timeout", "why"),
    [
        ("sys.exit(3)", 60.0, "containerd ended with status 3"),
        (
            'reports.send(b"STATUS=starts"); sys.stdin = os.pipe(); os.read(sys.stdin[0], 1)',
            1.0,
            "containerd is not ready after 1 s",
        ),
    ],
)
def test_a_runtime_that_does_not_become_ready_is_named(
    tmp_path: Path, body: str, timeout: float, why: str
) -> None:
    done = start(tmp_path, body, timeout)
    assert (done.returncode, done.stderr.strip()) == (1, why)
