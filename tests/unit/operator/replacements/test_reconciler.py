"""Replacements over HTTP. The test acts as the drain controller."""

from typing import Any

import pytest
from tests.cases.counting import status_writes
from tests.unit.operator.conftest import NO_TIME, Operator

from navarchos.client import Conflict, ConnectFailed
from navarchos.drain import cordon_patch, uncordon_patch
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    DrainPhase,
    NodeDrain,
    NodeReplacement,
    NodeReplacementStatus,
    ReplacementPhase,
    Step,
    status_diff,
)
from navarchos.operator.names import CORDONED_BY_ANNOTATION, DRAIN_COMPLETED_LABEL
from navarchos.operator.nodes import NODES
from navarchos.operator.replacements.admission import MAX_TIE_CANDIDATES
from navarchos.operator.replacements.admission_loop import MAX_REASON_WRITES
from navarchos.operator.replacements.attempt_drain import drain_manifest
from navarchos.operator.replacements.reconciler import ADMISSION
from navarchos.operator.replacements.status import reserved_status
from navarchos.runtime import DONE, Request
from navarchos.runtime.conditions import find_condition
from navarchos.testing.apiserver import Fault

CORDONED_BEFORE = {
    "type": "NodeCordoned",
    "status": "True",
    "reason": "CordonedBefore",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def step_reason(status: NodeReplacementStatus) -> str:
    return status.step.reason if status.step is not None else ""


def reason(obj: NodeReplacement, type_: str) -> str:
    found = find_condition(obj.status.conditions, type_)
    return found.reason if found is not None else ""


def replica_set(operator: Operator, name: str) -> str:
    """Create a ReplicaSet, so that its pods are not garbage-collected; return its uid."""
    labels = {"app": name}
    operator.server.install(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": name, "image": name}]},
                },
            },
        }
    )
    uid: str = operator.server.get("replicasets", name, "default", "apps")["metadata"]["uid"]
    return uid


def test_a_replacement_that_a_user_created_is_completed(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    uid = operator.node("a").metadata.uid
    assert operator.replacement("mine").spec.node_uid == uid
    drain = operator.drain("mine")
    assert (drain.spec.node_name, drain.spec.node_uid) == ("a", uid)
    operator.play("mine", DrainPhase.PENDING)
    assert operator.steps() == {"mine": Step.CORDONED}
    operator.play("mine", DrainPhase.DRAINING, nodePods=["default/web-1"])
    status = operator.replacement("mine").status
    assert status.current is Step.DRAINING
    assert status.node_pods == ("default/web-1",)
    assert status.step is not None
    assert status.step.deadline is not None
    operator.play("mine", DrainPhase.COMPLETED, evictedPods=["default/web-1"])
    status = operator.replacement("mine").status
    assert status.phase is ReplacementPhase.COMPLETED
    assert status.evicted_pods_count == 1
    assert reason(operator.replacement("mine"), "NodeCordoned") == "NodeCordoned"
    assert reason(operator.replacement("mine"), "NodeDrained") == "NodeDrained"
    assert "ReplacementCompleted" in operator.events()


def test_steps_without_an_action_are_one_write(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    written = status_writes(operator.server, "nodereplacements")
    operator.play("mine", DrainPhase.DRAINING, nodePods=["default/web-1"])
    assert operator.steps() == {"mine": Step.DRAINING}
    assert reason(operator.replacement("mine"), "NodeCordoned") == "NodeCordoned"
    assert status_writes(operator.server, "nodereplacements") == written + 1


def test_pod_lists_are_written_after_ten_seconds_or_with_the_next_step(
    operator: Operator,
) -> None:
    pods = [f"default/web-{number}" for number in range(3)]
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING, nodePods=pods)
    written = status_writes(operator.server, "nodereplacements")
    operator.play("mine", DrainPhase.DRAINING, evictedPods=pods[:1])
    operator.clock.advance(9.0)
    operator.play("mine", DrainPhase.DRAINING, evictedPods=pods[:2])
    assert status_writes(operator.server, "nodereplacements") == written
    result = operator.replacements.reconcile(Request("", "mine"))
    assert result.requeue_after == pytest.approx(1.0)
    operator.clock.advance(1.0)
    operator.settle()
    assert operator.replacement("mine").status.evicted_pods_count == 2
    assert status_writes(operator.server, "nodereplacements") == written + 1
    operator.play("mine", DrainPhase.DRAINING, evictedPods=pods)
    assert operator.replacement("mine").status.evicted_pods_count == 2
    operator.play("mine", DrainPhase.COMPLETED, evictedPods=pods)
    assert operator.replacement("mine").status.evicted_pods_count == 3
    assert status_writes(operator.server, "nodereplacements") == written + 2
    assert operator.replacements.reconcile(Request("", "mine")) == DONE


def test_the_deferred_write_of_a_node_that_another_process_finished_is_dropped(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING, nodePods=["default/web-1"])
    operator.play("mine", DrainPhase.DRAINING, evictedPods=["default/web-1"])
    assert operator.replacements.reconcile(Request("", "mine")) != DONE
    finished = {"phase": "Completed", "step": {"name": "Done", "reason": "Drained"}}
    replacements = operator.client.resource(NODE_REPLACEMENTS)
    replacements.patch("mine", {"status": finished}, subresource="status")
    operator.clock.advance(20.0)
    operator.settle()
    assert operator.replacements.reconcile(Request("", "mine")) == DONE


def test_the_owners_of_evicted_pods_are_written_immediately(operator: Operator) -> None:
    """Admission waits for the pods that replace them."""
    owner = {"namespace": "default", "kind": "ReplicaSet", "name": "web", "uid": "uid-web"}
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING)
    operator.play("mine", DrainPhase.DRAINING, evictedOwners=[owner])
    assert [one.uid for one in operator.replacement("mine").status.evicted_owners] == ["uid-web"]


