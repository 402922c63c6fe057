"""Drains against a server, reconcile by reconcile, on a clock that the test moves."""

from itertools import pairwise
from typing import Any

import pytest
from tests.cases.counting import status_writes
from tests.unit.operator.drains.conftest import GROUP, Process, World

from navarchos.client import Forbidden
from navarchos.operator.names import DRAIN_FINALIZER
from navarchos.runtime import DONE, Request
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import Change, Fault

# A drain from its beginning to its end


@pytest.mark.rule("N-26")
def test_a_node_is_cordoned_drained_and_reported(world: World, process: Process) -> None:
    uid = world.node()
    world.pod("a")
    world.pod("b")
    world.pod("agent", owner="DaemonSet")
    world.pod("static", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    world.pod("elsewhere", node="n2")
    world.drain()

    took = process.run(world.is_over, meanwhile=world.kubelet)

    assert sorted(world.pods()) == ["agent", "elsewhere", "static"]
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Completed", "NodeDrained")
    assert {key: status[key] for key in ("total", "evicted", "ignored")} == {
        "total": 2,
        "evicted": 2,
        "ignored": 2,
    }
    assert status["nodePods"] == ["default/a", "default/agent", "default/b", "default/static"]
    assert status["evictedPods"] == ["default/a", "default/b"]
    assert status["evictedOwners"] == [
        {"namespace": "default", "kind": "Set", "name": "web", "uid": "web"}
    ]
    assert world.condition("NodeCordoned") == ("True", "NodeCordoned")
    assert world.condition("NodeDrained") == ("True", "NodeDrained")
    assert status["completionTimestamp"]
    drain = world.get()
    assert drain["spec"]["nodeUID"] == uid
    assert drain["metadata"]["finalizers"] == [DRAIN_FINALIZER]
    assert world.is_cordoned()
    assert world.mark == f"d/{drain['metadata']['uid']}"
    assert process.recorder.reasons == ["NodeCordoned", "PodEvicted", "NodeDrained"]
    assert process.metric("navarchos_drain_evictions_total", outcome="Evicted") == 2
    assert process.metric("navarchos_drain_duration_seconds_count", result="Completed") == 1
    assert took >= 2, "the drain must wait for pods that were being bound during the cordon"
    version = drain["metadata"]["resourceVersion"]
    process.step()
    assert world.get()["metadata"]["resourceVersion"] == version
    assert len(process.runtime.watches) == 0


@pytest.mark.rule("OP-40")
@pytest.mark.rule("OP-41")
def test_the_adoption_comes_first_and_no_eviction_comes_before_the_record(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.drain()
    process.step()
    writes = [
        (record.verb, record.resource, record.subresource)
        for record in world.server.audit
        if record.verb in {"patch", "evict"}
    ]
    assert [write[:2] for write in writes] == [
        ("patch", "nodedrains"),
        ("patch", "nodes"),
        ("patch", "nodedrains"),
        ("evict", "pods"),
    ]
    assert writes[2][2] == "status"


def test_an_empty_node_is_drained_after_the_wait_for_late_bindings(
    world: World, process: Process
) -> None:
    world.node()
    world.drain()
    assert 2 <= process.run(world.is_over) <= 4
    assert world.phase() == "Completed"


@pytest.mark.rule("OP-44")
def test_a_pod_that_arrives_late_is_drained_too(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.drain()
    process.step()
    world.kubelet()
    world.clock.passed += 5
    world.pod("late")
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []
    assert world.status()["evictedPods"] == ["default/a", "default/late"]


@pytest.mark.rule("OP-44")
def test_an_empty_watch_does_not_end_a_drain_without_a_list(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.drain()
    process.step()
    world.kubelet()
    world.clock.passed += 5
    process.catch_up()
    world.pod("unseen")  # the watch may not show it yet; the list does
    process.reconciler.reconcile(Request("", "d"))
    assert world.phase() == "Draining"
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []


# Which node


@pytest.mark.rule("OP-41")
@pytest.mark.rule("OP-20")
def test_a_node_of_another_uid_is_not_changed(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.drain(nodeUID="another")
    before = world.node_now
    process.step()
    assert (world.phase(), world.status()["reason"]) == ("Completed", "NodeGone")
    assert world.node_now == before
    assert world.evictions == 0
    assert world.terminating() == []


def test_a_drain_of_a_missing_node_completes(world: World, process: Process) -> None:
    world.drain()
    process.step()
    assert (world.phase(), world.status()["reason"]) == ("Completed", "NodeGone")


@pytest.mark.rule("OP-41")
@pytest.mark.rule("N-4")
def test_a_node_that_is_replaced_during_its_drain_keeps_its_pods(
    world: World, process: Process
) -> None:
    """The original drained the new node by its name (N-4)."""
    world.blocked_drain()
    process.step()
    assert world.evictions == 1
    world.client.raw("DELETE", "/api/v1/nodes/n1")
    world.node()
    world.allow(1)
    world.clock.passed += 60
    # Also on caches that have not seen the new node yet.
    process.reconciler.reconcile(Request("", "d"))
    assert world.evictions == 1
    process.run(world.is_over)
    assert world.status()["reason"] == "NodeGone"
    assert not world.is_cordoned()
    assert world.terminating() == []


# The cordon


@pytest.mark.rule("OP-41")
@pytest.mark.rule("N-20")
def test_a_foreign_cordon_survives_the_drain_and_its_deletion(
    world: World, process: Process
) -> None:
    world.node(spec={"unschedulable": True})
    world.drain()
    process.run(world.is_over)
    assert world.condition("NodeCordoned") == ("True", "CordonedBefore")
    assert world.mark == ""
    world.delete_drain()
    process.step()
    assert world.is_cordoned()
    assert world.server.list("nodedrains", group=GROUP) == []
    assert "NodeUncordoned" not in process.recorder.reasons
    assert "NodeCordoned" not in process.recorder.reasons


@pytest.mark.rule("OP-07")
@pytest.mark.rule("OP-41")
def test_deleting_a_drain_stops_it_and_undoes_its_cordon(world: World, process: Process) -> None:
    world.blocked_drain()
    process.step()
    assert world.is_cordoned()
    world.delete_drain()
    world.allow(1)
    world.clock.passed += 60
    process.step()
    assert not world.is_cordoned()
    assert world.mark == ""
    assert world.terminating() == []
    assert world.server.list("nodedrains", group=GROUP) == []
    assert process.recorder.reasons[-1] == "NodeUncordoned"
    assert process.step() == DONE
    assert len(process.runtime.watches) == 0


def test_a_drain_that_keeps_its_cordon_leaves_the_annotation(
    world: World, process: Process
) -> None:
    world.node()
    world.drain(uncordonOnDelete=False)
    process.run(world.is_over)
    mark = world.mark
    world.delete_drain()
    process.step()
    assert world.is_cordoned()
    assert world.mark == mark != ""
    assert world.server.list("nodedrains", group=GROUP) == []


def test_deleting_a_drain_leaves_the_cordon_of_another_one(world: World, process: Process) -> None:
    world.node()
    world.drain("d")
    world.drain("e")
    process.step("d")
    process.step("e")
    assert world.condition("NodeCordoned", "e") == ("True", "CordonedBefore")
    world.delete_drain("e")
    process.step("e")
    assert world.is_cordoned()
    world.delete_drain("d")
    process.step("d")
    assert not world.is_cordoned()


@pytest.mark.rule("OP-41")
def test_a_node_that_another_client_uncordons_is_recordoned_once(
    world: World, process: Process
) -> None:
    world.blocked_drain()
    process.step()
    world.cordon(False)
    world.clock.passed += 2
    process.step()
    assert world.is_cordoned()
    assert process.recorder.reasons.count("NodeCordoned") == 2
    assert world.condition("NodeCordoned") == ("True", "CordonedAgain")
    world.cordon(False)
    world.clock.passed += 2
    process.step()
    assert not world.is_cordoned()
    assert world.mark == ""
    assert world.condition("NodeCordoned") == ("False", "UncordonedByOthers")
    asked = world.evictions
    world.allow(1)
    world.clock.passed += 60
    process.step()
    assert world.evictions == asked
    world.cordon(True)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []
    world.delete_drain()
    process.step()
    assert world.is_cordoned(), "another client owns this cordon"


@pytest.mark.rule("OP-41")
def test_a_node_that_was_uncordoned_and_cordoned_between_two_reconciles_stays_cordoned(
    world: World, process: Process
) -> None:
    """The annotation is still ours then; `managedFields` name the other client."""
    world.blocked_drain()
    process.step()
    world.cordon(False)
    world.cordon(True)
    assert world.mark != ""
    process.step()
    world.delete_drain()
    process.step()
    assert world.is_cordoned()
    assert world.mark == ""
    assert world.server.list("nodedrains", group=GROUP) == []


@pytest.mark.rule("OP-41")
@pytest.mark.rule("OP-47")
def test_a_node_that_is_uncordoned_just_after_a_status_write_is_recordoned_once(
    world: World, process: Process
) -> None:
    world.blocked_drain()
    process.step()
    world.cordon(False)
    first = process.step()
    assert first.requeue_after is not None
    assert 0 < first.requeue_after <= 1, "the status may be written once a second"
    assert not world.is_cordoned(), "the node is not cordoned before the status can be written"
    world.clock.passed += first.requeue_after
    process.step()
    assert world.is_cordoned()
    assert world.condition("NodeCordoned") == ("True", "CordonedAgain")
    world.cordon(False)
    world.clock.passed += 1
    process.step()
    assert world.condition("NodeCordoned") == ("False", "UncordonedByOthers")
    assert not world.is_cordoned()


def test_a_refused_cordon_is_reported_in_status_and_retried(world: World, process: Process) -> None:
    world.node()
    world.drain()
    refusal = Fault(
        verb="patch", resource="nodes", status=403, message="no permission to patch nodes"
    )
    world.server.faults.add(refusal)
    with pytest.raises(Forbidden):
        process.step()
    assert world.condition("NodeCordoned") == ("False", "ErrorCordoningNode")
    assert not world.is_cordoned()
    world.clock.passed += 2
    process.run(world.is_over)
    assert world.condition("NodeCordoned") == ("True", "NodeCordoned")


# Refused pods


@pytest.mark.rule("OP-42")
@pytest.mark.rule("N-8")
def test_one_refused_pod_fails_the_drain_before_any_eviction(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.pod("bare", owner="")
    world.drain()
    process.step()
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "PodsRefused")
    assert world.evictions == 0
    assert [note["name"] for note in status["failedPods"]] == ["default/bare"]
    (blocker,) = status["blockers"]
    assert (blocker["pod"], blocker["reason"]) == ("bare", "UnmanagedPod")
    assert "force: true" in blocker["message"]
    event = process.recorder.events[-1]
    assert event.reason == "DrainFailed"
    assert event.message.startswith("drain of node n1 failed: ")
    assert process.metric("navarchos_drain_duration_seconds_count", result="Failed") == 0


@pytest.mark.rule("OP-42")
@pytest.mark.parametrize(
    ("pod", "spec", "reason"),
    [
        ({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, {}, "LocalStorage"),
        ({"owner": "DaemonSet"}, {"ignoreDaemonSets": False}, "DaemonSetNotIgnored"),
    ],
)
def test_other_refusals_name_their_reason(
    world: World, process: Process, pod: dict[str, Any], spec: dict[str, Any], reason: str
) -> None:
    world.node()
    world.pod("a", **pod)
    world.drain(deleteEmptyDirData=False, **spec)
    process.step()
    assert world.status()["blockers"][0]["reason"] == reason


def test_a_refused_pod_that_arrives_late_blocks_and_is_reported(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.drain()
    process.step()
    world.pod("bare", owner="")
    world.kubelet()
    for _ in range(2):
        world.clock.passed += 5
        process.step()
    assert world.phase() == "Draining"
    assert [b["pod"] for b in world.status()["blockers"]] == ["bare"]
    world.edit(force=True)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"


def test_an_invalid_selector_fails_the_drain(world: World, process: Process) -> None:
    world.node()
    world.drain(podSelector={"matchLabels": {"-no-": "x"}})
    process.step()
    assert (world.phase(), world.status()["reason"]) == ("Failed", "InvalidSpec")
    assert not world.is_cordoned()


# Blocked


@pytest.mark.rule("OP-43")
def test_a_budget_blocks_until_it_allows_an_eviction_and_then_the_drain_continues_at_once(
    world: World, process: Process
) -> None:
    world.blocked_drain()
    process.step()
    world.clock.passed += 1
    result = process.step()
    status = world.status()
    (blocker,) = status["blockers"]
    assert (blocker["namespace"], blocker["pod"]) == ("default", "a")
    assert (blocker["reason"], blocker["budget"]) == ("BlockedByBudget", "default/web")
    assert (status["blocked"], status["remaining"], status.get("evicted", 0)) == (1, 1, 0)
    assert process.recorder.reasons[-1] == "EvictionBlocked"
    assert process.metric("navarchos_drain_blocked_pods") == 1
    assert result.requeue_after is not None
    assert 3 < result.requeue_after <= 5
    assert world.evictions == 1

    process.forget_wakes()
    world.allow(1)
    process.wait_for_wake()
    process.step()
    assert world.evictions == 2, "the eviction is retried as soon as the budget allows it"
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert "blockers" not in world.status()
    assert process.metric("navarchos_drain_blocked_pods") == 0


@pytest.mark.rule("OP-43")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            {
                "status": 403,
                "message": 'User "x" cannot create resource "pods/eviction" in API group ""',
            },
            "Forbidden",
        ),
        ({"status": 422, "message": 'admission webhook "w" denied the request'}, "WebhookDenied"),
        # Two names in quotes, and what would be a format string.
        (
            {"status": 422, "message": 'admission webhook "w" denied the request: "a" 100%s {0}'},
            "WebhookDenied",
        ),
        ({"status": 503}, "Retry"),
        ({"status": 429, "retry_after": 7}, "InProgress"),
    ],
)
@pytest.mark.rule("N-18")
def test_any_other_response_blocks_with_its_message_and_is_retried(
    world: World, process: Process, fault: dict[str, Any], reason: str
) -> None:
    world.node()
    world.pod("a")
    world.drain()
    world.server.faults.add(Fault(verb="evict", **fault))
    process.step()
    world.clock.passed += 1
    process.step()
    (blocker,) = world.status()["blockers"]
    assert blocker["reason"] == reason
    assert fault.get("message", "injected fault") in blocker["message"]
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"


@pytest.mark.rule("OP-43")
def test_two_budgets_on_one_pod_are_named_and_retried_slowly(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.budget(1, "one")
    world.budget(1, "two")
    world.drain(timeoutSeconds=0)
    process.run(lambda: world.clock.passed > 60, limit=100)
    (blocker,) = world.status()["blockers"]
    assert blocker["reason"] == "MultipleBudgets"
    assert blocker["budget"] == "default/one,default/two"
    assert world.evictions <= 6


@pytest.mark.rule("OP-47")
def test_unchanged_facts_cause_no_write_and_changed_ones_one_a_second(
    world: World, process: Process
) -> None:
    world.node()
    for name in "abc":
        world.pod(name)
    world.budget(0)
    world.drain(timeoutSeconds=0)
    writes: list[float] = []

    def note(change: Change) -> None:
        if change.resource.plural == "nodedrains" and change.request is not None:
            before = (change.previous or {}).get("status")
            if change.object.get("status") != before:
                writes.append(world.clock.passed)

    world.server.subscribe(note)
    process.run(lambda: world.clock.passed > 3)
    settled = len(writes)
    process.run(lambda: world.clock.passed > 90, limit=100)
    assert len(writes) == settled
    assert settled == 2
    world.allow(3)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert all(later - earlier >= 1 for earlier, later in pairwise(writes))


@pytest.mark.rule("OP-47")
def test_a_drain_whose_pods_leave_together_writes_its_status_three_times(
    world: World, process: Process
) -> None:
    world.node()
    for name in "abc":
        world.pod(name)
    world.drain()
    process.run(lambda: world.clock.passed >= 3)
    assert status_writes(world.server, "nodedrains") == 2, (
        "the pods of the node before the first eviction; then the evicted pods"
    )
    process.run(world.is_over, meanwhile=world.kubelet)
    assert status_writes(world.server, "nodedrains") == 3


@pytest.mark.rule("OP-47")
def test_the_number_of_remaining_pods_is_written_within_five_seconds(
    world: World, process: Process
) -> None:
    world.node()
    for name in "abc":
        world.pod(name)
    world.drain()
    process.run(lambda: world.clock.passed >= 2)
    written = status_writes(world.server, "nodedrains")
    world.end("a")
    assert (process.step().requeue_after or 60.0) <= 5
    world.clock.passed += 4
    world.end("b")
    process.step()
    assert (world.status()["remaining"], status_writes(world.server, "nodedrains")) == (3, written)
    world.clock.passed += 1
    process.step()
    assert (world.status()["remaining"], status_writes(world.server, "nodedrains")) == (
        1,
        written + 1,
    )


@pytest.mark.rule("OP-47")
def test_blocked_pods_are_written_at_once_together_with_late_counts(
    world: World, process: Process
) -> None:
    world.node()
    for name in "ab":
        world.pod(name)
    world.drain()
    process.run(lambda: world.clock.passed >= 2)
    world.end("a")
    process.step()
    assert world.status()["remaining"] == 2
    world.budget(0)
    world.pod("late")
    process.step()
    world.clock.passed += 1
    process.step()
    status = world.status()
    assert (status["remaining"], status["blocked"]) == (2, 1)


@pytest.mark.rule("OP-40")
@pytest.mark.rule("N-5")
def test_a_reconcile_of_many_blocked_pods_is_short(world: World, process: Process) -> None:
    world.node()
    for number in range(100):
        world.pod(f"p{number:03}")
    world.budget(0)
    world.drain()
    evictions: list[int] = []
    while world.evictions < 100:
        result = process.reconcile_once()
        assert result.requeue_after is not None
        assert result.requeue_after < 0.1
        evictions.append(world.evictions)
    assert set(evictions) == {0, 64, 100}
    process.step()
    world.clock.passed += 1
    process.step()
    status = world.status()
    assert (status["blocked"], len(status["blockers"])) == (100, 50)


@pytest.mark.rule("OP-40")
@pytest.mark.parametrize("blocked", [False, True])
def test_system_critical_pods_are_evicted_when_the_others_have_left_or_are_blocked(
    world: World, process: Process, *, blocked: bool
) -> None:
    world.node()
    ordinary = ["a", "b"]
    for name in ordinary:
        world.pod(name)
    critical = {"priorityClassName": "system-cluster-critical"}
    # Sorted by name alone, this pod would be the first.
    world.pod("a-dns", spec=critical, metadata={"labels": {"app": "dns"}})
    world.budget(0 if blocked else 2)
    world.drain()
    process.step()
    process.step()
    if blocked:
        assert world.terminating() == ["a-dns"], "a blocked pod delays no other pod"
        world.allow(2)
    else:
        assert sorted(world.terminating()) == ordinary, "ordinary pods at once, and no other pod"
        world.kubelet()
        process.step()
        assert world.terminating() == ["a-dns"]
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert world.pods() == []


# Time


@pytest.mark.rule("OP-46")
def test_a_drain_that_times_out_fails_and_keeps_its_blockers(
    world: World, process: Process
) -> None:
    world.blocked_drain(timeoutSeconds=30)
    took = process.run(world.is_over)
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Timeout")
    assert 29 <= took <= 32
    assert [b["pod"] for b in status["blockers"]] == ["a"]
    assert [note["name"] for note in status["failedPods"]] == ["default/a"]
    assert world.is_cordoned(), "the node is uncordoned when the drain is deleted, not before"
    asked = world.evictions
    assert process.step() == DONE
    assert world.evictions == asked


@pytest.mark.rule("OP-46")
@pytest.mark.parametrize("policy", ["Fail", "Hold"])
def test_a_timeout_while_an_empty_node_waits_for_late_pods_fails_nothing(
    world: World, process: Process, policy: str
) -> None:
    world.node()
    world.drain(timeoutSeconds=1, onTimeout=policy)
    reasons = set()

    def is_over() -> bool:
        if world.status().get("conditions"):
            reasons.add(world.condition("NodeDrained"))
        return world.is_over()

    process.run(is_over)
    assert world.phase() == "Completed"
    assert ("False", "TimeoutHold") not in reasons, "no eviction is tried on an empty node"


@pytest.mark.rule("OP-46")
def test_a_drain_with_on_timeout_hold_keeps_trying(world: World, process: Process) -> None:
    world.blocked_drain(
        timeoutSeconds=30,
        onTimeout="Hold",
        escalation=[{"afterSeconds": 40, "action": "Delete"}],
    )
    process.run(lambda: world.clock.passed > 90, limit=100)
    assert world.phase() == "Draining"
    assert world.condition("NodeDrained") == ("False", "TimeoutHold")
    assert world.terminating() == []
    world.allow(1)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"


@pytest.mark.rule("OP-46")
@pytest.mark.rule("OP-64")
def test_a_stage_bypasses_the_budget_and_records_an_event(world: World, process: Process) -> None:
    world.blocked_drain(escalation=[{"afterSeconds": 20, "action": "Delete"}])
    took = process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert 20 <= took <= 26
    (event,) = [e for e in process.recorder.events if e.reason == "BudgetBypassed"]
    for fact in ("default/a", "default/web", "stage 1"):
        assert fact in event.message
    assert event.related is not None
    assert (event.related.kind, event.related.name) == ("Pod", "a")
    assert process.metric("navarchos_drain_evictions_total", outcome="Deleted") == 1


@pytest.mark.rule("OP-64")
def test_deletions_instead_of_evictions_record_which_budget_they_bypass(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.pod("free", metadata={"labels": {"app": "other"}})
    world.budget(0)
    world.drain(disableEviction=True)
    process.run(world.is_over, meanwhile=world.kubelet)
    (event,) = [e for e in process.recorder.events if e.reason == "BudgetBypassed"]
    assert event.message == (
        "deleted pod default/a, bypassing budget default/web by disableEviction"
    )
    assert event.related is not None
    assert (event.related.kind, event.related.name) == ("Pod", "a")


@pytest.mark.rule("OP-45")
def test_a_pod_that_terminates_for_too_long_no_longer_counts(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a", spec={"terminationGracePeriodSeconds": 1})
    world.drain(skipWaitForDeleteTimeoutSeconds=10)
    took = process.run(world.is_over)  # no kubelet confirms the termination
    assert world.phase() == "Completed"
    assert 10 <= took <= 14
    assert world.status()["evictedPods"] == ["default/a"]


def test_disable_eviction_deletes(world: World, process: Process) -> None:
    world.blocked_drain(disableEviction=True)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert world.evictions == 0


# Pause


@pytest.mark.rule("OP-07")
def test_a_paused_drain_evicts_nothing_and_continues_when_resumed(
    world: World, process: Process
) -> None:
    world.blocked_drain(timeoutSeconds=60)
    process.step()
    asked = world.evictions
    world.edit(paused=True)
    world.allow(1)
    process.run(lambda: world.clock.passed > 300, limit=400)
    assert world.evictions == asked
    assert world.phase() == "Draining"
    assert world.condition("Paused") == ("True", "Paused")
    world.edit(paused=False)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert world.condition("Paused") == ("False", "Resumed")


def test_a_drain_that_is_paused_from_the_start_changes_no_node(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.drain(paused=True)
    assert process.step() == DONE
    assert world.phase() == "Pending"
    assert not world.is_cordoned()
    world.edit(paused=False)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"


# Crashes, conflicts


@pytest.mark.rule("OP-26")
def test_a_new_process_continues_where_the_old_one_died(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.pod("b")
    world.budget(1)
    world.drain()
    process.step()
    assert len(world.terminating()) == 1
    process.close()
    began = world.status()["startTimestamp"]
    world.kubelet()
    world.clock.passed += 10

    successor = world.process()
    successor.step()
    world.allow(1)
    successor.run(world.is_over, meanwhile=world.kubelet)
    status = world.status()
    assert status["startTimestamp"] == began
    assert (status["total"], status["evicted"]) == (2, 2)
    assert status["evictedPods"] == ["default/a", "default/b"]
    assert "NodeCordoned" not in successor.recorder.reasons


def test_a_write_with_a_conflict_is_decided_again(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.drain()
    world.server.faults.add(Fault(verb="patch", resource="nodedrains", status=409))
    world.server.faults.add(Fault(verb="patch", resource="nodes", status=409))
    for _ in range(2):
        result = process.step()
        assert result.requeue_after is not None
        assert world.evictions == 0
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert process.recorder.reasons.count("NodeCordoned") == 1


@pytest.mark.rule("OP-63")
def test_no_eviction_is_sent_after_the_process_was_asked_to_stop(
    world: World, process: Process
) -> None:
    """Another process may lead then."""
    world.node()
    world.pod("a")
    world.pod("b")
    world.drain()
    stop = StopToken()
    stop.stop("the lease is lost")
    process.runtime.run(stop)
    process.step()
    assert world.evictions == 0
    assert len(process.runtime.watches) == 0
