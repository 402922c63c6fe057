"""Mutation tests of the model: each mistake in a copy of the operator must fail a run.

Each mistake is one that a developer could make, and few runs must be enough to find it. If they are
not, an invariant is missing, or the model does not reach the situation any more.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.mutations.marks import Edit, condition, drop, mutate, swap, value

ROOT = Path(__file__).parents[2]


def seeds(count: int) -> tuple[str, ...]:
    """Return the model's arguments for this number of runs."""
    return "--from", "0", "--count", str(count)


def design(name: str) -> tuple[str, ...]:
    """Return the model's arguments for a designed run."""
    return "--design", name


@dataclass(frozen=True)
class Mutant:
    """A mistake, and how the model reports it.

    Attributes:
        edit: The mistake, at the place that is marked with the mutant's name.
        also: Mistakes at the places of other mutants, by name.
        report: A part of the model's output.
        runs: Arguments of the model's command.
    """

    edit: Edit
    report: str
    runs: tuple[str, ...] = seeds(16)
    also: Mapping[str, Edit] = field(default_factory=dict)

    def apply(self, folder: Path, name: str) -> None:
        """Make the mistakes in a copy of the sources."""
        for mark, edit in {name: self.edit, **self.also}.items():
            mutate(folder, mark, edit)


MUTANTS = {
    "one-node-too-many": Mutant(swap(">=", ">"), "nodes in flight"),
    "priorities-ignored": Mutant(swap(">=", "<="), "started before"),
    "topology-ignored": Mutant(condition("False"), "which has another zone", seeds(24)),
    "control-plane-not-guarded": Mutant(
        condition("False"), "both are of the control plane", seeds(24)
    ),
    "settling-ignored": Mutant(
        condition("False"), "and the settle time is", ("--systems", *seeds(16))
    ),
    "any-number-of-nodes-stalled": Mutant(value("len(found)"), "released its slot"),
    "retries-without-end": Mutant(swap("<= ", "<= 99 + "), "is tried again after"),
    "eviction-without-uid": Mutant(drop(), "without the uid of the pod"),
    "eviction-while-paused": Mutant(
        swap(" and not seen.is_suspended", ""), "while its drain is paused"
    ),
    "foreign-cordon-undone": Mutant(
        condition("node.spec.unschedulable"),
        "was uncordoned",
        seeds(32),
        {"cordon-left-behind": condition("node is None")},
    ),
    "cordon-left-behind": Mutant(condition("True"), "is cordoned by"),
    "node-of-the-same-name": Mutant(value("True"), "names another uid", seeds(24)),
    "cordon-of-a-drained-node-undone": Mutant(drop(), "and is not cordoned any more"),
    "cordon-of-another-drain-undone": Mutant(
        value("False"), "was uncordoned with the drain", design("a user cordons first")
    ),
    "no-turns": Mutant(value("False"), "started", ("--systems", *seeds(16))),
    "sources-ignored": Mutant(condition("True"), "nodes in flight", ("--systems", *seeds(8))),
    "objections-ignored": Mutant(condition("False"), "needs its node", ("--systems", *seeds(16))),
    "windows-ignored": Mutant(condition("True"), "inside a blackout", ("--systems", *seeds(16))),
    "waves-ignored": Mutant(value("False"), "has not finished", ("--systems", *seeds(16))),
    "approval-ignored": Mutant(
        condition("False"), "which is not approved", ("--systems", *seeds(32))
    ),
    "closed-gates-let-nodes-start": Mutant(
        swap("return GateWait(message, True, record.verdict.until)", "continue"),
        "a gate of its rollout is closed",
        ("--systems", *seeds(16)),
    ),
    "unconfirmed-writes-of-others": Mutant(
        drop(), "a lost answer of another system", design("a lost answer of another system")
    ),
    "unstable-gates-let-nodes-start": Mutant(
        condition("False"), "a gate flaps", design("a gate flaps")
    ),
    "gate-timeouts-ignored": Mutant(
        condition("True"), "a gate times out", design("a gate times out")
    ),
    "gates-after-ignored": Mutant(value("False"), "a gate after", design("a gate after")),
    "soak-ignored": Mutant(condition("False"), "after its last node", ("--systems", *seeds(32))),
    "soak-with-closed-gates": Mutant(
        swap(" is None", " is EPOCH"), "a wave soaks", design("a wave soaks")
    ),
    "wrong-approval-accepted": Mutant(
        condition("False"), "a wave needs an approval", design("a wave needs an approval")
    ),
    "deleted-replacements-forgotten": Mutant(
        value("set()"),
        "a replacement of a wave is deleted",
        design("a replacement of a wave is deleted"),
    ),
    "window-end-ignored": Mutant(condition("False"), "a window ends", design("a window ends")),
    "fit-ignored": Mutant(condition("True"), "a node does not fit", design("a node does not fit")),
    "repeated-hour-ends-early": Mutant(value("first"), "clocks go back", design("clocks go back")),
    "action-while-paused": Mutant(
        condition("observed.is_abandoned"), "is paused", design("a pause before the job")
    ),
    "failed-action-not-ended": Mutant(
        condition("False"),
        "a lost cordon",
        design("a lost cordon"),
        {"failed-action-not-ended-before-release": value("False")},
    ),
    "deleted-action-not-ended": Mutant(
        condition("False"), "has not ended", design("a deleted rollout")
    ),
    "cancelled-rollouts-start": Mutant(
        value("set()"), "rollout is cancelled", design("a cancelled rollout")
    ),
    "hooks-not-awaited": Mutant(
        value("[]"), "was cordoned before hook", design("a hook that never answers")
    ),
    "pods-with-a-hook-evicted": Mutant(
        condition("True"), "a pod with a hook", design("a pod with a hook")
    ),
    "marks-left-behind": Mutant(
        condition("False"),
        "has the mark",
        design("a node with marks"),
        {"marks-not-swept": condition("False and (gone := set())")},
    ),
    "deleted-job-repeated": Mutant(
        condition("not actions.has_begun(replacement) or self._find(replacement, job) is None"),
        "was created twice",
        design("a deleted job"),
    ),
    "verified-without-ready": Mutant(
        condition("False"), "a node that is ready late", design("a node that is ready late")
    ),
    "action-beside-pods": Mutant(value("False"), "are on its node", design("pods that stay")),
    "writes-without-a-fence": Mutant(value("client"), "and the lease names", seeds(24)),
}

# All of them take minutes: `make nightly` runs them.
PLAYED = (
    (*MUTANTS,) if "NAVARCHOS_SEEDS" in os.environ else ("one-node-too-many", "retries-without-end")
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
def test_a_mistake_in_the_operator_fails_a_run_of_the_model(tmp_path: Path, name: str) -> None:
    mutant = MUTANTS[name]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    mutant.apply(tmp_path / "src", name)
    path = os.pathsep.join([str(tmp_path / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.model", *mutant.runs],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr
    assert mutant.report in done.stdout + done.stderr


@pytest.mark.parametrize("name", MUTANTS)
def test_the_place_of_every_mutant_is_marked(tmp_path: Path, name: str) -> None:
    shutil.copytree(ROOT / "src" / "navarchos", tmp_path / "navarchos")
    MUTANTS[name].apply(tmp_path / "navarchos", name)
