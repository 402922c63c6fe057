"""Waiting for caches when leadership was gained."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.runtime.conftest import Running

from navarchos.client import ConnectFailed
from navarchos.errors import Stopped
from navarchos.runtime.startup import catch_up
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock

Run = Callable[..., Running]


class Cache:
    """Answers with what a test holds, in order; the last answer stays."""

    def __init__(self, *answers: bool | Exception, ended: bool = False) -> None:
        self.name = "things"
        self.answers = list(answers)
        self.asked = 0
        self.ended = ended

    def catch_up(self, timeout: float, stop: object) -> bool:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def has_ended(self) -> bool:
        return self.ended


@pytest.fixture
def wait(run: Run, fake_clock: FakeClock) -> Callable[..., Running]:
    def start(*caches: Any) -> Running:
        running = run(lambda stop: catch_up(caches, timeout=5.0, stop=stop, clock=fake_clock))
        fake_clock.settle()
        return running

    return start


def test_every_cache_is_waited_for_and_failures_are_tried_again(
    wait: Callable[..., Running], fake_clock: FakeClock
) -> None:
    quick, slow = Cache(True), Cache(ConnectFailed("gone"), False, True)
    running = wait(quick, slow)
    fake_clock.advance(2)
    assert running.join().error is None
    assert (quick.asked, slow.asked) == (1, 3)


def test_a_stop_ends_the_wait(run: Run, fake_clock: FakeClock) -> None:
    def run_on(stop: StopToken) -> None:
        with pytest.raises(Stopped, match="enough"):
            catch_up([cache], timeout=5.0, stop=stop, clock=fake_clock)  # type: ignore[list-item]  # no informer

    cache = Cache(False)
    running = run(run_on)
    fake_clock.settle()
    fake_clock.advance(3)
    running.stop.stop("enough")
    running.join()
    assert cache.asked >= 3


def test_a_cache_that_was_removed_is_not_waited_for(wait: Callable[..., Running]) -> None:
    assert wait(Cache(False, ended=True)).join().error is None
