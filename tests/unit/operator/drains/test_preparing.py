"""Drains that prepare their node, and drains that evict no pod."""

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.drains.conftest import GROUP, Process, World

from navarchos.meta import format_time
from navarchos.operator.drains.reconciler import sweep_request

HOOK = "navarchos.pusher.com/drain-hook"
RECORD = "navarchos.pusher.com/detached-for"
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
KEY = "node-detacher.variant.run/detached"
STAMP = "node-detacher.variant.run/detachment-timestamp"
DETACH = {"annotateNode": {"key": KEY, "value": "true"}}
MARKS = {"excludeFromExternalLoadBalancers": True, **DETACH}


def annotations(world: World) -> dict[str, str]:
    found: dict[str, str] = world.node_now["metadata"].get("annotations") or {}
    return found


def label(world: World) -> str | None:
    found: str | None = (world.node_now["metadata"].get("labels") or {}).get(EXCLUDE)
    return found


def annotate(world: World, **values: str | None) -> None:
    """Annotate the node as another client; `_` in a key stands for a key of node-detacher."""
    keys = {"stamp": STAMP, "mark": KEY, "detaching": "node-detacher.variant.run/detaching"}
    body = {keys[name]: value for name, value in values.items()}
    world.patch("/api/v1/nodes/n1", {"metadata": {"annotations": body}})


def now_plus(world: World, seconds: float) -> str:
    return format_time(world.clock.now() + timedelta(seconds=seconds))


def message(world: World) -> str:
    conditions = world.status().get("conditions", [])
    found: list[str] = [c.get("message", "") for c in conditions if c["type"] == "Prepared"]
    return found[0] if found else ""


def start(world: World, process: Process, **prepare: Any) -> None:
    """Make a node with a pod and a drain that prepares, and reconcile until it does."""
    world.node()
    world.pod("a")
    world.drain(prepare=prepare)
    process.run(lambda: world.phase() == "Preparing")


# Marks and waits


@pytest.mark.rule("IG-70")
@pytest.mark.rule("IG-72")
def test_a_node_is_marked_settles_and_is_then_cordoned(world: World, process: Process) -> None:
    uid = world.node()
    world.patch("/api/v1/nodes/n1", {"metadata": {"labels": {EXCLUDE: "false"}}})
    world.pod("a")
    world.drain(prepare={**MARKS, "settleSeconds": 30})

    took = process.run(world.is_cordoned, limit=60)

    assert 30 <= took <= 34
    assert label(world) == "true"
    assert annotations(world)[KEY] == "true"
    record = json.loads(annotations(world)[RECORD])
    drain = world.get()["metadata"]["uid"]
    entry = record[f"annotation:{KEY}"]
    assert entry == {"holders": [f"NodeDrain//d/{drain}"], "since": entry["since"], "was": None}
    assert record[f"label:{EXCLUDE}"]["was"] == "false"
    assert world.condition("Prepared") == ("True", "Prepared")
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.status()["reason"] == "NodeDrained"
    assert process.recorder.reasons[:2] == ["NodePrepared", "NodeCordoned"]
    assert process.metric("navarchos_drain_prepare_seconds_count") == 1

    world.delete_drain()
    process.step()
    assert (world.is_cordoned(), label(world), annotations(world)) == (False, "false", {})
    assert world.node_now["metadata"]["uid"] == uid


@pytest.mark.rule("IG-70")
def test_marks_come_before_the_status_and_all_of_it_before_the_cordon(
    world: World, process: Process
) -> None:
    start(world, process, **MARKS)
    process.run(world.is_cordoned)
    writes = [
        (record.resource, record.subresource)
        for record in world.server.audit
        if record.verb == "patch"
    ]
    assert writes[:5] == [
        ("nodedrains", ""),
        ("nodes", ""),
        ("nodedrains", "status"),
        ("nodedrains", "status"),
        ("nodes", ""),
    ]


