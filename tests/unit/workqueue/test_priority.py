import gc
import weakref
from collections.abc import Iterator

import pytest
from tests.unit.workqueue.conftest import Spawn

from navarchos.testing import FakeClock
from navarchos.workqueue import ItemExponential, Loan, PriorityQueue, QueueTimeout


@pytest.fixture
def queue(fake_clock: FakeClock) -> Iterator[PriorityQueue[str]]:
    queue = PriorityQueue[str](name="q", limiter=ItemExponential(1.0, 60.0), clock=fake_clock)
    yield queue
    queue.shut_down()


def lend(queue: PriorityQueue[str]) -> Loan[str]:
    loan = queue.get(timeout=0)
    assert loan is not None
    return loan


def ready(queue: PriorityQueue[str]) -> list[tuple[str, int]]:
    taken = []
    while len(queue):
        loan = lend(queue)
        taken.append((loan.key, loan.priority))
        loan.done()
    return taken


@pytest.mark.rule("WQ-21")
def test_urgent_keys_come_first_and_equal_ones_in_order(queue: PriorityQueue[str]) -> None:
    for key, priority in (("a", 0), ("low", -100), ("b", 0), ("high", 7)):
        queue.add(key, priority=priority)
    assert ready(queue) == [("high", 7), ("a", 0), ("b", 0), ("low", -100)]


@pytest.mark.rule("WQ-22")
def test_a_key_is_in_once_with_its_highest_priority(queue: PriorityQueue[str]) -> None:
    queue.add("a", priority=1)
    queue.add("a", priority=3)
    queue.add("a", priority=2)
    assert ready(queue) == [("a", 3)]


@pytest.mark.rule("WQ-22")
def test_a_raised_key_goes_to_the_end_of_its_new_priority(queue: PriorityQueue[str]) -> None:
    queue.add("a", priority=-100)
    queue.add("b")
    queue.add("c")
    queue.add("a")
    queue.add("b")
    assert ready(queue) == [("b", 0), ("c", 0), ("a", 0)]


@pytest.mark.rule("WQ-22")
def test_a_waiting_key_keeps_the_earliest_time_and_the_highest_priority(
    fake_clock: FakeClock, queue: PriorityQueue[str]
) -> None:
    queue.add("a", after=10, priority=5)
    queue.add("a", after=5, priority=1)
    queue.add("a", after=20, priority=3)
    fake_clock.settle()
    fake_clock.advance(4.9)
    assert ready(queue) == []
    fake_clock.advance(0.1)
    assert ready(queue) == [("a", 5)]
    fake_clock.advance(60)
    assert ready(queue) == []


@pytest.mark.rule("WQ-22")
def test_a_ready_key_is_not_delayed_by_adding_it_for_later(
    fake_clock: FakeClock, queue: PriorityQueue[str]
) -> None:
    queue.add("a")
    queue.add("a", after=10, priority=1)
    assert ready(queue) == [("a", 1)]
    fake_clock.advance(20)
    assert ready(queue) == []


@pytest.mark.rule("WQ-23")
def test_a_delayed_key_takes_its_place_when_it_becomes_ready(
    fake_clock: FakeClock, queue: PriorityQueue[str]
) -> None:
    queue.add("late", after=5)
    queue.add("a")
    fake_clock.settle()
    fake_clock.advance(5)
    queue.add("b")
    assert [key for key, _ in ready(queue)] == ["a", "late", "b"]


@pytest.mark.rule("WQ-23")
def test_an_urgent_key_that_became_ready_goes_first(
    fake_clock: FakeClock, queue: PriorityQueue[str]
) -> None:
    queue.add("urgent", after=5, priority=1)
    queue.add("a")
    fake_clock.settle()
    fake_clock.advance(5)
    assert ready(queue) == [("urgent", 1), ("a", 0)]


@pytest.mark.rule("WQ-23")
def test_adding_a_waiting_key_without_delay_makes_it_ready(
    fake_clock: FakeClock, queue: PriorityQueue[str]
) -> None:
    queue.add("a", after=5, priority=2)
    queue.add("a")
    assert ready(queue) == [("a", 2)]
    fake_clock.advance(10)
    assert ready(queue) == []


