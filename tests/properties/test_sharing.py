"""Three admissions in one process never take the same slot, whatever happens.

`python -m tests.properties.sharing SEED` repeats a run.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutations.marks import condition, drop, mutate
from tests.seeds import runs

ROOT = Path(__file__).parents[2]
RUNS = runs(200)
PARTS = 8
_PROGRAM = (sys.executable, "-m", "tests.properties.sharing")

MUTANTS = {
    "no-turns": (drop(), 16),
    "sources-ignored": (condition("True"), 8),
    "unconfirmed-writes-of-others": (drop(), 16),
}
"""The mistake, and the number of runs that find it."""

PLAYED = (*MUTANTS,) if "NAVARCHOS_SEEDS" in os.environ else ("no-turns", "sources-ignored")


def play(first: int, count: int, *sources: Path) -> tuple[int, str]:
    """Play runs in a new process, because the order of sets influences a run."""
    paths = [*map(str, sources), str(ROOT), *filter(None, sys.path)]
    done = subprocess.run(
        [*_PROGRAM, "--from", str(first), "--count", str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.rule("UP-43")
@pytest.mark.rule("UP-41")
@pytest.mark.rule("NP-03")
@pytest.mark.timeout(14_000)
@pytest.mark.parametrize("number", range(PARTS))
def test_three_admissions_stay_within_the_limit_and_all_nodes_have_their_turn(number: int) -> None:
    first = RUNS * number // PARTS
    status, said = play(first, RUNS * (number + 1) // PARTS - first)
    assert status == 0, said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
def test_a_mistake_in_the_turns_or_the_count_exceeds_the_limit(tmp_path: Path, name: str) -> None:
    edit, count = MUTANTS[name]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    mutate(tmp_path / "src", name, edit)
    status, said = play(0, count, tmp_path / "src")
    assert status == 1, said
    assert "nodes in flight, and the limit is" in said or "is held by" in said
