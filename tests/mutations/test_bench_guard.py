"""Mutation tests of `make bench-guard`: each hot path that is broken in a copy must fail it."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.mutations.marks import Edit, after, before, condition, drop, mutate, swap, value

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """A slow-down, and how the guard reports it.

    Attributes:
        part: The part of the guard that must fail.
        edit: The slow-down, at the place that is marked with the mutant's name.
        report: A part of the guard's output.
    """

    part: str
    edit: Edit
    report: str


MUTANTS = {
    "decode-more-fields": Mutant(
        "informer",
        after("containers: tuple[dict[str, object], ...] = ()"),
        "unused fields or copies?",
    ),
    "keep-equal-parts": Mutant("informer", drop(), "unused fields or copies?"),
    "copy-per-handler": Mutant(
        "informer", swap("self.obj", "msgspec.structs.replace(self.obj)"), "a copy per handler?"
    ),
    "read-above": Mutant("informer", value("body if body is None else None"), "work per change?"),
    "look-at-each": Mutant("informer", before("all(n for n in range(1, 9))"), "work per object?"),
    "look-at-each-event": Mutant(
        "events", before("all(n for n in range(1, 9))"), "work per event?"
    ),
    "holders-per-node": Mutant(
        "admission", before("[self._slots.holders() for _ in names]"), "holders read for each node?"
    ),
    "get-per-pod": Mutant(
        "rollout", before("self._pods.get(meta.name, meta.namespace)"), "a request per pod?"
    ),
    "gets-per-node": Mutant("rollout", condition("False"), "a request per node?"),
    "eager-import": Mutant("imports", before("import kubernetes"), "an eager import?"),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_slow_hot_path_fails_the_guard(tmp_path: Path, name: str) -> None:
    mutant = MUTANTS[name]
    for folder in ("benchmarks", "src", "config"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    mutate(tmp_path / "src", name, mutant.edit)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.guard", mutant.part],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert mutant.report in done.stdout
