import threading
from collections.abc import Callable

import pytest

from navarchos.errors import AlreadyStopped, SelfJoin, Stopped, ThreadCrashed
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.threads import ThreadGroup


def group(stop: StopToken | None = None) -> ThreadGroup:
    return ThreadGroup("test", stop=StopToken() if stop is None else stop)


def test_threads_are_named_after_their_group() -> None:
    names: list[str] = []
    threads = group()
    threads.start("part", lambda: names.append(threading.current_thread().name))
    assert threads.join(5)
    assert names == ["nav-test-part"]


def test_join_reports_threads_that_still_run(fake_clock: FakeClock) -> None:
    stop = StopToken(clock=fake_clock)
    threads = ThreadGroup("test", stop=stop, clock=fake_clock)
    threads.start("loop", stop.wait)
    assert threads.join(0) is False
    assert threads.running() == ("nav-test-loop",)
    stop.stop("done")
    assert threads.join() is True


def test_a_crash_stops_the_group_and_keeps_its_cause() -> None:
    stop = StopToken()
    threads = group(stop)

    def crash() -> None:
        raise ValueError("boom")

    threads.start("sibling", stop.wait)
    threads.start("bad", crash)
    assert threads.join(5)
    assert "nav-test-bad" in (stop.reason or "")
    with pytest.raises(ThreadCrashed) as caught:
        threads.raise_failure()
    assert isinstance(caught.value.__cause__, ValueError)


def test_cancellation_is_a_normal_end() -> None:
    def cancelled() -> None:
        raise Stopped("asked")

    threads = group()
    threads.start("part", cancelled)
    assert threads.join(5)
    assert threads.failure is None
    threads.raise_failure()


@pytest.mark.rule("RT-09")
def test_a_thread_that_would_join_itself_gets_an_error() -> None:
    caught: list[BaseException] = []
    threads = group()

    def join_self() -> None:
        try:
            threads.join()
        except SelfJoin as error:
            caught.append(error)

    threads.start("part", join_self)
    assert threads.join(5)
    assert len(caught) == 1


def test_nothing_starts_in_a_group_that_was_stopped_and_joined() -> None:
    stop = StopToken()
    threads = group(stop)
    stop.stop("over")
    threads.join()
    with pytest.raises(AlreadyStopped):
        threads.start("late", lambda: None)


class Turns(FakeClock):
    """A clock that creates the threads, and starts none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.unstarted: list[threading.Thread] = []

    def thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        made = self.unstarted

        class Held(threading.Thread):
            def start(self) -> None:
                made.append(threading.Thread(name=name, target=run))

        return Held(name=name)


def test_a_scheduler_clock_creates_the_threads() -> None:
    clock, ran = Turns(), []
    threads = ThreadGroup("test", stop=StopToken(clock=clock), clock=clock)
    threads.start("part", lambda: ran.append(threading.current_thread().name))
    assert not ran
    (held,) = clock.unstarted
    held.start()
    held.join()
    assert ran == ["nav-test-part"]