@pytest.mark.rule("OP-24")
def test_the_label_has_the_time_in_utc_as_published(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.finish("mine")
    label = operator.node("a").metadata.labels[DRAIN_COMPLETED_LABEL]
    assert label == operator.clock.now().strftime("%Y-%m-%dT%Hh%Mm%Ss")
    # After a crash before the status write, the label is written again with the same value.
    version = operator.node("a").metadata.resource_version
    operator.client.resource(NODE_REPLACEMENTS).patch(
        "mine", {"status": {"step": {"name": "Draining"}}}, subresource="status"
    )
    operator.clock.advance(60.0)
    operator.settle()
    assert operator.steps() == {"mine": Step.DONE}
    assert operator.node("a").metadata.resource_version == version


def test_a_waiting_node_is_fetched_only_if_the_cache_does_not_have_it(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", nodeUID=operator.node("a").metadata.uid)
    operator.see()
    operator.transport.targets.clear()
    operator.replacements.reconcile(Request("", "mine"))
    assert operator.transport.targets == []
    operator.add_replacement("other", nodeName="b", nodeUID="gone")
    operator.see()
    operator.transport.targets.clear()
    operator.replacements.reconcile(Request("", "other"))
    assert "/api/v1/nodes/b" in operator.transport.targets


@pytest.mark.rule("OP-20")
@pytest.mark.parametrize("uid", ["", "of-another-node"])
def test_a_missing_node_is_completed_immediately(operator: Operator, uid: str) -> None:
    if uid:
        operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", nodeUID=uid)
    operator.settle()
    replacement = operator.replacement("mine")
    assert replacement.status.phase is ReplacementPhase.COMPLETED
    assert step_reason(replacement.status) == "NodeGone"
    assert operator.drains() == []
    if uid:
        assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels


@pytest.mark.rule("OP-20")
@pytest.mark.rule("N-4")
def test_a_node_deleted_between_admission_and_drain_is_not_touched(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    operator.replacements.reconcile(Request("", "mine"))
    operator.replacements.reconcile(ADMISSION)
    assert operator.steps() == {"mine": Step.RESERVED}
    operator.remove_node("a")
    operator.add_node("a")
    operator.see()
    operator.replacements.reconcile(Request("", "mine"))
    assert step_reason(operator.replacement("mine").status) == "NodeGone"
    assert operator.drains() == []


@pytest.mark.rule("OP-20")
def test_the_drain_of_a_node_deleted_unseen_has_its_uid(
    operator: Operator,
) -> None:
    operator.add_node("a")
    uid = operator.node("a").metadata.uid
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    operator.replacements.reconcile(Request("", "mine"))
    operator.replacements.reconcile(ADMISSION)
    nodes = operator.clients.nodes.informer
    nodes.stop()
    assert nodes.join(NO_TIME), "the cache does not follow any more"
    operator.remove_node("a")
    operator.add_node("a")
    operator.replacements.reconcile(Request("", "mine"))
    assert operator.drain("mine").spec.node_uid == uid, "the API server has another node"
    operator.report("mine", DrainPhase.COMPLETED, reason="NodeGone")
    assert operator.clients.drains.informer.catch_up(NO_TIME)
    operator.replacements.reconcile(Request("", "mine"))
    assert step_reason(operator.replacement("mine").status) == "NodeGone"
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels


@pytest.mark.rule("OP-20")
def test_a_node_deleted_during_its_drain_is_completed(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING)
    operator.remove_node("a")
    operator.play("mine", DrainPhase.COMPLETED, reason="NodeGone")
    status = operator.replacement("mine").status
    assert (status.current, step_reason(status)) == (Step.DONE, "NodeGone")


@pytest.mark.rule("OP-21")
def test_the_slot_is_occupied_before_anything_else_happens(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    operator.replacements.reconcile(Request("", "mine"))
    operator.replacements.reconcile(ADMISSION)
    assert operator.steps() == {"mine": Step.RESERVED}
    assert operator.drains() == []


@pytest.mark.rule("OP-23")
def test_the_end_of_one_node_starts_the_next_in_the_same_reconcile(operator: Operator) -> None:
    for name in "abc":
        operator.add_node(name)
        operator.add_replacement(f"r-{name}", nodeName=name)
    operator.settle()
    operator.play("r-a", DrainPhase.DRAINING)
    operator.report("r-a", DrainPhase.COMPLETED)
    operator.see()
    operator.replacements.reconcile(Request("", "r-a"))
    assert operator.steps() == {"r-a": Step.DONE, "r-b": Step.RESERVED, "r-c": Step.WAITING}


@pytest.mark.rule("OP-22")
def test_admission_sees_its_own_starts_before_the_watch_does(operator: Operator) -> None:
    for name in "abc":
        operator.add_node(name)
        operator.add_replacement(f"r-{name}", nodeName=name)
    operator.see()
    for name in "abc":
        operator.replacements.reconcile(Request("", f"r-{name}"))
    for _ in range(3):
        operator.replacements.reconcile(ADMISSION)
    assert [step.in_flight for step in operator.steps().values()].count(True) == 1


@pytest.mark.rule("OP-22")
def test_a_replacement_that_changed_since_the_decision_is_not_started(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    operator.replacements.reconcile(Request("", "mine"))
    seen = operator.clients.replacements.find("mine")
    assert seen is not None
    operator.client.resource(NODE_REPLACEMENTS).patch("mine", {"spec": {"paused": True}})
    change = status_diff(seen.status, reserved_status(seen, operator.clock.now()))
    with pytest.raises(Conflict):
        operator.clients.replacements.patch_status(seen, change)
    assert operator.steps() == {"mine": Step.WAITING}
    operator.settle()
    assert reason(operator.replacement("mine"), "Waiting") == "Paused"


@pytest.mark.rule("OP-25")
@pytest.mark.rule("N-7")
def test_a_failed_node_is_uncordoned_and_tried_again_until_its_last_attempt(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 1})
    operator.settle()
    operator.fail("mine")
    assert operator.drains() == ["mine-attempt2"], "deleting the first drain uncordons"
    assert operator.replacement("mine").status.attempts == 1
    assert "ReplacementRequeue" in operator.events()
    operator.fail("mine-attempt2")
    status = operator.replacement("mine").status
    assert status.phase is ReplacementPhase.FAILED
    assert step_reason(status) == "Timeout"
    assert [failure.reason for failure in status.failures] == ["Timeout", "Timeout"]
    assert operator.drains() == []
    assert "ReplacementFailed" in operator.events()
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels


@pytest.mark.rule("OP-25")
def test_the_cordon_of_a_failed_node_is_kept_with_the_policy_keep(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 0, "onNodeFailure": "Keep"})
    operator.settle()
    operator.fail("mine")
    assert operator.steps() == {"mine": Step.FAILED}
    assert operator.drains() == ["mine"]
    assert not operator.drain("mine").spec.uncordon_on_delete


KEEPING: dict[str, Any] = {"retries": 1, "onNodeFailure": "Keep"}


def say_uncordon(operator: Operator) -> None:
    """Change the policy for failed nodes to Uncordon."""
    body = {"spec": {"strategy": {"onNodeFailure": "Uncordon"}}}
    operator.client.resource(NODE_REPLACEMENTS).patch("mine", body)
    operator.settle()


def hold(operator: Operator, drain: str) -> None:
    """Add a finalizer, so that the deletion of a drain stays visible."""
    body = {"metadata": {"finalizers": ["example.com/uncordon"]}}
    operator.client.resource(NODE_DRAINS).patch(drain, body)


def is_given_back(drain: NodeDrain) -> bool:
    return drain.metadata.deletion_timestamp is not None and drain.spec.uncordon_on_delete


@pytest.mark.rule("OP-25")
def test_a_kept_cordon_is_undone_when_the_policy_changes_between_attempts(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy=KEEPING)
    operator.settle()
    operator.client.resource(NODE_REPLACEMENTS).patch("mine", {"spec": {"paused": True}})
    operator.fail("mine")
    assert operator.steps() == {"mine": Step.WAITING}
    hold(operator, "mine")
    say_uncordon(operator)
    assert is_given_back(operator.drain("mine"))


@pytest.mark.rule("OP-25")
def test_the_cordon_of_a_failed_node_is_undone_when_the_policy_changes(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy=KEEPING | {"retries": 0})
    operator.settle()
    operator.fail("mine")
    hold(operator, "mine")
    say_uncordon(operator)
    assert operator.steps() == {"mine": Step.FAILED}
    assert is_given_back(operator.drain("mine"))


@pytest.mark.rule("OP-25")
def test_cordons_of_all_attempts_are_undone(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy=KEEPING)
    operator.settle()
    operator.fail("mine")
    assert operator.drains() == ["mine", "mine-attempt2"]
    say_uncordon(operator)
    assert operator.drains() == ["mine", "mine-attempt2"], "nothing changes in flight"
    operator.fail("mine-attempt2")
    assert operator.steps() == {"mine": Step.FAILED}
    assert operator.drains() == []


@pytest.mark.rule("OP-22")
def test_the_slot_is_occupied_until_the_failed_drain_is_deleted(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
        operator.add_replacement(f"r-{name}", nodeName=name, strategy={"retries": 0})
    operator.settle()
    operator.client.resource(NODE_DRAINS).patch(
        "r-a", {"metadata": {"finalizers": ["example.com/uncordon"]}}
    )
    operator.fail("r-a")
    assert operator.steps() == {"r-a": Step.RELEASING, "r-b": Step.WAITING}
    operator.client.resource(NODE_DRAINS).patch("r-a", {"metadata": {"finalizers": None}})
    operator.settle()
    assert operator.steps() == {"r-a": Step.FAILED, "r-b": Step.RESERVED}


def test_a_drain_that_a_user_deletes_fails_the_attempt(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 0})
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING)
    operator.client.resource(NODE_DRAINS).delete("mine")
    operator.settle()
    status = operator.replacement("mine").status
    assert (status.current, step_reason(status)) == (Step.FAILED, "DrainDeleted")


@pytest.mark.rule("OP-07")
@pytest.mark.rule("OP-24")
def test_a_node_whose_drain_was_deleted_unseen_is_not_marked_as_drained(operator: Operator) -> None:
    """Its deletion has undone the cordon, because of the spec of the deleted drain."""
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 0})
    operator.settle()
    drains = operator.drain_controller.resource(NODE_DRAINS)
    drains.patch("mine", {"metadata": {"finalizers": ["example.com/uncordon"]}})
    operator.play("mine", DrainPhase.DRAINING)
    drains.patch("mine", {"status": {"phase": "Completed"}}, subresource="status")
    operator.see()
    assert operator.factory.shutdown(NO_TIME)  # the caches do not follow any more
    drains.delete("mine")
    operator.replacements.reconcile(Request("", "mine"))
    assert operator.drain("mine").spec.uncordon_on_delete
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels
    drains.patch("mine", {"metadata": {"finalizers": None}})
    operator.begin()
    operator.settle()
    status = operator.replacement("mine").status
    assert (status.current, step_reason(status)) == (Step.FAILED, "DrainDeleted")


