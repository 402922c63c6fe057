"""Rollouts over HTTP. The test acts as the drain controller."""

import threading
from typing import Any

import pytest
from tests.cases.counting import status_writes
from tests.cases.worker_pools import running_pool
from tests.unit.operator.conftest import Make, Operator

from navarchos.operator.api.v1alpha1 import (
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    DrainPhase,
    PlannedNode,
    RolloutPhase,
    Step,
)
from navarchos.operator.names import DRAIN_COMPLETED_LABEL, RESUME_ANNOTATION
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.reconciler import ADMISSION
from navarchos.operator.rollouts.children import ChildReconciler, CreationFailed
from navarchos.parallel import WorkerPool
from navarchos.runtime import DONE, Request
from navarchos.runtime.conditions import find_condition

EVERYTHING: dict[str, Any] = {"nodeSelectors": [{"matchAll": True}]}


def reason(obj: Any, type_: str) -> str:
    found = find_condition(obj.status.conditions, type_)
    return found.reason if found is not None else ""


@pytest.mark.rule("OP-09")
def test_a_rollout_replaces_its_nodes_one_by_one_in_order_of_priority(operator: Operator) -> None:
    for name, role in [("a", "worker"), ("b", "worker"), ("important", "x")]:
        operator.add_node(name, role=role)
    operator.add_rollout(
        nodeNames=[{"name": "important", "replacement": {"priority": 40}}],
        nodeSelectors=[{"matchLabels": {"role": "worker"}, "replacement": {"priority": 20}}],
    )
    operator.settle()
    assert operator.names() == ["roll-a", "roll-b", "roll-important"]
    for name in ("roll-important", "roll-a", "roll-b"):
        in_flight = [r for r, step in operator.steps().items() if step.in_flight]
        assert in_flight == [name]
        operator.finish(name)
    rollout = operator.rollout()
    assert rollout.status.phase is RolloutPhase.COMPLETED
    assert rollout.status.replacements_completed == ("a", "b", "important")
    assert rollout.status.completion_timestamp is not None
    for node in ("a", "b", "important"):
        assert operator.node(node).metadata.labels[DRAIN_COMPLETED_LABEL].startswith("2026-01-01T")
        assert not operator.drain(f"roll-{node}").spec.uncordon_on_delete
    assert operator.events().count("ReplacementStarted") == 3
    assert operator.events().count("ReplacementsCreated") == 1
    assert operator.events().count("RolloutCompleted") == 1


@pytest.mark.rule("OP-03")
@pytest.mark.rule("N-22")
def test_the_node_set_is_fixed_and_missing_names_are_reported(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_rollout(**EVERYTHING, nodeNames=[{"name": "no-such-node"}])
    operator.settle()
    operator.add_node("late")
    operator.settle()
    assert operator.names() == ["roll-a"]
    rollout = operator.rollout()
    assert [node.name for node in rollout.status.nodes] == ["a"]
    assert rollout.status.nodes_not_found == ("no-such-node",)
    assert reason(rollout, "NodesFound") == "NodesNotFound"
    assert "NodesNotFound" in operator.events()


@pytest.mark.rule("OP-03")
@pytest.mark.rule("N-2")
def test_a_rollout_that_matches_no_node_completes_immediately(operator: Operator) -> None:
    operator.add_rollout(nodeSelectors=[{"matchLabels": {"no": "such"}}])
    operator.settle()
    rollout = operator.rollout()
    assert rollout.status.phase is RolloutPhase.COMPLETED
    assert reason(rollout, "ReplacementsInProgress") == "NoNodesMatched"


@pytest.mark.rule("OP-02")
def test_children_that_a_stale_cache_does_not_show_are_not_created_twice(
    operator: Operator, make: Make
) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING)
    operator.settle()
    uids = {r.metadata.uid for r in operator.client.resource(NODE_REPLACEMENTS).list().items}
    rollout = operator.rollout()
    # The cache shows no child at all.
    children = ChildReconciler(operator.clients, WorkerPool("write"))
    made = children.create_missing(rollout, rollout.status.nodes, {})
    assert made.failure is None
    assert {child.metadata.uid for child in made.children.values()} == uids


