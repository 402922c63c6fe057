"""The work of a leader, and the sleep of a candidate, on virtual time."""

from collections.abc import Iterator

import pytest

from navarchos.leaderelection.leader_task import InterruptibleSleep, LeaderTask
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.threads import ThreadGroup


@pytest.fixture
def threads(fake_clock: FakeClock) -> Iterator[ThreadGroup]:
    group = ThreadGroup("task", stop=StopToken(clock=fake_clock), clock=fake_clock)
    yield group
    group.stop.stop("the test is over")
    fake_clock.settle()
    assert group.join(0)


def test_join_waits_for_work_that_ends_in_the_last_second(
    fake_clock: FakeClock, threads: ThreadGroup
) -> None:
    def work(_: StopToken) -> None:
        threads.stop.wait(1.5)

    task = LeaderTask(work, StopToken(clock=fake_clock), 30.0, fake_clock)
    task.start(threads)
    joined: list[bool] = []
    threads.start("join", lambda: joined.append(task.join(2.0)))
    fake_clock.advance(1.0)
    fake_clock.settle()
    assert joined == []
    fake_clock.advance(0.5)
    fake_clock.settle()
    assert joined == [True]


def test_join_returns_false_when_its_time_is_over(
    fake_clock: FakeClock, threads: ThreadGroup
) -> None:
    def work(_: StopToken) -> None:
        threads.stop.wait()

    task = LeaderTask(work, StopToken(clock=fake_clock), 30.0, fake_clock)
    task.start(threads)
    joined: list[bool] = []
    threads.start("join", lambda: joined.append(task.join(2.0)))
    fake_clock.advance(2.0)
    fake_clock.settle()
    assert joined == [False]


def test_a_sleep_lasts_as_long_as_asked_for(fake_clock: FakeClock, threads: ThreadGroup) -> None:
    sleep = InterruptibleSleep(fake_clock)
    ended: list[bool] = []
    threads.start("sleep", lambda: ended.append(sleep.wait(threads.stop, 5.0)))
    fake_clock.advance(4.5)
    fake_clock.settle()
    assert ended == []
    fake_clock.advance(0.5)
    fake_clock.settle()
    assert ended == [False]


def test_a_sleep_ends_when_woken_also_before_it_began(
    fake_clock: FakeClock, threads: ThreadGroup
) -> None:
    sleep = InterruptibleSleep(fake_clock)
    sleep.wake()
    assert not sleep.wait(threads.stop, 5.0)
    ended: list[bool] = []
    threads.start("sleep", lambda: ended.append(sleep.wait(threads.stop, 5.0)))
    fake_clock.settle()
    sleep.wake()
    fake_clock.settle()
    assert ended == [False]