@pytest.mark.rule("OP-41")
@pytest.mark.parametrize("has_ended", [False, True], ids=["exists", "has-just-ended"])
def test_the_end_of_another_drain_does_not_uncordon_a_drained_node(
    operator: Operator, has_ended: bool
) -> None:
    """That other drain, of a user, cordoned the node first."""
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    nodes = operator.drain_controller.resource(NODES)
    nodes.patch("a", cordon_patch(CORDONED_BY_ANNOTATION, "by-hand/1"))
    operator.play("mine", DrainPhase.DRAINING, conditions=[CORDONED_BEFORE])
    if has_ended:
        nodes.patch("a", uncordon_patch(CORDONED_BY_ANNOTATION))
    operator.play("mine", DrainPhase.COMPLETED, conditions=[CORDONED_BEFORE])
    assert operator.steps() == {"mine": Step.DONE}
    node = operator.node("a")
    assert DRAIN_COMPLETED_LABEL in node.metadata.labels
    assert node.spec.unschedulable
    drain = operator.drain("mine").metadata
    assert node.metadata.annotations[CORDONED_BY_ANNOTATION] == f"mine/{drain.uid}"


@pytest.mark.rule("OP-41")
def test_a_cordon_of_a_person_stays_theirs_when_a_rollout_has_drained_the_node(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.client.resource(NODES).patch("a", cordon_patch())
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING, conditions=[CORDONED_BEFORE])
    operator.play("mine", DrainPhase.COMPLETED, conditions=[CORDONED_BEFORE])
    assert operator.steps() == {"mine": Step.DONE}
    assert CORDONED_BY_ANNOTATION not in operator.node("a").metadata.annotations