@pytest.mark.rule("WQ-24")
def test_a_key_on_loan_is_passed_over_until_its_loan_closes(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    loan = lend(queue)
    queue.add("a", priority=9)
    queue.add("b")
    assert len(queue) == 2
    with lend(queue) as key:
        assert key == "b"
    with pytest.raises(QueueTimeout):
        queue.get(timeout=0)
    loan.done()
    assert ready(queue) == [("a", 9)]


@pytest.mark.rule("WQ-24")
def test_a_key_that_was_passed_over_keeps_its_place(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    loan = lend(queue)
    queue.add("a")
    queue.add("b")
    loan.done()
    assert [key for key, _ in ready(queue)] == ["a", "b"]


@pytest.mark.rule("WQ-24")
def test_keys_that_were_passed_over_keep_their_places_however_their_loans_close(
    queue: PriorityQueue[str],
) -> None:
    for key in "abc":
        queue.add(key)
    loans = {key: lend(queue) for key in "abc"}
    for key in "abc":
        queue.add(key)
    with pytest.raises(QueueTimeout):
        queue.get(timeout=0)
    queue.add("d")
    for key in "cab":
        loans[key].done()
    assert [key for key, _ in ready(queue)] == ["a", "b", "c", "d"]


@pytest.mark.rule("WQ-24")
def test_a_key_that_was_raised_after_it_was_passed_over_comes_once(
    queue: PriorityQueue[str],
) -> None:
    queue.add("a")
    loan = lend(queue)
    queue.add("a")
    with pytest.raises(QueueTimeout):
        queue.get(timeout=0)
    queue.add("a", priority=5)
    loan.done()
    assert ready(queue) == [("a", 5)]


@pytest.mark.rule("WQ-24")
def test_a_getter_that_waits_receives_a_passed_over_key_when_its_loan_closes(
    fake_clock: FakeClock, queue: PriorityQueue[str], spawn: Spawn
) -> None:
    queue.add("a")
    loan = lend(queue)
    got = spawn(lambda: lend_waiting(queue))
    fake_clock.settle(threads=1)
    queue.add("a")
    fake_clock.settle(threads=1)
    assert got == []
    loan.done()
    fake_clock.settle()
    assert got == ["a"]


@pytest.mark.rule("WQ-24")
def test_len_leaves_out_keys_that_wait(fake_clock: FakeClock, queue: PriorityQueue[str]) -> None:
    queue.add("a", after=5)
    queue.add("b")
    assert len(queue) == 1
    fake_clock.settle()
    fake_clock.advance(5)
    assert len(queue) == 2


@pytest.mark.rule("WQ-24")
def test_a_key_may_wait_while_it_is_on_loan(
    fake_clock: FakeClock, queue: PriorityQueue[str]
) -> None:
    queue.add("a")
    loan = lend(queue)
    queue.add("a", after=5)
    fake_clock.settle()
    fake_clock.advance(5)
    with pytest.raises(QueueTimeout):
        queue.get(timeout=0)
    loan.done()
    assert ready(queue) == [("a", 0)]


@pytest.mark.rule("WQ-25")
@pytest.mark.parametrize(
    ("after", "expected"), [(0.0, 1.0), (0.5, 0.5), (5.0, 1.0)], ids=["unset", "shorter", "longer"]
)
def test_of_two_delays_the_shorter_counts(
    fake_clock: FakeClock, queue: PriorityQueue[str], after: float, expected: float
) -> None:
    queue.add("a", after=after, rate_limited=True)
    fake_clock.settle()
    assert fake_clock.next_deadline() == pytest.approx(expected)


@pytest.mark.rule("WQ-25")
def test_each_key_is_limited_separately(queue: PriorityQueue[str]) -> None:
    for key in ("a", "b", "a"):
        queue.add_rate_limited(key)
    assert (queue.num_requeues("a"), queue.num_requeues("b")) == (2, 1)
    queue.forget("a")
    assert queue.num_requeues("a") == 0


@pytest.mark.rule("WQ-26")
def test_shutdown_is_immediate_and_harmless_when_repeated(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    queue.add("later", after=5)
    queue.shut_down()
    queue.shut_down()
    assert queue.shut_down_with_drain()
    queue.add("b")
    queue.add("b", after=1)
    assert queue.shutting_down
    assert queue.get() is None
    assert len(queue) == 0


@pytest.mark.rule("WQ-26")
def test_shutdown_wakes_waiting_workers(fake_clock: FakeClock, spawn: Spawn) -> None:
    queue = PriorityQueue[str](clock=fake_clock)
    results = [spawn(queue.get) for _ in range(3)]
    fake_clock.settle(threads=3)
    queue.shut_down()
    fake_clock.settle()
    assert results == [[None]] * 3


@pytest.mark.rule("WQ-08", "WQ-26")
def test_a_queue_that_was_shut_down_keeps_no_reference_to_its_keys() -> None:
    class Key:
        pass

    queue = PriorityQueue[Key]()
    taken, ready_key = Key(), Key()
    queue.add(taken)
    loan = queue.get()
    assert loan is not None
    queue.add(taken)  # comes first, and is passed over while it is on loan
    queue.add(ready_key)
    other = queue.get()
    assert other is not None
    other.done()
    queue.add(ready_key)
    loan.done()
    traces = [weakref.ref(taken), weakref.ref(ready_key)]
    queue.shut_down()
    del taken, ready_key, loan, other
    gc.collect()
    assert [trace() for trace in traces] == [None, None]


def test_loans_may_be_closed_after_shutdown(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    with lend(queue):
        queue.add("a")
        queue.shut_down()
    assert queue.get() is None


@pytest.mark.rule("WQ-03")
def test_done_without_a_loan_changes_nothing(queue: PriorityQueue[str]) -> None:
    queue.done("never seen")
    queue.add("a")
    queue.done("a")
    assert ready(queue) == [("a", 0)]


def test_a_waiting_worker_gets_a_key_whose_time_comes(
    fake_clock: FakeClock, queue: PriorityQueue[str], spawn: Spawn
) -> None:
    queue.add("a", after=5)
    got = spawn(lambda: lend_waiting(queue))
    fake_clock.settle(threads=2)
    fake_clock.advance(5)
    fake_clock.settle(threads=1)
    assert got == ["a"]


def lend_waiting(queue: PriorityQueue[str]) -> str:
    loan = queue.get()
    assert loan is not None
    with loan as key:
        return key


def test_raised_keys_leave_no_pile_of_dead_entries(queue: PriorityQueue[str]) -> None:
    queue.add("urgent", priority=10**9)
    for priority in range(10_000):
        queue.add("a", priority=priority)
    assert len(queue._buckets) < 100
    assert ready(queue) == [("urgent", 10**9), ("a", 9_999)]


@pytest.mark.rule("WQ-09")
def test_an_unhashable_key_is_refused_where_it_is_added(queue: PriorityQueue[str]) -> None:
    with pytest.raises(TypeError, match="must be hashable, but dict is not"):
        queue.add({})  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match="must be hashable, but dict is not"):
        queue.add({}, rate_limited=True)  # type: ignore[arg-type]  # the point of the test
