"""`spec.cancel`: nodes that have not started never start, and nodes in flight finish."""

from typing import Any

import pytest
from tests.unit.operator.conftest import Make, Operator

from navarchos.operator.api.v1alpha1 import (
    NODE_REPLACEMENTS,
    DrainPhase,
    NodeRollout,
    ReplacementPhase,
    RolloutPhase,
    Step,
)
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import admit
from navarchos.operator.replacements.admission_loop import MAX_REASON_WRITES
from navarchos.operator.replacements.reconciler import ADMISSION
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.operator.rollouts.children import child_patch
from navarchos.runtime.conditions import find_condition

pytestmark = pytest.mark.rule("NP-12")


def snapshot(make: Make, *replacements: Any, rollouts: Any) -> ClusterSnapshot:
    return ClusterSnapshot(
        replacements=replacements,
        rollouts={rollout.metadata.uid: rollout for rollout in rollouts},
        nodes={r.spec.node_name: make.node(r.spec.node_name) for r in replacements},
    )


def condition(rollout: NodeRollout, type_: str) -> tuple[str, str, str]:
    found = find_condition(rollout.status.conditions, type_)
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.parametrize("halted_or_paused", [{}, {"paused": True}, {"phase": RolloutPhase.HALTED}])
def test_waiting_nodes_of_a_cancelled_rollout_never_start(
    make: Make, halted_or_paused: dict[str, Any]
) -> None:
    high: dict[str, Any] = {"replacement": {"priority": 9}}
    seen = snapshot(
        make,
        make.replacement("a", **high),
        make.replacement("b", step=Step.DONE, **high),
        make.replacement("c", rollout="other"),
        rollouts=[make.rollout(cancel=True, **halted_or_paused), make.rollout("other")],
    )
    decisions = admit(seen, make.now)
    assert decisions.cancelled == ("roll-a",)
    assert decisions.start == ("other-c",), "a cancelled node delays another rollout"
    assert decisions.waiting == {}


def test_a_node_in_flight_is_not_cancelled_and_keeps_its_slot(make: Make) -> None:
    flying = make.replacement("a", step=Step.RESERVED, cancel=True)
    waiting = make.replacement("b", cancel=True)
    seen = snapshot(
        make, flying, waiting, make.replacement("c", rollout="other"),
        rollouts=[make.rollout(), make.rollout("other")],
    )  # fmt: skip
    decisions = admit(seen, make.now)
    assert decisions.cancelled == ("roll-b",)
    assert decisions.waiting == {"other-c": WaitReason.MAX_CONCURRENT}


def test_a_replacement_that_is_being_deleted_is_not_changed(make: Make) -> None:
    deleted = make.replacement("a", deleting=True, cancel=True)
    abandoned = make.replacement("b", cancel=True)
    gone = snapshot(make, deleted, abandoned, rollouts=[make.rollout(deleting=True, cancel=True)])
    assert admit(gone, make.now).cancelled == ()


def test_the_rollout_completes_with_the_node_in_flight_and_counts_the_others(
    operator: Operator,
) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    operator.play("roll-a", DrainPhase.DRAINING)
    operator.patch_rollout("roll", spec={"cancel": True})
    operator.settle_in_time()
    rollout = operator.rollout()
    assert operator.steps() == {
        "roll-a": Step.DRAINING, "roll-b": Step.CANCELLED, "roll-c": Step.CANCELLED,
    }  # fmt: skip
    assert operator.replacement("roll-b").status.phase is ReplacementPhase.CANCELLED
    assert rollout.status.phase is RolloutPhase.IN_PROGRESS
    assert rollout.status.replacements_cancelled == ("b", "c")
    assert condition(rollout, "Cancelled")[:2] == ("True", "Cancelled")
    operator.play("roll-a", DrainPhase.COMPLETED)
    operator.settle_in_time()
    rollout = operator.rollout()
    assert rollout.status.phase is RolloutPhase.COMPLETED
    assert rollout.status.replacements_cancelled_count == 2
    assert condition(rollout, "ReplacementsInProgress") == (
        "False",
        "RolloutCancelled",
        "2 of 3 nodes were cancelled before they started; 1 were replaced and 0 failed",
    )
    assert operator.events().count("ReplacementCancelled") == 2
    assert operator.events().count("RolloutCancelled") == 1
    assert operator.recorder.events[-1].message == "1 of 3 nodes replaced, 0 failed, 2 cancelled"