def test_a_drain_of_another_owner_fails_the_attempt_and_stays(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.client.resource(NODE_DRAINS).create(
        {"metadata": {"name": "mine"}, "spec": {"nodeName": "gone"}}
    )
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 0})
    operator.settle()
    status = operator.replacement("mine").status
    assert (status.current, step_reason(status)) == (Step.FAILED, "NameTaken")
    assert operator.drains() == ["mine"]


@pytest.mark.rule("OP-26")
def test_a_drain_that_was_created_just_before_a_crash_is_used(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    operator.replacements.reconcile(Request("", "mine"))
    operator.replacements.reconcile(ADMISSION)
    # Another process creates the drain and is killed; the cache does not have the drain yet.
    drains = operator.client.resource(NODE_DRAINS)
    uid = drains.create(drain_manifest(operator.replacement("mine"))).metadata.uid
    operator.replacements.reconcile(Request("", "mine"))
    assert operator.drain("mine").metadata.uid == uid
    operator.finish("mine")
    assert operator.steps() == {"mine": Step.DONE}


def test_pending_pods_that_replace_evicted_pods_block_the_next_node(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
        operator.add_replacement(
            f"r-{name}",
            nodeName=name,
            strategy={"retries": 0, "pendingPodsTimeoutSeconds": 60},
        )
    operator.settle()
    uid = replica_set(operator, "web")
    owner = {"namespace": "default", "kind": "ReplicaSet", "name": "web", "uid": uid}
    operator.play("r-a", DrainPhase.DRAINING, evictedOwners=[owner])
    operator.server.install(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "web-1",
                "namespace": "default",
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": "web",
                        "uid": uid,
                        "controller": True,
                    }
                ],
            },
            "spec": {"containers": [{"name": "web", "image": "web"}]},
            "status": {"phase": "Pending"},
        }
    )
    operator.play("r-a", DrainPhase.COMPLETED, evictedOwners=[owner])
    assert reason(operator.replacement("r-b"), "Waiting") == "PendingPods"
    result = operator.replacements.reconcile(ADMISSION)
    assert result.requeue_after == pytest.approx(60.0, abs=1.0)
    operator.clock.advance(61.0)
    operator.settle()
    status = operator.replacement("r-b").status
    assert (status.current, step_reason(status)) == (Step.FAILED, "PendingPodsTimeout")


