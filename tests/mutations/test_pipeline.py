"""Mutation tests of the pure decisions: each mistake in a copy of the sources must fail a test.

The model finds mistakes in what whole managers do. These mistakes are in decisions that the model
seldom reaches, so unit tests must find them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.mutations.marks import Edit, condition, drop, mutate, swap, value

ROOT: Final = Path(__file__).parents[2]

_ACTIONS: Final = "tests/unit/operator/test_actions.py"
_ALERTS: Final = "tests/integration/test_alert_queries.py"
_GATES: Final = "tests/unit/operator/gates/test_decide.py"
_GATES_IN_TIME: Final = "tests/integration/test_gates_in_time.py"
_PREPARING: Final = "tests/unit/operator/drains/test_preparing.py"
_READINESS: Final = "tests/unit/operator/test_readiness_gates.py"
_SUCCESSORS: Final = "tests/unit/operator/drains/test_successors.py"
_WAVES: Final = "tests/unit/operator/test_waves.py"

MUTANTS: Final[dict[str, tuple[Edit, str]]] = {
    "late-pods-settle": (
        condition("found is None or is_true != was_true"),
        "tests/unit/operator/test_readiness_gates.py",
    ),
    "late-nodes-ignored": (value("[]"), "tests/unit/operator/test_readiness_gates.py"),
    "missing-objects-block": (condition("False"), _GATES),
    "one-object-is-enough": (condition("len(unmet) < len(objects)"), _GATES),
    "one-unready-node-too-many": (swap("<=", "<= 1 +"), _GATES),
    "evicted-pods-not-settled": (condition("False"), _GATES),
    "old-alerts-let-nodes-start": (
        condition("False"),
        _GATES,
    ),
    "alert-filter-ignored": (drop(), _ALERTS),
    "alerts-queried-too-seldom": (swap("ALERT_MAX_AGE", "2 * ALERT_MAX_AGE"), _ALERTS),
    "unstable-gates-let-nodes-start": (condition("False"), _GATES),
    "one-alert-query-for-many-starts": (drop(), "tests/unit/operator/gates/test_admission.py"),
    "idle-alerts-queried": (swap("if each.can_start or each.is_ending", "if each"), _GATES_IN_TIME),
    "idle-gates-polled": (
        value("self._clock.monotonic() + (60 if after is None else after)"),
        _GATES_IN_TIME,
    ),
    "gate-problems-are-final": (value("None"), _GATES_IN_TIME),
    "lost-watches-stay-lost": (drop(), _GATES_IN_TIME),
    "budgets-not-asked": (value("False"), _READINESS),
    "answers-of-former-marks": (value("entry is not None and answer is not None"), _READINESS),
    "pods-not-settled": (condition("False"), _READINESS),
    "gate-timeouts-ignored": (condition("True"), "tests/unit/operator/rollouts/test_status.py"),
    "soak-with-closed-gates": (swap(" is None", " is EPOCH"), _WAVES),
    "soak-ignored": (condition("False"), _WAVES),
    "wrong-approval-accepted": (condition("False"), _WAVES),
    "action-without-its-finalizer": (condition("False"), _ACTIONS),
    "uncordoned-under-its-action": (
        condition("False"),
        "tests/unit/operator/drains/test_decide.py",
    ),
    "blackouts-without-end": (
        swap(" and found < _END_OF_TIME", ""),
        "tests/unit/operator/test_windows.py",
    ),
    "reads-not-tried": (value('""'), "tests/unit/runtime/test_features.py"),
    "old-times-count": (value("at"), _PREPARING),
    "marks-set-for-ever": (condition("False"), _PREPARING),
    "preparation-without-end": (condition("False"), _PREPARING),
    "evicted-before-its-successor": (drop(), _SUCCESSORS),
    "successors-asked-twice": (condition("False"), _SUCCESSORS),
    "outage-by-a-rolling-update": (swap("spec.replicas != 1 or ", ""), _SUCCESSORS),
    "window-end-ignored": (condition("False"), "tests/unit/operator/test_window_end.py"),
}
"""The mistake at the mark of this name, and the module whose tests must find it."""

# All of them take a minute: `make nightly` runs them.
PLAYED: Final = (
    (*MUTANTS,) if "NAVARCHOS_SEEDS" in os.environ else ("one-object-is-enough", "soak-ignored")
)


def fails(folder: Path, name: str, edit: Edit, module: str) -> None:
    """Assert that tests fail on a copy of the sources with a mistake.

    Args:
        folder: An empty folder for the copy.
        name: The name at the mark.
        edit: The mistake.
        module: The module of tests.
    """
    shutil.copytree(ROOT / "src", folder / "src")
    mutate(folder / "src", name, edit)
    path = os.pathsep.join([str(folder / "src"), str(ROOT)])
    options = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(ROOT / module)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    # 1: tests have failed. Other numbers mean that they could not run.
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr


def is_marked(folder: Path, name: str, edit: Edit) -> None:
    """Assert that the place of a mistake is marked."""
    shutil.copytree(ROOT / "src" / "navarchos", folder / "navarchos")
    mutate(folder / "navarchos", name, edit)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
def test_a_mistake_in_a_decision_fails_a_unit_test(tmp_path: Path, name: str) -> None:
    fails(tmp_path, name, *MUTANTS[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_the_place_of_every_mutant_is_marked(tmp_path: Path, name: str) -> None:
    is_marked(tmp_path, name, MUTANTS[name][0])