@pytest.mark.rule("IG-24")
def test_the_time_of_a_detacher_counts_if_it_is_new(world: World, process: Process) -> None:
    world.node()
    world.drain(prepare={**DETACH, "waitForTimestamp": {"key": STAMP, "gracePeriodSeconds": 7}})
    annotate(world, stamp=now_plus(world, -60))
    process.run(lambda: world.phase() == "Preparing")
    world.clock.passed += 20
    process.step()
    assert world.condition("Prepared") == ("False", "WaitingForTimestamp")
    assert "has no new time" in message(world)

    annotate(world, stamp=now_plus(world, 3))
    assert 10 <= process.run(world.is_cordoned) <= 13


@pytest.mark.rule("IG-24")
@pytest.mark.parametrize("before", [{"detaching": "true"}, {"mark": "by hand"}])
def test_an_old_time_counts_if_the_node_was_being_detached_before(
    world: World, process: Process, before: dict[str, str]
) -> None:
    world.node()
    annotate(world, stamp=now_plus(world, -600), **before)
    world.drain(prepare={**DETACH, "waitForTimestamp": {"key": STAMP}})
    assert process.run(world.is_cordoned) <= 4
    world.delete_drain()
    process.step()
    assert annotations(world).get(KEY) == before.get("mark")


@pytest.mark.rule("IG-24")
def test_a_text_that_is_no_time_counts_as_absent(world: World, process: Process) -> None:
    world.node()
    world.drain(prepare={**DETACH, "waitForTimestamp": {"key": STAMP}, "timeoutSeconds": 20})
    process.run(lambda: world.phase() == "Preparing")
    assert "has no time" in message(world)
    for text in ("soon", "later", "x" * 100):
        annotate(world, stamp=text)
        world.clock.passed += 2
        process.step()
        assert message(world) == (
            f"the annotation {STAMP} of the node is not a time in RFC 3339: {text[:64]!r}"
        )
    assert process.recorder.reasons == ["TimestampUnreadable"]
    process.close()

    successor = world.process()
    successor.run(world.is_over)
    assert world.status()["reason"] == "PrepareTimeout"
    assert successor.recorder.reasons == ["DrainFailed"]


@pytest.mark.rule("IG-24")
def test_a_time_that_becomes_readable_ends_the_wait(world: World, process: Process) -> None:
    world.node()
    wait = {"key": STAMP, "gracePeriodSeconds": 1}
    world.drain(prepare={**DETACH, "waitForTimestamp": wait, "settleSeconds": 5})
    process.run(lambda: world.phase() == "Preparing")
    annotate(world, stamp="soon")
    world.clock.passed += 2
    process.step()
    assert world.condition("Prepared") == ("False", "WaitingForLoadBalancers")
    assert process.recorder.reasons == ["TimestampUnreadable"], "while another wait is first, too"
    annotate(world, stamp=now_plus(world, 0))
    process.run(world.is_cordoned)


# Hooks