def test_wait_reasons_are_written_in_batches_after_the_starts(operator: Operator) -> None:
    count = MAX_REASON_WRITES + 5
    for number in range(count):
        operator.add_node(f"n{number:03}")
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.see()
    while operator.rollouts.reconcile(Request("", "roll")).requeue_after is not None:
        pass
    operator.replacements.reconcile(ADMISSION)
    assert operator.steps()["roll-n000"] is Step.RESERVED
    operator.clock.advance(2.0)
    result = operator.replacements.reconcile(ADMISSION)
    assert result.requeue_after is not None
    assert result.requeue_after < 1.0
    result = operator.replacements.reconcile(ADMISSION)
    assert result.requeue_after is None


@pytest.mark.rule("OP-65")
def test_a_node_that_starts_within_two_seconds_gets_no_wait_reason(
    operator: Operator,
) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    assert status_writes(operator.server, "nodereplacements") == 1, "the start of the first node"
    assert operator.replacement("roll-b").status.step is None
    operator.clock.advance(1.0)
    assert operator.replacements.reconcile(ADMISSION).requeue_after == pytest.approx(1.0)
    operator.play("roll-a", DrainPhase.COMPLETED)
    assert operator.steps()["roll-b"] is Step.RESERVED
    waiting = find_condition(operator.replacement("roll-b").status.conditions, "Waiting")
    assert waiting is not None
    assert waiting.message == ""


