"""Measure how long a program takes to start."""

import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from benchmarks.contests import Figures, Outcome, Run, Target, contest
from benchmarks.interpreter import interpreter_path
from benchmarks.managers import ManagerProcess
from benchmarks.processes import ROOT
from benchmarks.servers import Served
from benchmarks.sizes import Sizes
from navarchos.testing.definitions import install_definitions

__all__ = ["imported", "starting"]

_CRDS: Final = ROOT / "config" / "crds"
_MEGABYTE: Final = 1e6

_ALL_NAMES: Final = "import navarchos; [getattr(navarchos, name) for name in navarchos.__all__]"
_IMPORTS: Final[Mapping[str, str]] = {
    "import navarchos": "import navarchos",
    "import navarchos, all names": _ALL_NAMES,
    "import kubernetes.client": "import kubernetes.client",
    "import kopf": "import kopf",
    "bare Python": "pass",
}
_PROGRAM: Final = """\
import time
began = time.perf_counter()
{work}
took = time.perf_counter() - began
resident = [line for line in open("/proc/self/status") if line.startswith("VmRSS")]
print(took, int(resident[0].split()[1]) * 1024)
"""


def starting(sizes: Sizes, serve: Callable[[], AbstractContextManager[Served]]) -> Outcome:
    """Import the package, and start the manager on an empty cluster until it is ready."""
    contenders = {name: partial(imported, work) for name, work in _IMPORTS.items()}
    figures = contest(sizes.rounds, contenders)
    with serve() as served:
        with served.client() as client:
            install_definitions(client, _CRDS)
        figures["manager, ready"] = contest(sizes.rounds, {"": partial(_ready, served)})[""]
    return Outcome(
        row="start",
        title="start of the manager on an empty cluster, and of a program that imports the package",
        sizes={"rounds": sizes.rounds},
        figures=figures,
        targets=(
            Target("manager, until ready", 1.5, figures["manager, ready"].median("seconds"), "s"),
            *_import_targets(figures, "import navarchos"),
            *_import_targets(figures, "import navarchos, all names"),
        ),
    )


def imported(work: str) -> Run:
    """Return the seconds of a statement in a new interpreter, and the resident memory after it."""
    program = _PROGRAM.format(work=work)
    done = subprocess.run(
        [interpreter_path(), "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    seconds, resident = done.stdout.split()
    return {"seconds": float(seconds), "resident": float(resident)}


def _import_targets(figures: Mapping[str, Figures], name: str) -> tuple[Target, ...]:
    found, bare = figures[name], figures["bare Python"]
    more = (found.median("resident") - bare.median("resident")) / _MEGABYTE
    return (
        Target(name, 0.1, found.median("seconds"), "s"),
        Target(f"{name}, over bare Python", 15, more, "MB"),
    )


def _ready(served: Served) -> Run:
    with ManagerProcess(served.kubeconfig) as manager:
        return {
            "seconds": manager.ready_seconds,
            "cpu": manager.cpu(),
            "resident": float(manager.memory()),
        }
