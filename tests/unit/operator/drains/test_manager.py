"""The drain controller inside a manager, with its threads, in real time."""

import pytest
from tests.unit.operator.drains.conftest import GROUP, World

from navarchos.operator.drains import add_to_manager
from navarchos.runtime import Manager
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup


@pytest.mark.rule("OP-40")
@pytest.mark.rule("OP-64")
def test_a_manager_drains_a_node_and_uncordons_it(world: World) -> None:
    world.node()
    for number in range(12):
        world.pod(f"p{number}")
    world.budget(6)
    manager = Manager(world.client)
    add_to_manager(manager)
    stop = StopToken()
    group = ThreadGroup("manager-test", stop=stop)
    group.start("", lambda: manager.run(stop))
    try:
        world.drain()
        world.wait_for(lambda: len(world.terminating()) == 6)
        world.allow(6)  # only the change of the budget makes the manager continue
        world.wait_for(lambda: len(world.terminating()) == 12)
        world.wait_for(lambda: is_over_after_kubelet(world))
        assert world.phase() == "Completed"
        world.delete_drain()
        world.wait_for(lambda: not world.server.list("nodedrains", group=GROUP))
        assert not world.is_cordoned()
    finally:
        stop.stop("the test is over")
        assert group.join(30)
    group.raise_failure()
    reasons = {event["reason"] for event in world.server.list("events", group="events.k8s.io")}
    assert {"NodeCordoned", "PodEvicted", "NodeDrained", "NodeUncordoned"} <= reasons


def is_over_after_kubelet(world: World) -> bool:
    world.kubelet()
    return world.is_over()