def test_the_wait_reason_is_written_after_two_seconds(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    operator.clock.advance(2.0)
    operator.settle()
    assert reason(operator.replacement("roll-b"), "Waiting") == "MaxConcurrent"
    assert operator.replacement("roll-b").status.phase is ReplacementPhase.NEW
    assert operator.replacements.reconcile(ADMISSION) == DONE


def test_gauges_count_nodes_by_step(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    value = operator.instruments.registry.get_sample_value
    assert value("navarchos_nodes", {"step": "Reserved"}) == 1
    assert value("navarchos_nodes", {"step": "Waiting"}) == 1
    assert value("navarchos_replacements", {"phase": "New", "priority": "0"}) == 1
    assert value("navarchos_rollouts", {"phase": "InProgress"}) == 1
    assert value("navarchos_rollout_nodes", {"state": "planned"}) == 2


def covered_pods(operator: Operator, app: str, *nodes: str) -> None:
    """Install a budget and a pod of its application on each of the nodes."""
    uid = replica_set(operator, app)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": uid}
    budget = {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1}
    operator.server.install(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": "default"},
            "spec": budget,
        },
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{app}-{node}",
                    "namespace": "default",
                    "labels": {"app": app},
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": {"nodeName": node, "containers": [{"name": app, "image": app}]},
                "status": {"phase": "Running"},
            }
            for node in nodes
        ),
    )


def looks(operator: Operator) -> int:
    """Count the list requests for the pods of one node."""
    return sum("spec.nodeName" in target for target in operator.transport.targets)


def test_a_node_that_shares_a_budget_with_a_node_in_flight_starts_later(
    operator: Operator,
) -> None:
    for name in "abcd":
        operator.add_node(name)
    covered_pods(operator, "web", "a", "b")
    covered_pods(operator, "db", "c", "d")
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"maxConcurrent": 2})
    operator.settle()
    assert set(operator.drains()) == {"roll-a", "roll-c"}
    asked = looks(operator)
    assert 0 < asked <= 4
    operator.settle()
    assert looks(operator) == asked, "no request while no node can start"


