"""Asking a server how far it is, when it does not answer."""

from typing import Any

import pytest
from tests.clocks import JumpingClock

from navarchos.client import RequestTimeout
from navarchos.errors import Stopped
from navarchos.informers.catchup import CatchUp
from navarchos.informers.position import CachePosition
from navarchos.stopping import StopToken


class Silent:
    """A server whose answers are lost: who asks waits for as long as it wants to."""

    def page(self, version: str, *, limit: int, timeout: float, stop: StopToken) -> Any:
        if stop.wait(timeout):
            raise Stopped(stop.reason or "")
        raise RequestTimeout("silence", sent=True)


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def catch_up(clock: JumpingClock) -> CatchUp[Any]:
    source: Any = Silent()
    return CatchUp(source, CachePosition(clock=clock), lambda version: None, clock=clock)


@pytest.mark.parametrize(("timeout", "longest"), [(120.0, 20.0), (None, 20.0), (5.0, 5.0)])
def test_a_lost_answer_costs_a_few_seconds_and_not_all_the_time_there_is(
    catch_up: CatchUp[Any], clock: JumpingClock, timeout: float | None, longest: float
) -> None:
    with pytest.raises(RequestTimeout):
        catch_up.wait(timeout, 0)
    assert clock.passed == longest


def test_a_stop_frees_whoever_waits_for_the_answer(
    catch_up: CatchUp[Any], clock: JumpingClock
) -> None:
    stop = StopToken(clock=clock)
    clock.meanwhile = lambda passed: stop.stop("enough")
    assert catch_up.wait(120.0, 0, None, stop) is False


def test_a_client_that_is_closed_says_so(catch_up: CatchUp[Any], clock: JumpingClock) -> None:
    class Closed:
        def page(self, version: str, **options: Any) -> Any:
            raise Stopped("the client was closed")

    source: Any = Closed()
    closed = CatchUp[Any](source, CachePosition(clock=clock), lambda version: None, clock=clock)
    with pytest.raises(Stopped, match="closed"):
        closed.wait(120.0, 0, StopToken(clock=clock))
