"""Drains that prepare their node, and drains that evict no pod."""

import pytest
from tests.unit.operator.drains.conftest import Process, World

HOOK = "navarchos.pusher.com/drain-hook"


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
    process.step()
    world.clock.passed += 5
    process.step()
    assert world.phase() == "Draining"
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
    process.step()
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
    process.step()
    world.kubelet()
    world.clock.passed += 60
    process.step()
    assert world.pods() == ["proxy"]
    assert world.phase() == "Draining"
    assert world.terminating() == []
    world.end("proxy")
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.status()["reason"] == "NodeDrained"
