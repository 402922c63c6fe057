import threading
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from navarchos.testing import FakeClock
from navarchos.workqueue import DelayingQueue, ItemExponential, PriorityQueue, RateLimitingQueue


def ready(queue: DelayingQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        loan = queue.get(timeout=0)
        assert loan is not None
        with loan as key:
            taken.append(key)
    return taken


@pytest.fixture
def queue(fake_clock: FakeClock) -> Iterator[DelayingQueue[str]]:
    queue = DelayingQueue[str](name="q", clock=fake_clock)
    yield queue
    queue.shut_down()


@pytest.mark.rule("WQ-10")
@pytest.mark.rule("WQ-12")
def test_a_delayed_key_appears_at_its_time_and_not_before(
    fake_clock: FakeClock, queue: DelayingQueue[str]
) -> None:
    queue.add_after("a", 5)
    fake_clock.settle()
    assert len(queue) == 0
    fake_clock.advance(4.999)
    assert ready(queue) == []
    fake_clock.advance(0.001)
    assert ready(queue) == ["a"]


@pytest.mark.rule("WQ-10")
@pytest.mark.parametrize("delay", [0.0, -1.0, float("nan")])
def test_no_delay_means_now(queue: DelayingQueue[str], delay: float) -> None:
    queue.add_after("a", delay)
    assert ready(queue) == ["a"]


@pytest.mark.rule("WQ-10")
def test_delayed_keys_come_in_the_order_of_their_times(
    fake_clock: FakeClock, queue: DelayingQueue[str]
) -> None:
    for key, delay in (("c", 3), ("a", 1), ("b", 2), ("a2", 1)):
        queue.add_after(key, delay)
    fake_clock.settle()
    fake_clock.advance(10)
    assert ready(queue) == ["a", "a2", "b", "c"]


@pytest.mark.rule("WQ-11")
@pytest.mark.parametrize("delays", [(10, 5), (5, 10)])
def test_the_earlier_of_two_times_counts_once(
    fake_clock: FakeClock, queue: DelayingQueue[str], delays: tuple[float, float]
) -> None:
    for delay in delays:
        queue.add_after("a", delay)
    fake_clock.settle()
    fake_clock.advance(5)
    assert ready(queue) == ["a"]
    fake_clock.advance(20)
    assert ready(queue) == []


@pytest.mark.rule("RT-17")
def test_a_plain_add_does_not_cancel_a_key_that_waits(
    fake_clock: FakeClock, queue: DelayingQueue[str]
) -> None:
    queue.add_after("a", 5)
    queue.add("a")
    assert ready(queue) == ["a"]
    fake_clock.settle()
    fake_clock.advance(5)
    assert ready(queue) == ["a"]


def test_an_infinite_delay_only_ends_with_the_queue(
    fake_clock: FakeClock, queue: DelayingQueue[str]
) -> None:
    queue.add_after("a", float("inf"))
    fake_clock.settle()
    fake_clock.advance(1e9)
    assert ready(queue) == []


def test_one_thread_waits_for_any_number_of_keys(
    new_threads: Callable[[], list[str]], queue: DelayingQueue[str]
) -> None:
    for number in range(5_000):
        queue.add_after(f"key-{number}", 3_600 - number % 100)
    assert new_threads() == ["nav-delays-q"]


def test_overtaken_times_do_not_pile_up(queue: DelayingQueue[str]) -> None:
    for step in range(10_000):
        queue.add_after("a", 1e6 - step)
    assert len(queue._delays._heap) < 100


def test_only_the_priority_of_a_key_that_waits_may_change(fake_clock: FakeClock) -> None:
    queue = PriorityQueue[str](clock=fake_clock)
    queue.add("a", after=5)
    for priority in range(200):
        queue.add("a", after=9, priority=priority)
    assert len(queue._delays._heap) == 1
    fake_clock.settle()
    fake_clock.advance(5)
    loan = queue.get(timeout=0)
    assert loan is not None
    assert loan.priority == 199
    queue.shut_down()


class CountingClock(FakeClock):
    """Counts the waits: each is one more run of a thread."""

    waits = 0

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        self.waits += 1
        return super().wait(condition, timeout)


@pytest.mark.rule("WQ-13")
@pytest.mark.parametrize("kind", [DelayingQueue, PriorityQueue])
def test_keys_that_wait_cost_no_processor(kind: type) -> None:
    clock = CountingClock()
    queue = kind(clock=clock)
    for number in range(10_000):
        queue.add_after(number, 3_600 + number)
    clock.settle(threads=1)
    waits = clock.waits
    assert waits <= 2  # one per earliest time, not one per key
    clock.advance(3_599)
    assert clock.waits == waits
    clock.advance(1)
    assert (clock.waits, len(queue)) == (waits + 1, 1)
    queue.shut_down()


@pytest.mark.parametrize("kind", [DelayingQueue, PriorityQueue])
def test_a_key_that_waits_costs_less_than_250_bytes(fake_clock: FakeClock, kind: type) -> None:
    keys = [f"key-{number}" for number in range(20_000)]
    queue = kind(clock=fake_clock)
    tracemalloc.start()
    try:
        for number, key in enumerate(keys):
            queue.add_after(key, 3_600 + number)
        now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now / len(keys) < 250
    queue.shut_down()


@pytest.mark.rule("CT-03")
def test_a_queue_without_delays_has_no_thread(new_threads: Callable[[], list[str]]) -> None:
    queue = DelayingQueue[str](name="q")
    queue.add("a")
    assert new_threads() == []
    queue.shut_down()


@pytest.mark.rule("WQ-12")
@pytest.mark.rule("WQ-13")
@pytest.mark.rule("RT-33")
@pytest.mark.parametrize("how", ["shut_down", "shut_down_with_drain"])
def test_any_shutdown_drops_waiting_keys_and_ends_the_thread(
    new_threads: Callable[[], list[str]], fake_clock: FakeClock, how: str
) -> None:
    queue = DelayingQueue[str](clock=fake_clock)
    queue.add_after("a", 5)
    fake_clock.settle()
    getattr(queue, how)()
    assert new_threads() == []
    fake_clock.advance(10)
    assert queue.get() is None
    queue.add_after("b", 1)
    queue.add_after("b", 0)
    assert queue.get() is None


@pytest.mark.rule("WQ-09")
@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_an_unhashable_key_is_refused_where_it_is_added(
    queue: DelayingQueue[str], delay: float
) -> None:
    with pytest.raises(TypeError, match="must be hashable, but list is not"):
        queue.add_after(["a"], delay)  # type: ignore[arg-type]  # the point of the test


@pytest.mark.rule("WQ-20")
def test_a_limited_key_waits_as_long_as_the_limiter_says(fake_clock: FakeClock) -> None:
    queue = RateLimitingQueue[str](limiter=ItemExponential(1.0, 60.0), clock=fake_clock)
    for expected in (1, 2, 4):
        queue.add_rate_limited("a")
        fake_clock.settle()
        fake_clock.advance(expected - 0.5)
        assert ready(queue) == []
        fake_clock.advance(0.5)
        assert ready(queue) == ["a"]
    assert queue.num_requeues("a") == 3
    queue.shut_down()


@pytest.mark.rule("WQ-20")
def test_forgetting_a_key_leaves_it_in_the_queue(fake_clock: FakeClock) -> None:
    queue = RateLimitingQueue[str](limiter=ItemExponential(1.0, 60.0), clock=fake_clock)
    queue.add_rate_limited("a")
    queue.forget("a")
    assert queue.num_requeues("a") == 0
    fake_clock.settle()
    fake_clock.advance(1)
    assert ready(queue) == ["a"]
    queue.shut_down()


@pytest.mark.rule("WQ-18")
def test_the_default_limiter_starts_at_five_milliseconds() -> None:
    queue = RateLimitingQueue[str]()
    assert queue.num_requeues("a") == 0
    assert queue._limiter.when("a") == 0.005
    assert queue._limiter.when("a") == 0.01
