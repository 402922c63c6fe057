"""Replacements over HTTP; the test plays the drains."""

from typing import Any

import pytest
from tests.cases.counting import status_writes
from tests.unit.operator.conftest import NO_TIME, Operator

from navarchos.client import Conflict, ConnectFailed
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
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.replacements.admission import MAX_TIE_CANDIDATES
from navarchos.operator.replacements.admission_loop import MAX_REASON_WRITES
from navarchos.operator.replacements.attempt_drain import drain_manifest
from navarchos.operator.replacements.reconciler import ADMISSION
from navarchos.operator.replacements.status import reserved_status
from navarchos.runtime import DONE, Request
from navarchos.runtime.conditions import find_condition
from navarchos.testing.apiserver import Fault


def step_reason(status: NodeReplacementStatus) -> str:
    return status.step.reason if status.step is not None else ""


def reason(obj: NodeReplacement, type_: str) -> str:
    found = find_condition(obj.status.conditions, type_)
    return found.reason if found is not None else ""


def replica_set(operator: Operator, name: str) -> str:
    """Create one, without which the garbage collector would take its pods; return its uid."""
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


def test_a_replacement_made_by_hand_goes_all_the_way(operator: Operator) -> None:
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


def test_steps_in_which_nothing_is_to_be_done_are_one_write(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    written = status_writes(operator.server, "nodereplacements")
    operator.play("mine", DrainPhase.DRAINING, nodePods=["default/web-1"])
    assert operator.steps() == {"mine": Step.DRAINING}
    assert reason(operator.replacement("mine"), "NodeCordoned") == "NodeCordoned"
    assert status_writes(operator.server, "nodereplacements") == written + 1


def test_which_pods_have_left_is_taken_over_in_ten_seconds_or_with_the_next_step(
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


def test_what_was_to_be_written_of_one_that_another_process_has_finished_is_forgotten(
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


def test_whose_pods_were_evicted_is_taken_over_at_once(operator: Operator) -> None:
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
    # A crash before the status was written does it again, with the same result.
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
def test_a_node_that_is_not_there_is_completed_at_once(operator: Operator, uid: str) -> None:
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
def test_a_node_that_goes_between_admission_and_its_drain_is_left_alone(operator: Operator) -> None:
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
def test_a_node_whose_going_no_cache_shows_yet_gets_a_drain_that_knows_it_by_uid(
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
    assert nodes.join(NO_TIME), "from here on the cache is late"
    operator.remove_node("a")
    operator.add_node("a")
    operator.replacements.reconcile(Request("", "mine"))
    assert operator.drain("mine").spec.node_uid == uid, "it asks the server, and finds another"
    operator.report("mine", DrainPhase.COMPLETED, reason="NodeGone")
    assert operator.clients.drains.informer.catch_up(NO_TIME)
    operator.replacements.reconcile(Request("", "mine"))
    assert step_reason(operator.replacement("mine").status) == "NodeGone"
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels


@pytest.mark.rule("OP-20")
def test_a_node_that_goes_during_its_drain_is_completed(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING)
    operator.remove_node("a")
    operator.play("mine", DrainPhase.COMPLETED, reason="NodeGone")
    status = operator.replacement("mine").status
    assert (status.current, step_reason(status)) == (Step.DONE, "NodeGone")


@pytest.mark.rule("OP-21")
def test_the_slot_is_taken_before_anything_else_happens(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    operator.replacements.reconcile(Request("", "mine"))
    operator.replacements.reconcile(ADMISSION)
    assert operator.steps() == {"mine": Step.RESERVED}
    assert operator.drains() == []


@pytest.mark.rule("OP-23")
def test_the_end_of_one_node_starts_the_next_in_the_same_pass(operator: Operator) -> None:
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
def test_admission_sees_its_own_starts_though_the_watch_does_not(operator: Operator) -> None:
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
def test_a_failed_drain_is_given_back_and_tried_again_until_it_fails_for_good(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 1})
    operator.settle()
    operator.fail("mine")
    assert operator.drains() == ["mine-attempt2"], "the first was deleted, which uncordons"
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
def test_the_cordon_of_a_failed_node_is_kept_when_asked(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 0, "onNodeFailure": "Keep"})
    operator.settle()
    operator.fail("mine")
    assert operator.steps() == {"mine": Step.FAILED}
    assert operator.drains() == ["mine"]
    assert not operator.drain("mine").spec.uncordon_on_delete


KEEPING: dict[str, Any] = {"retries": 1, "onNodeFailure": "Keep"}


def say_uncordon(operator: Operator) -> None:
    """Change the mind about what happens to the node when it fails."""
    body = {"spec": {"strategy": {"onNodeFailure": "Uncordon"}}}
    operator.client.resource(NODE_REPLACEMENTS).patch("mine", body)
    operator.settle()


def hold(operator: Operator, drain: str) -> None:
    """Let one be seen when it is deleted."""
    body = {"metadata": {"finalizers": ["example.com/uncordon"]}}
    operator.client.resource(NODE_DRAINS).patch(drain, body)


def is_given_back(drain: NodeDrain) -> bool:
    return drain.metadata.deletion_timestamp is not None and drain.spec.uncordon_on_delete


@pytest.mark.rule("OP-25")
def test_a_kept_cordon_is_undone_as_soon_as_that_is_asked_between_two_attempts(
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
def test_a_kept_cordon_is_undone_when_that_is_asked_of_a_failed_node(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy=KEEPING | {"retries": 0})
    operator.settle()
    operator.fail("mine")
    hold(operator, "mine")
    say_uncordon(operator)
    assert operator.steps() == {"mine": Step.FAILED}
    assert is_given_back(operator.drain("mine"))


@pytest.mark.rule("OP-25")
def test_cordons_of_earlier_attempts_are_undone_with_that_of_the_last(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy=KEEPING)
    operator.settle()
    operator.fail("mine")
    assert operator.drains() == ["mine", "mine-attempt2"]
    say_uncordon(operator)
    assert operator.drains() == ["mine", "mine-attempt2"], "nothing is touched in mid-flight"
    operator.fail("mine-attempt2")
    assert operator.steps() == {"mine": Step.FAILED}
    assert operator.drains() == []


@pytest.mark.rule("OP-22")
def test_the_slot_is_held_until_the_failed_drain_is_gone(operator: Operator) -> None:
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


def test_a_drain_that_a_person_deletes_fails_the_attempt(operator: Operator) -> None:
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
    """Its cordon is being undone, by what the drain said when it was deleted."""
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 0})
    operator.settle()
    drains = operator.drain_controller.resource(NODE_DRAINS)
    drains.patch("mine", {"metadata": {"finalizers": ["example.com/uncordon"]}})
    operator.play("mine", DrainPhase.DRAINING)
    drains.patch("mine", {"status": {"phase": "Completed"}}, subresource="status")
    operator.see()
    assert operator.factory.shutdown(NO_TIME)  # the caches hear of nothing any more
    drains.delete("mine")
    operator.replacements.reconcile(Request("", "mine"))
    assert operator.drain("mine").spec.uncordon_on_delete
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels
    drains.patch("mine", {"metadata": {"finalizers": None}})
    operator.begin()
    operator.settle()
    status = operator.replacement("mine").status
    assert (status.current, step_reason(status)) == (Step.FAILED, "DrainDeleted")


def test_a_drain_of_another_owner_fails_the_attempt_and_stays(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.client.resource(NODE_DRAINS).create(
        {"metadata": {"name": "mine"}, "spec": {"nodeName": "a"}}
    )
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 0})
    operator.settle()
    status = operator.replacement("mine").status
    assert (status.current, step_reason(status)) == (Step.FAILED, "NameTaken")
    assert operator.drains() == ["mine"]


@pytest.mark.rule("OP-26")
def test_a_drain_that_was_created_just_before_a_crash_is_taken_over(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    operator.replacements.reconcile(Request("", "mine"))
    operator.replacements.reconcile(ADMISSION)
    # Another process creates it, and dies before this one's cache shows it.
    drains = operator.client.resource(NODE_DRAINS)
    uid = drains.create(drain_manifest(operator.replacement("mine"))).metadata.uid
    operator.replacements.reconcile(Request("", "mine"))
    assert operator.drain("mine").metadata.uid == uid
    operator.finish("mine")
    assert operator.steps() == {"mine": Step.DONE}


def test_pods_that_replace_evicted_ones_hold_up_the_next_node(operator: Operator) -> None:
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


def test_reasons_to_wait_are_written_in_batches_after_the_starts(operator: Operator) -> None:
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
def test_a_node_that_starts_within_two_seconds_is_never_told_to_wait(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    assert status_writes(operator.server, "nodereplacements") == 1, "the first has begun"
    assert operator.replacement("roll-b").status.step is None
    operator.clock.advance(1.0)
    assert operator.replacements.reconcile(ADMISSION).requeue_after == pytest.approx(1.0)
    operator.play("roll-a", DrainPhase.COMPLETED)
    assert operator.steps()["roll-b"] is Step.RESERVED
    waiting = find_condition(operator.replacement("roll-b").status.conditions, "Waiting")
    assert waiting is not None
    assert waiting.message == ""


def test_why_a_node_waits_is_told_after_two_seconds(operator: Operator) -> None:
    for name in "ab":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    operator.clock.advance(2.0)
    operator.settle()
    assert reason(operator.replacement("roll-b"), "Waiting") == "MaxConcurrent"
    assert operator.replacement("roll-b").status.phase is ReplacementPhase.NEW
    assert operator.replacements.reconcile(ADMISSION) == DONE


def test_gauges_tell_where_nodes_stand(operator: Operator) -> None:
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
    """Count the lists of single nodes' pods."""
    return sum("spec.nodeName" in target for target in operator.transport.targets)


def test_a_node_whose_pods_share_a_budget_with_one_in_flight_lets_another_go_first(
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
    assert looks(operator) == asked, "nothing is asked while nothing can start"


@pytest.mark.parametrize(("budgets", "limit"), [(False, 2), (True, 1)])
def test_no_pods_are_listed_where_budgets_decide_nothing(
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


def test_nodes_start_in_the_plain_order_when_their_pods_cannot_be_seen(operator: Operator) -> None:
    for name in "abcd":
        operator.add_node(name)
    covered_pods(operator, "web", "a", "b")
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"maxConcurrent": 2})
    operator.see()
    operator.server.faults.add(Fault(verb="list", resource="pods", status=403))
    operator.round()
    assert looks(operator) == 1, "one failure is enough to know"
    operator.settle()
    assert set(operator.drains()) == {"roll-a", "roll-b"}


def test_a_window_of_nodes_is_looked_at_and_no_more(operator: Operator) -> None:
    """Requests follow the nodes that start, not those that wait nor the pods they run."""
    names = [f"n{number:02}" for number in range(30)]
    for name in names:
        operator.add_node(name)
    covered_pods(operator, "web", *names)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"maxConcurrent": 2})
    operator.settle()
    assert looks(operator) == MAX_TIE_CANDIDATES + 1
    operator.finish("roll-n00")
    assert operator.steps()["roll-n02"].in_flight
    assert looks(operator) == MAX_TIE_CANDIDATES + 2, "one more has come into the window"


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
    # Something goes before it by now, and the cache has not seen that it started.
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


def test_among_many_a_change_waits_for_others_and_a_free_slot_does_not(operator: Operator) -> None:
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


def test_where_many_wait_it_is_said_later_why(operator: Operator) -> None:
    operator.begin_with_many(301)
    operator.replacements.reconcile(ADMISSION)  # 300 wait, half as many again as are few
    operator.clock.advance(2.5)
    operator.replacements.reconcile(ADMISSION)
    assert operator.replacement("roll-n001").status.step is None
    operator.clock.advance(0.5)
    operator.replacements.reconcile(ADMISSION)
    assert reason(operator.replacement("roll-n001"), "Waiting") == "MaxConcurrent"
