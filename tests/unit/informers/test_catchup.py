"""Asking a server for its version when it does not answer."""

from typing import Any

import pytest
from tests.clocks import JumpingClock

from navarchos.client import RequestTimeout
from navarchos.client.options import ListOptions
from navarchos.errors import Stopped
from navarchos.informers.catchup import CatchUp
from navarchos.informers.position import CachePosition
from navarchos.stopping import StopToken


class Silent:
    """A server whose responses are lost: every request waits for its whole timeout."""

    def page(self, options: ListOptions, *, timeout: float, stop: StopToken) -> Any:
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
def test_a_lost_response_takes_seconds_and_not_the_whole_timeout(
    catch_up: CatchUp[Any], clock: JumpingClock, timeout: float | None, longest: float
) -> None:
    with pytest.raises(RequestTimeout):
        catch_up.wait(timeout, 0)
    assert clock.passed == longest


def test_a_stop_ends_the_wait_for_the_response(catch_up: CatchUp[Any], clock: JumpingClock) -> None:
    stop = StopToken(clock=clock)
    clock.meanwhile = lambda passed: stop.stop("enough")
    assert catch_up.wait(120.0, 0, None, stop) is False


def test_a_closed_client_raises(catch_up: CatchUp[Any], clock: JumpingClock) -> None:
    class Closed:
        def page(self, options: ListOptions, **more: Any) -> Any:
            raise Stopped("the client was closed")

    source: Any = Closed()
    closed = CatchUp[Any](source, CachePosition(clock=clock), lambda version: None, clock=clock)
    with pytest.raises(Stopped, match="closed"):
        closed.wait(120.0, 0, StopToken(clock=clock))
