"""Which cordons survive a drain, its deletion and a crash."""

from enum import Enum
from typing import Final

import pytest
from tests.unit.operator.drains.conftest import GROUP, Process, World

MINUTE: Final = 60.0


class Other(Enum):
    """When another client cordons the node."""

    NEVER = "never"
    BEFORE = "before"
    DURING = "during"
    AT_THE_END = "when the drain has ended"
    AFTER = "after the deletion"


@pytest.mark.rule("OP-41")
@pytest.mark.parametrize("crashes", [False, True], ids=["no crash", "crash"])
@pytest.mark.parametrize("end", ["in the middle", "when it has completed", "when it has failed"])
@pytest.mark.parametrize("other", Other, ids=[other.value for other in Other])
def test_foreign_cordons_survive_and_ours_is_gone_a_minute_after_the_end(
    world: World, process: Process, other: Other, end: str, crashes: bool
) -> None:
    """Another client cordons before, during or after the drain, which is deleted at its end."""

    def running() -> Process:
        return world.process() if crashes else process

    world.node()
    if other is Other.BEFORE:
        world.cordon(True)
    world.pod("a")
    world.budget(1 if end == "when it has completed" else 0)
    world.drain(timeoutSeconds=30)
    process.step()
    assert world.is_cordoned()
    if other is Other.DURING:
        world.cordon(False)
        world.cordon(True)
    if end != "in the middle":
        running().run(world.is_over, meanwhile=world.kubelet)
    if other is Other.AT_THE_END:
        world.cordon(False)
        world.cordon(True)
    world.delete_drain()
    running().run(lambda: not world.server.list("nodedrains", group=GROUP), limit=MINUTE)
    if other is Other.AFTER:
        assert not world.is_cordoned()
        world.cordon(True)
        running().step()
    assert world.is_cordoned() is (other is not Other.NEVER)
    assert world.mark == ""