@pytest.mark.rule("IG-71")
def test_a_script_answers_a_hook_of_the_spec_and_one_of_a_pod(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("proxy", metadata={"annotations": {HOOK: "ingress"}})
    world.drain(prepare={"hooks": ["f5"]})
    process.run(lambda: world.phase() == "Preparing")
    assert message(world) == (
        "hook f5: has not answered, hook ingress of default/proxy: has not answered"
    )
    world.answer("f5", "Waiting: 3 connections are open")
    world.answer("ingress", "Done")
    world.clock.passed += 2
    process.step()
    assert message(world) == "hook f5: 3 connections are open"
    assert not world.is_cordoned()

    world.answer("f5", "Done")
    process.run(world.is_cordoned)
    process.run(lambda: world.phase() == "Draining")
    assert world.pods() == ["proxy"]
    world.end("proxy")
    process.run(world.is_over)
    assert world.status()["reason"] == "NodeDrained"


@pytest.mark.rule("IG-71")
def test_a_hook_of_a_pod_that_has_left_is_not_waited_for(world: World, process: Process) -> None:
    world.node()
    world.pod("proxy", metadata={"annotations": {HOOK: "ingress"}})
    world.drain(prepare={})
    process.run(lambda: world.phase() == "Preparing")
    assert not world.is_cordoned()
    world.end("proxy")
    process.run(world.is_over)
    assert world.condition("Prepared") == ("True", "Prepared")


@pytest.mark.rule("IG-71")
def test_without_prepare_the_hook_of_a_pod_is_waited_for_after_the_cordon(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.pod("proxy", metadata={"annotations": {HOOK: "ingress"}})
    world.drain()
    process.run(lambda: world.phase() == "Preparing")
    assert world.is_cordoned()
    assert world.condition("NodeCordoned") == ("True", "NodeCordoned")
    world.clock.passed += 10
    process.step()
    assert world.evictions == 0
    world.answer("ingress", "Done")
    process.run(lambda: world.evictions)
    assert world.terminating() == ["a"]


@pytest.mark.rule("IG-71")
def test_the_hook_of_a_late_pod_is_waited_for_while_draining(
    world: World, process: Process
) -> None:
    world.blocked_drain()
    process.run(lambda: world.phase() == "Draining")
    world.pod("proxy", metadata={"annotations": {HOOK: "ingress"}})
    world.allow(1)
    process.run(lambda: world.terminating() == ["a"])
    world.kubelet()
    world.clock.passed += 10
    process.step()
    assert (world.phase(), world.pods()) == ("Draining", ["proxy"])


# Timeouts and pauses


@pytest.mark.rule("IG-73")
def test_a_node_that_is_not_prepared_in_time_fails_and_is_not_touched(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.pod("proxy", metadata={"annotations": {HOOK: "ingress"}})
    world.drain(prepare={**MARKS, "timeoutSeconds": 60})
    assert 60 <= process.run(world.is_over, limit=90) <= 62
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "PrepareTimeout")
    assert "hook ingress of default/proxy: has not answered" in status["message"]
    assert not world.is_cordoned()
    assert (world.evictions, sorted(world.pods())) == (0, ["a", "proxy"])
    assert process.recorder.reasons == ["DrainFailed"]
    world.delete_drain()
    process.step()
    assert (label(world), annotations(world)) == (None, {})


@pytest.mark.rule("IG-73")
def test_a_timeout_with_proceed_drains_the_node_all_the_same(
    world: World, process: Process
) -> None:
    world.node()
    world.drain(prepare={"hooks": ["f5"], "timeoutSeconds": 60, "onTimeout": "Proceed"})
    assert 62 <= process.run(world.is_over, limit=90) <= 68
    assert world.status()["reason"] == "NodeDrained"
    assert world.condition("Prepared") == ("True", "PreparationSkipped")
    assert process.recorder.reasons[0] == "PreparationSkipped"
    assert process.recorder.reasons.count("PreparationSkipped") == 1


@pytest.mark.rule("IG-73")
def test_a_paused_drain_sets_no_mark_and_has_no_deadline(world: World, process: Process) -> None:
    world.node()
    world.drain(paused=True, prepare={**MARKS, "hooks": ["f5"], "timeoutSeconds": 60})
    process.step()
    world.clock.passed += 100
    process.step()
    assert (world.phase(), annotations(world)) == ("Pending", {})

    world.edit(paused=False)
    process.run(lambda: world.phase() == "Preparing")
    world.clock.passed += 50
    world.edit(paused=True)
    process.step()
    world.clock.passed += 500
    process.step()
    assert (world.phase(), KEY in annotations(world)) == ("Preparing", True)
    assert world.condition("Paused") == ("True", "Paused")
    world.edit(paused=False)
    assert 7 <= process.run(world.is_over) <= 13
    assert world.status()["reason"] == "PrepareTimeout"


# Owners of marks


@pytest.mark.rule("IG-28")
def test_a_mark_that_another_client_removes_is_set_again_once(
    world: World, process: Process
) -> None:
    start(world, process, hooks=["f5"], **MARKS)
    for left in (True, False):
        world.clock.passed += 2
        process.step()
        annotate(world, mark=None)
        world.clock.passed += 2
        process.step()
        assert (KEY in annotations(world)) is left
        assert world.condition("Prepared") == ("False", "MarkRemovedByOthers")
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "MarkRemovedByOthers")
    assert process.recorder.reasons == ["MarkRemovedByOthers", "DrainFailed"]


@pytest.mark.rule("IG-28")
def test_marks_of_another_holder_stay(world: World, process: Process) -> None:
    start(world, process, hooks=["f5"], **MARKS)
    record = json.loads(annotations(world)[RECORD])
    for entry in record.values():
        entry["holders"].append("IngressDaemonSet/default/nginx/x")
    text = json.dumps(record)
    world.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {RECORD: text}}})
    world.delete_drain()
    process.step()
    left = json.loads(annotations(world)[RECORD])
    assert {id_: entry["holders"] for id_, entry in left.items()} == {
        f"annotation:{KEY}": ["IngressDaemonSet/default/nginx/x"],
        f"label:{EXCLUDE}": ["IngressDaemonSet/default/nginx/x"],
    }
    assert (annotations(world)[KEY], label(world)) == ("true", "true")
    process.reconciler.reconcile(sweep_request("n1"))
    assert RECORD in annotations(world), "only the system of a holder knows whether it is gone"