def test_a_failed_attempt_of_a_cancelled_rollout_is_not_repeated(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"retries": 3})
    operator.settle()
    operator.patch_rollout("roll", spec={"cancel": True})
    operator.fail("roll-a")
    operator.settle()
    status = operator.replacement("roll-a").status
    assert (status.current, status.attempts) == (Step.CANCELLED, 1)
    assert operator.drains() == [], "the failed attempt is released first"
    assert operator.rollout().status.phase is RolloutPhase.COMPLETED


def test_cancelling_ends_a_halt(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"retries": 0})
    operator.settle()
    operator.fail("roll-a")
    operator.settle()
    assert operator.rollout().status.phase is RolloutPhase.HALTED
    operator.patch_rollout("roll", spec={"cancel": True})
    operator.settle()
    status = operator.rollout().status
    assert status.phase is RolloutPhase.COMPLETED
    assert (status.replacements_failed, status.replacements_cancelled) == (("a",), ("b",))
    assert condition(operator.rollout(), "Halted")[0] == "False"


def test_a_cancelled_node_stays_cancelled(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    operator.patch_rollout("roll", spec={"cancel": True})
    operator.settle()
    operator.patch_rollout(
        "roll", spec={"cancel": False}, metadata={"annotations": {RESUME_ANNOTATION: "now"}}
    )
    operator.settle()
    assert operator.steps() == {"roll-a": Step.RESERVED, "roll-b": Step.CANCELLED}
    assert operator.replacement("roll-b").metadata.annotations == {}
    assert condition(operator.rollout(), "Cancelled")[:2] == ("False", "Resumed")
    operator.finish("roll-a")
    operator.settle_in_time()
    assert operator.rollout().status.replacements_cancelled == ("b",)
    assert operator.rollout().status.phase is RolloutPhase.COMPLETED


def test_one_node_of_a_rollout_is_cancelled(operator: Operator, make: Make) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    operator.client.resource(NODE_REPLACEMENTS).patch("roll-b", {"spec": {"cancel": True}})
    operator.settle()
    assert operator.steps()["roll-b"] is Step.CANCELLED
    assert operator.steps()["roll-c"] is Step.WAITING
    rollout = make.rollout(nodes=("b",), strategy={"retries": 9})
    patch: Any = child_patch(rollout, rollout.status.nodes[0], make.replacement("b", cancel=True))
    assert patch["spec"].keys() == {"strategy"}, "the rollout overwrites what a user cancelled"


def test_a_rollout_that_is_cancelled_before_it_starts_creates_nothing(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], cancel=True)
    operator.settle()
    status = operator.rollout().status
    assert operator.names() == []
    assert (status.phase, status.replacements_cancelled) == (RolloutPhase.COMPLETED, ("a",))


def test_many_nodes_are_cancelled_in_batches(operator: Operator) -> None:
    operator.begin_with_many(MAX_REASON_WRITES + 5)
    operator.patch_rollout("roll", spec={"cancel": True})
    operator.see()
    assert operator.replacements.reconcile(ADMISSION).requeue_after == pytest.approx(0.01)
    assert list(operator.steps().values()).count(Step.CANCELLED) == MAX_REASON_WRITES
    operator.clock.advance(1.0)
    operator.see()
    operator.replacements.reconcile(ADMISSION)
    assert set(operator.steps().values()) == {Step.CANCELLED}


def test_a_crash_after_any_write_of_a_cancellation_changes_nothing_in_the_end(
    operator: Operator,
) -> None:
    lived, writes = False, 0
    while not lived:
        writes += 1
        name = f"r{writes}"
        names = [f"{name}-{node}" for node in "abc"]
        for node in names:
            operator.add_node(node)
        operator.add_rollout(name, nodeNames=[{"name": node} for node in names])
        operator.settle()
        operator.patch_rollout(name, spec={"cancel": True})
        operator.transport.writes_left = writes
        lived = operator.settle_or_die()
        operator.finish(f"{name}-{names[0]}")
        operator.settle_in_time()
        status = operator.rollout(name).status
        assert status.phase is RolloutPhase.COMPLETED, f"killed after write {writes}"
        assert status.replacements_completed == (names[0],)
        assert status.replacements_cancelled == tuple(names[1:])
        operator.client.resource(operator.clients.rollouts.resource).delete(name)
        operator.settle()
    assert writes > 2, "the test did not reach the last write"
