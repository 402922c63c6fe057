from collections.abc import Callable, Iterator

import pytest

from navarchos.errors import AlreadyStopped, Stopped
from navarchos.runtime.groups import RunnableGroup
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock


class Task:
    """Counts its runs; runs until it is stopped, or until its end."""

    def __init__(self, end: Callable[[StopToken], object] = StopToken.wait) -> None:
        self.runs = 0
        self._end = end

    def run(self, stop: StopToken) -> None:
        self.runs += 1
        self._end(stop)


class Group(RunnableGroup):
    def __init__(self, clock: FakeClock) -> None:
        self.failures: list[BaseException] = []
        super().__init__("run", self.failures.append, clock)

    def end(self) -> None:
        self.stop("the test is over")
        assert self.join(10)


@pytest.fixture
def group(fake_clock: FakeClock) -> Iterator[Group]:
    group = Group(fake_clock)
    yield group
    group.end()


@pytest.mark.rule("MG-13")
def test_everything_is_started_once_whenever_it_was_added(
    group: Group, fake_clock: FakeClock
) -> None:
    before, after = Task(), Task()
    group.add("before", before)
    fake_clock.settle()
    assert before.runs == 0
    group.start()
    group.start()
    group.add("after", after)
    fake_clock.settle()
    assert (before.runs, after.runs) == (1, 1)
    assert group.running() == ("nav-run-after", "nav-run-before")
    group.end()
    assert group.failures == []


@pytest.mark.rule("MG-13")
def test_a_runnable_may_add_another_one(group: Group, fake_clock: FakeClock) -> None:
    second = Task()
    group.add("first", Task(lambda stop: group.add("second", second)))
    group.start()
    fake_clock.settle(threads=1)
    assert second.runs == 1


@pytest.mark.rule("MG-11")
def test_a_group_that_was_stopped_never_starts(group: Group) -> None:
    task = Task()
    group.add("task", task)
    group.end()
    group.start()
    assert task.runs == 0
    with pytest.raises(AlreadyStopped):
        group.add("late", task)


@pytest.mark.rule("MG-06")
@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3)])
def test_a_failure_is_reported_and_a_stop_is_none(group: Group, error: BaseException) -> None:
    def fail(stop: StopToken) -> None:
        raise error

    def stopped(stop: StopToken) -> None:
        raise Stopped("asked to")

    group.add("fails", Task(fail))
    group.add("stops", Task(stopped))
    group.start()
    assert group.join(10)
    assert group.failures == [error]


@pytest.mark.rule("MG-07")
def test_returning_early_ends_no_other_runnable(group: Group, fake_clock: FakeClock) -> None:
    group.add("short", Task(lambda stop: None))
    group.add("long", Task())
    group.start()
    fake_clock.settle(threads=1)
    assert group.running() == ("nav-run-long",)