@pytest.mark.rule("IG-28")
def test_marks_of_a_drain_that_was_removed_by_force_are_swept(
    world: World, process: Process
) -> None:
    start(world, process, hooks=["f5"], **MARKS)
    world.patch(f"/apis/{GROUP}/v1alpha1/nodedrains/d", {"metadata": {"finalizers": None}})
    world.delete_drain()
    process.step()
    assert (label(world), annotations(world)) == (None, {})


@pytest.mark.rule("IG-28")
def test_a_new_process_sweeps_marks_whose_holder_is_gone(world: World, process: Process) -> None:
    start(world, process, hooks=["f5"], **MARKS)
    process.reconciler.reconcile(sweep_request("n1"))
    assert KEY in annotations(world)
    process.close()
    world.patch(f"/apis/{GROUP}/v1alpha1/nodedrains/d", {"metadata": {"finalizers": None}})
    world.delete_drain()
    world.drain()  # another drain of the same name
    successor = world.process()
    successor.catch_up()
    successor.reconciler.reconcile(sweep_request("n1"))
    assert (label(world), annotations(world)) == (None, {})


@pytest.mark.rule("IG-74")
def test_a_drained_node_keeps_its_marks_until_it_is_uncordoned(
    world: World, process: Process
) -> None:
    start(world, process, **MARKS)
    process.run(world.is_over, meanwhile=world.kubelet)
    world.edit(uncordonOnDelete=False)
    world.delete_drain()
    process.step()
    assert world.is_cordoned()
    assert annotations(world)[KEY] == "true"
    process.catch_up()
    process.reconciler.reconcile(sweep_request("n1"))
    assert label(world) == "true"

    world.cordon(False)
    process.catch_up()
    process.reconciler.reconcile(sweep_request("n1"))
    assert label(world) is None
    assert not {KEY, RECORD} & annotations(world).keys()


@pytest.mark.rule("IG-74")
def test_a_drain_that_is_deleted_while_it_prepares_gives_its_marks_back(
    world: World, process: Process
) -> None:
    start(world, process, hooks=["f5"], **MARKS)
    world.delete_drain()
    process.step()
    assert world.server.list("nodedrains", group=GROUP) == []
    assert (label(world), annotations(world), world.is_cordoned()) == (None, {}, False)
    assert world.pods() == ["a"]


