"""Pods that are bound after a node had been empty (A13)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrainStatus
from navarchos.operator.drains.aftercare import next_looks
from navarchos.runtime import DONE

pytestmark = pytest.mark.rule("OP-44")


def emptied(world: Any, process: Any) -> None:
    """A node whose drain is Completed, and long enough for the first look."""
    world.node()
    world.pod("a")
    world.drain()
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    world.clock.passed += 5


def test_a_pod_that_is_bound_after_the_drain_was_completed_is_moved_too(
    world: Any, process: Any
) -> None:
    emptied(world, process)
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


def test_it_is_found_by_a_process_that_has_not_seen_the_drain_before(world: Any) -> None:
    emptied(world, world.process())
    world.pod("late")
    process = world.process()
    process.step()
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []


def test_an_empty_node_is_looked_at_for_a_minute_without_a_write(world: Any, process: Any) -> None:
    emptied(world, process)
    version = world.get()["metadata"]["resourceVersion"]
    looks = 0
    while (result := process.step()) != DONE:
        looks += 1
        world.clock.passed += result.requeue_after
    assert looks == 2
    assert world.clock.passed < 90
    assert world.get()["metadata"]["resourceVersion"] == version


def test_pods_that_come_after_a_person_opened_the_node_stay(world: Any, process: Any) -> None:
    emptied(world, process)
    world.cordon(False)
    world.pod("welcome")
    process.step()
    assert world.phase() == "Completed"
    assert (world.pods(), world.terminating()) == (["welcome"], [])


def test_a_late_pod_that_nobody_would_bring_back_is_left_to_who_made_it(
    world: Any, process: Any
) -> None:
    """Such as a person's debugging pod."""
    emptied(world, process)
    world.pod("debug", owner="")
    process.step()
    assert (world.phase(), world.terminating()) == ("Completed", [])


def test_nothing_is_evicted_while_the_rollout_is_paused(world: Any, process: Any) -> None:
    emptied(world, process)
    process.is_held = True
    world.pod("late")
    assert process.step() != DONE
    assert (world.phase(), world.terminating()) == ("Completed", [])
    process.is_held = False
    process.step()
    assert world.phase() == "Draining"


@pytest.mark.parametrize(
    ("elapsed", "due", "ahead"),
    [(0, False, 3), (3, True, 12), (20, True, 40), (60, True, None), (600, False, None)],
)
def test_looks_follow_from_the_status_alone(
    now: datetime, elapsed: float, due: bool, ahead: float | None
) -> None:
    status = NodeDrainStatus(
        phase=DrainPhase.COMPLETED, reason="NodeDrained", completion_timestamp=now
    )
    assert next_looks(status, now + timedelta(seconds=elapsed)) == (due, ahead)


def test_a_node_that_is_gone_is_not_looked_at(now: datetime) -> None:
    status = NodeDrainStatus(
        phase=DrainPhase.COMPLETED, reason="NodeGone", completion_timestamp=now
    )
    assert next_looks(status, now + timedelta(seconds=5)) == (False, None)