@pytest.mark.parametrize(("budgets", "limit"), [(False, 2), (True, 1)])
def test_no_pods_are_listed_if_budgets_decide_nothing(
    operator: Operator, *, budgets: bool, limit: int
) -> None:
    for name in "abc":
        operator.add_node(name)
    if budgets:
        covered_pods(operator, "web", "a", "b")
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"maxConcurrent": limit})
    operator.settle()
    assert len(operator.drains()) == limit
    assert looks(operator) == 0


def test_nodes_start_in_the_usual_order_if_their_pods_cannot_be_listed(operator: Operator) -> None:
    for name in "abcd":
        operator.add_node(name)
    covered_pods(operator, "web", "a", "b")
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"maxConcurrent": 2})
    operator.see()
    operator.server.faults.add(Fault(verb="list", resource="pods", status=403))
    operator.round()
    assert looks(operator) == 1, "no further request after the first failure"
    operator.settle()
    assert set(operator.drains()) == {"roll-a", "roll-b"}


def test_only_the_compared_nodes_have_their_pods_listed(operator: Operator) -> None:
    """The number of requests depends on started nodes, not on waiting nodes or pods."""
    names = [f"n{number:02}" for number in range(30)]
    for name in names:
        operator.add_node(name)
    covered_pods(operator, "web", *names)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"maxConcurrent": 2})
    operator.settle()
    assert looks(operator) == MAX_TIE_CANDIDATES + 1
    operator.finish("roll-n00")
    assert operator.steps()["roll-n02"].in_flight
    assert looks(operator) == MAX_TIE_CANDIDATES + 2, "one more node is compared"


@pytest.mark.rule("OP-22")
def test_a_start_without_a_response_keeps_its_slot_while_the_cache_lags(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_node("b")
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], paused=True)
    operator.settle()
    stalled = Fault(verb="watch", resource="nodereplacements", stall_after=3)
    operator.server.faults.add(stalled)
    operator.restart()
    operator.patch_rollout("roll", spec={"paused": False})
    assert operator.clients.rollouts.informer.catch_up(10.0)
    operator.rollouts.reconcile(Request("", "roll"))

    lost = Fault(verb="patch", resource="nodereplacements", lose_answer=True)
    operator.server.faults.add(lost)
    with pytest.raises(ConnectFailed):
        operator.replacements.reconcile(ADMISSION)
    # Another node has priority now, and the cache does not show the start yet.
    urgent = operator.client.resource(NODE_REPLACEMENTS).create(
        {
            "metadata": {"name": "urgent"},
            "spec": {
                "nodeName": "b",
                "nodeUID": operator.node("b").metadata.uid,
                "replacement": {"priority": 9},
            },
        }
    )
    operator.clients.replacements.observe(urgent)
    operator.replacements.reconcile(ADMISSION)
    in_flight = [name for name, step in operator.steps().items() if step.in_flight]
    assert len(in_flight) == 1


def test_with_many_nodes_changes_are_batched_except_a_released_slot(
    operator: Operator,
) -> None:
    operator.begin_with_many(250)
    operator.replacements.reconcile(ADMISSION)
    assert operator.steps()["roll-n000"] is Step.RESERVED
    throttled_for = operator.replacements.reconcile(ADMISSION).requeue_after
    assert throttled_for is not None
    assert 0.0 < throttled_for < 0.1
    operator.remove_node("n000")
    operator.see()
    operator.replacements.reconcile(Request("", "roll-n000"))
    assert operator.steps()["roll-n000"] is Step.DONE
    assert operator.steps()["roll-n001"] is Step.RESERVED


def test_wait_reasons_of_many_nodes_are_written_later(operator: Operator) -> None:
    operator.begin_with_many(301)
    operator.replacements.reconcile(ADMISSION)  # 300 nodes wait: delays are 1.5 times longer
    operator.clock.advance(2.5)
    operator.replacements.reconcile(ADMISSION)
    assert operator.replacement("roll-n001").status.step is None
    operator.clock.advance(0.5)
    operator.replacements.reconcile(ADMISSION)
    assert reason(operator.replacement("roll-n001"), "Waiting") == "MaxConcurrent"