@pytest.mark.rule("OP-02")
@pytest.mark.rule("N-10")
def test_a_failed_creation_does_not_prevent_others_and_is_repeated(operator: Operator) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.add_replacement("roll-b", nodeName="b", paused=True)
    operator.add_rollout(**EVERYTHING)
    operator.see()
    with pytest.raises(CreationFailed) as failed:
        operator.rollouts.reconcile(Request("", "roll"))
    assert set(failed.value.failures) == {"b"}
    rollout = operator.rollout()
    assert rollout.status.phase is RolloutPhase.NEW
    assert rollout.status.replacements_created == ("a", "c")
    assert reason(rollout, "ReplacementsCreated") == "ErrorCreatingNodeReplacements"
    operator.client.resource(NODE_REPLACEMENTS).delete("roll-b")
    operator.settle()
    rollout = operator.rollout()
    assert rollout.status.phase is RolloutPhase.IN_PROGRESS
    assert reason(rollout, "ReplacementsCreated") == "CreatedNodeReplacements"
    assert operator.names() == ["roll-a", "roll-b", "roll-c"]


@pytest.mark.rule("OP-05")
def test_nothing_starts_before_all_children_exist(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_replacement("roll-a", nodeName="a", paused=True)
    operator.add_rollout(**EVERYTHING)
    operator.see()
    with pytest.raises(CreationFailed):
        operator.round()
    for _ in range(2):
        operator.replacements.reconcile(ADMISSION)
        operator.clock.advance(WaitReason.ROLLOUT_NOT_READY.report_delay)
    assert reason(operator.replacement("roll-b"), "Waiting") == "RolloutNotReady"


@pytest.mark.rule("OP-26")
def test_a_new_leader_continues_the_work_of_the_old_one(operator: Operator) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING)
    operator.settle()
    for name in ("roll-a", "roll-b", "roll-c"):
        operator.restart()
        operator.finish(name)
    assert operator.rollout().status.phase is RolloutPhase.COMPLETED
    assert operator.drains() == ["roll-a", "roll-b", "roll-c"]


