import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from tests.cases.waiting import wait_for

from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.threads import THREAD_PREFIX, ThreadGroup


def nap(clock: FakeClock, seconds: float | None, log: list[float]) -> threading.Thread:
    condition = threading.Condition()

    def run() -> None:
        with condition:
            clock.wait(condition, seconds)
        log.append(clock.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_time_stands_still_until_moved(fake_clock: FakeClock) -> None:
    before = (fake_clock.monotonic(), fake_clock.now())
    assert (fake_clock.monotonic(), fake_clock.now()) == before
    fake_clock.advance(1.5)
    assert fake_clock.monotonic() == before[0] + 1.5
    assert fake_clock.now() - before[1] == timedelta(seconds=1.5)


def test_waiters_wake_at_their_own_deadlines(fake_clock: FakeClock) -> None:
    start, log = fake_clock.monotonic(), list[float]()
    threads = [nap(fake_clock, 1.0, log), nap(fake_clock, 2.0, log), nap(fake_clock, 99.0, log)]
    fake_clock.settle(threads=3)
    fake_clock.advance(3.0)
    threads[0].join()
    threads[1].join()
    assert all(at > start for at in log)
    assert fake_clock.waiting() == 1
    fake_clock.advance(100)
    threads[2].join()


class PassedOnce(threading.Condition):
    """Calls a function at the first access: a sequence point."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.happens: Callable[[], None] | None = happens

    def __enter__(self) -> bool:
        found = super().__enter__()
        happens = self.happens
        if happens is not None and not threading.current_thread().name.startswith(THREAD_PREFIX):
            self.happens = None
            happens()
        return found


def test_settle_waits_for_a_thread_that_was_notified_by_an_ended_thread(
    fake_clock: FakeClock,
) -> None:
    stop, may_end = StopToken(clock=fake_clock), threading.Event()
    threads = ThreadGroup("test", stop=stop, clock=fake_clock)
    first, heard = threading.Condition(), list[str]()

    def listen() -> None:
        with first:
            fake_clock.wait(first, None)
        heard.append("the last word")
        stop.wait()

    def speak() -> None:
        may_end.wait()
        with first:
            first.notify_all()

    def wait_at_second() -> None:
        with second:
            fake_clock.wait(second, None)

    def is_waiting(number: int) -> bool:
        return fake_clock.waiting() == number

    def end_the_speaker() -> None:
        may_end.set()
        speaker.join()

    # When the second waiter is checked, the first one has already been checked.
    second = PassedOnce(end_the_speaker)
    speaker = threads.start("speaker", speak)
    for number, wait in enumerate((listen, wait_at_second), start=1):
        threads.start(f"waiter-{number}", wait)
        wait_for("it to wait", partial(is_waiting, number))
    fake_clock.settle(threads=2)
    assert heard == ["the last word"]
    stop.stop()
    with second:
        second.notify_all()
    assert threads.join(30)


def test_a_wait_without_end_needs_a_notification(fake_clock: FakeClock) -> None:
    condition, done = threading.Condition(), list[bool]()

    def run() -> None:
        with condition:
            done.append(fake_clock.wait(condition, None))

    thread = threading.Thread(target=run)
    thread.start()
    fake_clock.settle(threads=1)
    fake_clock.advance(1_000_000)
    assert done == []
    with condition:
        condition.notify_all()
    thread.join()
    assert done == [True]


def test_a_wait_of_nothing_returns_at_once(fake_clock: FakeClock) -> None:
    condition = threading.Condition()
    with condition:
        assert fake_clock.wait(condition, 0) is False


def test_next_deadline_tells_how_far_to_go(fake_clock: FakeClock) -> None:
    assert fake_clock.next_deadline() is None
    thread = nap(fake_clock, 7.0, [])
    fake_clock.settle(threads=1)
    assert fake_clock.next_deadline() == pytest.approx(7.0)
    fake_clock.advance(7.0)
    thread.join()


def test_threads_that_are_older_than_the_clock_are_not_waited_for() -> None:
    stop = StopToken()
    others = ThreadGroup("older", stop=stop)
    others.start("busy", stop.wait)
    FakeClock().settle()
    stop.stop("done")
    assert others.join(5)