@pytest.mark.rule("IG-70")
def test_a_drain_with_nothing_to_prepare_sends_the_same_requests(world: World) -> None:
    sent = []
    specs: tuple[dict[str, Any], ...] = ({}, {"prepare": {}})
    for spec in specs:
        world.node()
        world.pod("a")
        world.drain(**spec)
        process = world.process()
        process.catch_up()
        before = len(world.server.audit)
        process.run(world.is_over, meanwhile=world.kubelet)
        sent.append(
            sorted(
                (record.verb, record.resource, record.subresource)
                for record in world.server.audit[before:]
                if record.resource in {"nodedrains", "nodes", "pods"} and record.verb != "watch"
            )
        )
        assert world.condition("Prepared") == ("", "")
        world.delete_drain()
        process.step()
        world.client.raw("DELETE", "/api/v1/nodes/n1")
    assert sent[0] == sent[1]


# Drains without evictions


@pytest.mark.rule("IG-78")
@pytest.mark.rule("UP-75")
def test_a_drain_without_evictions_cordons_and_is_completed(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.pod("bare", owner="")
    world.pod("agent", owner="DaemonSet")
    world.drain(evict=False)

    assert process.run(world.is_over) < 1, "no late pod is waited for"

    status = world.status()
    assert (status["phase"], status["reason"]) == ("Completed", "CordonedOnly")
    assert world.condition("NodeCordoned") == ("True", "NodeCordoned")
    assert world.condition("NodeDrained") == ("False", "CordonedOnly")
    assert {note["reason"] for note in status["ignoredPods"]} == {"NotEvicted"}
    assert (status["total"], status["evicted"], status["ignored"]) == (0, 0, 3)
    assert sorted(world.pods()) == ["a", "agent", "bare"]
    assert world.evictions == 0
    assert process.recorder.reasons == ["NodeCordoned"]
    assert process.step().requeue_after is None, "late pods may stay"


@pytest.mark.rule("IG-78")
def test_a_drain_without_evictions_uncordons_its_node_when_it_is_deleted(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.drain(evict=False)
    process.run(world.is_over)
    assert world.is_cordoned()
    world.delete_drain()
    process.step()
    assert not world.is_cordoned()


@pytest.mark.rule("IG-78")
def test_a_drain_without_evictions_waits_for_pods_that_leave_by_themselves(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.pod("proxy", metadata={"annotations": {HOOK: "ingress"}})
    world.drain(evict=False)
    process.run(lambda: world.phase() == "Preparing")
    assert world.condition("Prepared") == ("False", "WaitingForHooks")
    world.answer("ingress", "Done")
    process.run(lambda: world.phase() == "Draining")
    world.clock.passed += 5
    process.step()
    assert world.evictions == 0
    world.end("proxy")
    process.run(world.is_over)
    assert (world.phase(), world.status()["reason"]) == ("Completed", "CordonedOnly")
    assert world.status()["evictedPods"] == ["default/proxy"]
    assert world.pods() == ["a"]


@pytest.mark.rule("IG-78")
def test_a_drain_without_evictions_does_not_complete_on_a_node_that_is_not_cordoned(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("proxy", metadata={"annotations": {HOOK: "ingress"}})
    world.drain(evict=False)
    world.answer("ingress", "Done")
    process.run(lambda: world.phase() == "Draining")
    for _ in range(3):
        world.clock.passed += 2
        world.cordon(False)
        process.step()
    world.end("proxy")
    world.clock.passed += 2
    process.step()
    assert world.condition("NodeCordoned") == ("False", "UncordonedByOthers")
    assert world.phase() == "Draining"
    world.cordon(True)
    process.run(world.is_over)
    assert world.status()["reason"] == "CordonedOnly"


@pytest.mark.rule("IG-71")
def test_a_pod_with_a_hook_is_waited_for_and_never_evicted(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.pod("proxy", metadata={"annotations": {HOOK: "ingress"}})
    world.drain(disableEviction=True)
    world.answer("ingress", "Done")
    process.run(lambda: world.phase() == "Draining")
    world.kubelet()
    world.clock.passed += 60
    process.step()
    assert world.pods() == ["proxy"]
    assert world.phase() == "Draining"
    assert world.terminating() == []
    world.end("proxy")
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.status()["reason"] == "NodeDrained"