@pytest.mark.rule("OP-04")
@pytest.mark.rule("N-2")
def test_only_own_children_count(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_node("b")
    operator.add_replacement("by-hand", nodeName="b", paused=True)
    operator.add_rollout(nodeNames=[{"name": "a"}])
    operator.settle()
    operator.finish("roll-a")
    assert operator.rollout().status.phase is RolloutPhase.COMPLETED
    assert operator.steps()["by-hand"] is Step.WAITING


@pytest.mark.rule("OP-06")
def test_of_two_rollouts_over_one_node_the_higher_priority_starts_first(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_rollout("low", nodeNames=[{"name": "a"}])
    operator.add_rollout("high", nodeNames=[{"name": "a", "replacement": {"priority": 1}}])
    operator.settle()
    assert operator.drains() == ["high-a"]
    assert reason(operator.replacement("low-a"), "Waiting") == "HigherPriority"
    operator.play("high-a", DrainPhase.DRAINING)
    operator.remove_node("a")
    operator.add_node("a")  # another node with this name
    operator.play("high-a", DrainPhase.COMPLETED)
    assert operator.rollout("high").status.phase is RolloutPhase.COMPLETED
    assert operator.rollout("low").status.phase is RolloutPhase.COMPLETED
    status = operator.replacement("low-a").status
    assert status.step is not None
    assert status.step.reason == "NodeGone"
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels


@pytest.mark.rule("OP-07")
def test_a_pause_stops_starts_and_evictions_until_resume(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING)
    operator.settle()
    operator.patch_rollout("roll", spec={"paused": True})
    operator.settle()
    assert operator.drain("roll-a").spec.paused
    operator.finish("roll-a")
    assert operator.steps() == {"roll-a": Step.DONE, "roll-b": Step.WAITING}
    assert reason(operator.replacement("roll-b"), "Waiting") == "Paused"
    assert "RolloutPaused" in operator.events()
    operator.patch_rollout("roll", spec={"paused": False})
    operator.settle()
    assert operator.steps()["roll-b"] is Step.RESERVED
    assert not operator.drain("roll-b").spec.paused


@pytest.mark.rule("OP-07")
@pytest.mark.rule("N-11")
def test_deleting_a_rollout_deletes_its_children_and_drains(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING)
    operator.settle()
    operator.client.resource(NODE_ROLLOUTS).delete("roll")
    operator.settle()
    assert operator.names() == []
    assert operator.drains() == []


@pytest.mark.rule("OP-07")
def test_a_rollout_that_is_being_deleted_starts_no_drain(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_rollout(**EVERYTHING)
    operator.see()
    operator.rollouts.reconcile(Request("", "roll"))
    operator.replacements.reconcile(ADMISSION)
    assert operator.steps() == {"roll-a": Step.RESERVED}
    operator.patch_rollout("roll", metadata={"finalizers": ["example.com/not-yet"]})
    operator.client.resource(NODE_ROLLOUTS).delete("roll")
    operator.settle()
    assert operator.drains() == []


@pytest.mark.rule("OP-10")
def test_edits_reach_nodes_that_have_not_started(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING)
    operator.settle()
    operator.patch_rollout("roll", spec={"drain": {"timeoutSeconds": 7}})
    operator.settle()
    assert operator.drain("roll-a").spec.timeout_seconds == 900
    assert operator.replacement("roll-b").spec.drain.timeout_seconds == 7
    operator.finish("roll-a")
    assert operator.drain("roll-b").spec.timeout_seconds == 7


@pytest.mark.rule("OP-08")
def test_a_halted_rollout_continues_after_resume(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING, strategy={"retries": 0})
    operator.settle()
    operator.fail("roll-a")
    assert operator.rollout().status.phase is RolloutPhase.HALTED
    assert operator.rollout().status.replacements_failed == ("a",)
    assert operator.steps() == {"roll-a": Step.FAILED, "roll-b": Step.WAITING}
    assert operator.drains() == []
    assert "RolloutHalted" in operator.events()
    operator.patch_rollout("roll", metadata={"annotations": {RESUME_ANNOTATION: "1"}})
    operator.settle()
    assert operator.rollout().status.phase is RolloutPhase.IN_PROGRESS
    operator.finish("roll-b")
    # The failed node is tried again, with another drain.
    operator.finish("roll-a-attempt2")
    rollout = operator.rollout()
    assert rollout.status.phase is RolloutPhase.COMPLETED
    assert rollout.status.replacements_failed == ()


@pytest.mark.rule("OP-08")
def test_a_halted_rollout_continues_with_higher_max_failures(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING, strategy={"retries": 0})
    operator.settle()
    operator.fail("roll-a")
    assert operator.rollout().status.phase is RolloutPhase.HALTED
    operator.patch_rollout("roll", spec={"strategy": {"maxFailures": 1}})
    operator.settle()
    operator.finish("roll-b")
    rollout = operator.rollout()
    assert rollout.status.phase is RolloutPhase.COMPLETED
    assert rollout.status.replacements_failed == ("a",)


@pytest.mark.rule("OP-25")
@pytest.mark.rule("N-7")
def test_one_stalled_node_does_not_stop_the_others(operator: Operator) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING, strategy={"retries": 1, "maxFailures": 1})
    operator.settle()
    operator.fail("roll-a")
    operator.finish("roll-b")
    operator.finish("roll-c")
    operator.fail("roll-a-attempt2")
    rollout = operator.rollout()
    assert rollout.status.phase is RolloutPhase.COMPLETED
    assert rollout.status.replacements_completed == ("b", "c")
    assert rollout.status.replacements_failed == ("a",)


def test_unchanged_objects_cause_no_write(operator: Operator) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING)
    operator.settle_in_time()
    before = operator.server.requests.get("patch", 0)
    operator.clock.advance(600.0)
    operator.round()
    operator.round()
    assert operator.server.requests.get("patch", 0) == before


def test_nodes_that_start_and_end_within_a_second_are_one_status_write(
    operator: Operator,
) -> None:
    for name in "abcd":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING, strategy={"maxConcurrent": 2})
    operator.settle_in_time()
    assert operator.rollout().status.in_flight == ("a", "b")
    written = status_writes(operator.server, "noderollouts")
    for name in "ab":
        operator.play(f"roll-{name}", DrainPhase.COMPLETED)
    assert status_writes(operator.server, "noderollouts") == written
    assert operator.rollouts.reconcile(Request("", "roll")).requeue_after == pytest.approx(1.0)
    operator.clock.advance(1.0)
    operator.settle()
    status = operator.rollout().status
    assert (status.replacements_completed, status.in_flight) == (("a", "b"), ("c", "d"))
    assert status_writes(operator.server, "noderollouts") == written + 1


