"""Pods that are bound after a node has been drained (A13)."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator.drains.conftest import Process, World

from navarchos.operator.api.v1alpha1 import (
    GROUP,
    DrainPhase,
    NodeDrainStatus,
)
from navarchos.operator.drains.decide import next_recheck
from navarchos.runtime import DONE

pytestmark = pytest.mark.rule("OP-44")


def drained_node(world: World, process: Process) -> None:
    """Drain a node, and move time past the first check for late pods."""
    world.node()
    world.pod("a")
    world.drain()
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    world.clock.passed += 5


def hand_over(world: World, **spec: Any) -> None:
    """Let a replacement copy the report of the drain."""
    owner = {
        "apiVersion": "example.org/v1",
        "kind": "Replacement",
        "name": "r",
        "uid": "u",
        "controller": True,
    }
    path = f"/apis/{GROUP}/v1alpha1/nodedrains/d"
    world.patch(path, {"metadata": {"ownerReferences": [owner]}})
    world.edit(uncordonOnDelete=False, **spec)


def test_a_pod_that_is_bound_after_the_drain_has_completed_is_evicted_too(
    world: World, process: Process
) -> None:
    drained_node(world, process)
    world.pod("late")
    process.step()
    assert (world.phase(), world.condition("NodeDrained")) == (
        "Draining",
        ("False", "PodsCameLate"),
    )
    process.run(world.is_over, meanwhile=world.kubelet)
    assert (world.phase(), world.condition("NodeDrained")) == (
        "Completed",
        ("True", "NodeDrained"),
    )
    assert world.pods() == []
    assert world.status()["evictedPods"] == ["default/a", "default/late"]


def test_a_late_pod_is_found_by_a_process_that_is_new_to_the_drain(world: World) -> None:
    drained_node(world, world.process())
    world.pod("late")
    process = world.process()
    process.step()
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []


def test_an_empty_node_is_checked_for_a_minute_without_a_write(
    world: World, process: Process
) -> None:
    drained_node(world, process)
    version = world.get()["metadata"]["resourceVersion"]
    checks = 0
    while (result := process.step()) != DONE:
        checks += 1
        world.clock.passed += result.requeue_after or 0.0
    assert checks == 2
    assert world.clock.passed < 90
    assert world.get()["metadata"]["resourceVersion"] == version


def test_pods_that_arrive_after_a_user_uncordoned_the_node_stay(
    world: World, process: Process
) -> None:
    drained_node(world, process)
    world.cordon(False)
    world.pod("welcome")
    process.step()
    assert world.phase() == "Completed"
    assert (world.pods(), world.terminating()) == (["welcome"], [])


def test_a_late_pod_without_a_controller_stays(world: World, process: Process) -> None:
    """For example a debugging pod of a user."""
    drained_node(world, process)
    world.pod("debug", owner="")
    process.step()
    assert (world.phase(), world.terminating()) == ("Completed", [])


def test_nothing_is_evicted_while_the_rollout_is_paused(world: World, process: Process) -> None:
    drained_node(world, process)
    hand_over(world)
    process.is_suspended = True
    world.pod("late")
    assert process.step() != DONE
    assert (world.phase(), world.terminating()) == ("Completed", [])
    process.is_suspended = False
    process.step()
    assert world.phase() == "Draining"


@pytest.mark.rule("OP-07")
def test_a_pause_left_in_the_drain_of_a_finished_replacement_does_not_suspend_it(
    world: World, process: Process
) -> None:
    drained_node(world, process)
    hand_over(world, paused=True)
    world.pod("late")
    process.run(lambda: not world.pods() and world.phase() == "Completed", meanwhile=world.kubelet)


@pytest.mark.rule("OP-07")
def test_late_pods_stay_while_the_rollout_is_paused_and_are_evicted_soon_after(
    world: World, process: Process
) -> None:
    drained_node(world, process)
    hand_over(world)
    world.pod("late")
    process.step()
    assert world.phase() == "Draining"
    process.is_suspended = True
    for _ in range(3):
        result = process.step()
        world.clock.passed += 2
    assert (world.pods(), world.terminating()) == (["late"], [])
    process.is_suspended = False
    assert 0 < (result.requeue_after or 0.0) <= 5, "no event causes the next reconcile"
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []


@pytest.mark.parametrize(
    ("elapsed", "due", "ahead"),
    [(0, False, 3), (3, True, 12), (20, True, 40), (60, True, None), (600, False, None)],
)
def test_rechecks_follow_from_the_status_alone(
    now: datetime, elapsed: float, due: bool, ahead: float | None
) -> None:
    status = NodeDrainStatus(
        phase=DrainPhase.COMPLETED, reason="NodeDrained", completion_timestamp=now
    )
    assert next_recheck(status, now + timedelta(seconds=elapsed)) == (due, ahead)


def test_a_node_that_is_gone_is_not_checked_again(now: datetime) -> None:
    status = NodeDrainStatus(
        phase=DrainPhase.COMPLETED, reason="NodeGone", completion_timestamp=now
    )
    assert next_recheck(status, now + timedelta(seconds=5)) == (False, None)
