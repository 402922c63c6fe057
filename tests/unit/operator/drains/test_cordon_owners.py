"""Whose cordon survives, whoever cordons when, whatever happens to us and to our object."""

from typing import Any, Final

import pytest

GROUP: Final = "navarchos.pusher.com"
MINUTE: Final = 60.0


@pytest.mark.rule("OP-41")
@pytest.mark.parametrize("crashes", [False, True], ids=["we live", "we crash"])
@pytest.mark.parametrize("end", ["in the middle", "when it is drained", "when it is given up"])
@pytest.mark.parametrize("somebody", ["nobody", "before", "during", "when it is over", "after"])
def test_the_cordon_of_others_survives_and_ours_is_gone_a_minute_after_the_end(
    world: Any, process: Any, somebody: str, end: str, crashes: bool
) -> None:
    """Somebody cordons before, during or after the drain; our object is deleted at its end."""

    def going_on() -> Any:
        return world.process() if crashes else process

    world.node()
    if somebody == "before":
        world.cordon(True)
    world.pod("a")
    world.budget(1 if end == "when it is drained" else 0)
    world.drain(timeoutSeconds=30)
    process.step()
    assert world.is_cordoned
    if somebody == "during":
        world.cordon(False)
        world.cordon(True)
    if end != "in the middle":
        going_on().run(world.is_over, meanwhile=world.kubelet)
    if somebody == "when it is over":
        world.cordon(False)
        world.cordon(True)
    world.delete_drain()
    going_on().run(lambda: not world.server.list("nodedrains", group=GROUP), limit=MINUTE)
    if somebody == "after":
        assert not world.is_cordoned
        world.cordon(True)
        going_on().step()
    assert world.is_cordoned is (somebody != "nobody")
    assert world.mark == ""