def test_completion_and_failed_nodes_are_written_immediately(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(**EVERYTHING, strategy={"retries": 0, "maxFailures": 1})
    operator.settle()
    operator.play("roll-a", DrainPhase.FAILED, reason="Timeout")
    assert operator.rollout().status.replacements_failed == ("a",)
    operator.play("roll-b", DrainPhase.COMPLETED)
    assert operator.rollout().status.phase is RolloutPhase.COMPLETED
    assert operator.rollouts.reconcile(Request("", "roll")) == DONE


@pytest.mark.rule("N-12")
def test_a_completed_rollout_is_deleted_after_its_ttl(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_rollout(**EVERYTHING, ttlSecondsAfterFinished=60)
    operator.settle()
    operator.finish("roll-a")
    result = operator.rollouts.reconcile(Request("", "roll"))
    assert result.requeue_after == pytest.approx(60.0)
    operator.clock.advance(61.0)
    operator.settle()
    assert operator.client.resource(NODE_ROLLOUTS).list().items == []


@pytest.mark.rule("N-12")
def test_a_completed_rollout_without_a_ttl_is_not_deleted(operator: Operator) -> None:
    """The release of 2019 deleted it after 48 hours, and its record with it."""
    operator.add_node("a")
    operator.add_rollout(**EVERYTHING)
    operator.settle()
    operator.finish("roll-a")
    operator.clock.advance(400 * 24 * 3600.0)
    assert operator.rollouts.reconcile(Request("", "roll")) == DONE
    assert operator.rollout().status.phase == "Completed"


def test_a_large_rollout_is_not_scanned_at_each_change(operator: Operator) -> None:
    operator.begin_with_many(250)
    operator.clients.replacements.delete(operator.replacement("roll-n000"))
    operator.see()
    early = operator.rollouts.reconcile(Request("", "roll")).requeue_after
    assert early is not None
    assert 0.0 < early < 0.1
    assert "roll-n000" not in operator.names()
    operator.clock.advance(early)
    operator.rollouts.reconcile(Request("", "roll"))
    assert "roll-n000" in operator.names(), "nothing is lost by waiting"


def test_a_users_change_of_a_large_rollout_is_not_delayed(operator: Operator) -> None:
    operator.begin_with_many(250)
    operator.patch_rollout("roll", spec={"paused": True})
    operator.see()
    operator.rollouts.reconcile(Request("", "roll"))
    assert operator.replacement("roll-n007").spec.paused


def test_children_are_created_concurrently(operator: Operator) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.see()
    operator.add_rollout(**EVERYTHING)
    operator.see()
    nodes = tuple(PlannedNode(name, f"uid-{name}") for name in "abc")
    operator.transport.together = threading.Barrier(3, timeout=30)  # otherwise the barrier breaks
    with running_pool(3) as writers:
        made = ChildReconciler(operator.clients, writers).create_missing(
            operator.rollout(), nodes, {}
        )
    assert made.failure is None
    assert sorted(made.children) == ["a", "b", "c"]
