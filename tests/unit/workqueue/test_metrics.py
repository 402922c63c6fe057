import pytest

from navarchos.instrument import Instruments
from navarchos.testing import FakeClock
from navarchos.workqueue import DelayingQueue, PriorityQueue, WorkQueue


class Reader:
    """Reads samples of one queue; None if the series does not exist."""

    def __init__(self) -> None:
        self.instruments = Instruments()

    def __call__(self, name: str, **labels: str) -> float | None:
        labels = {"name": "q", "controller": "q", **labels}
        return self.instruments.registry.get_sample_value(f"workqueue_{name}", labels)


@pytest.fixture
def read() -> Reader:
    return Reader()


FAMILIES = (
    "adds_total",
    "retries_total",
    "queue_duration_seconds_count",
    "work_duration_seconds_count",
    "unfinished_work_seconds",
    "longest_running_processor_seconds",
)


@pytest.mark.rule("MT-01")
@pytest.mark.parametrize("kind", [WorkQueue, PriorityQueue])
def test_every_series_exists_at_zero_before_the_first_key(read: Reader, kind: type) -> None:
    kind(name="q", instruments=read.instruments)
    assert [read(name) for name in FAMILIES] == [0] * len(FAMILIES)
    assert read("depth", priority="0" if kind is PriorityQueue else "") == 0


@pytest.mark.rule("MT-01")
def test_durations_are_counted_in_decades_from_ten_nanoseconds(read: Reader) -> None:
    WorkQueue[str](name="q", instruments=read.instruments)
    for bound in ("1e-08", "1e-05", "1.0", "1000.0"):
        assert read("queue_duration_seconds_bucket", le=bound) == 0


@pytest.mark.rule("WQ-30")
def test_a_queue_without_a_name_counts_nothing(read: Reader) -> None:
    WorkQueue[str](instruments=read.instruments)
    assert list(read.instruments.registry.collect()) == []


@pytest.mark.rule("WQ-29")
def test_a_loan_is_measured_from_the_first_accepted_add_to_done(
    fake_clock: FakeClock, read: Reader
) -> None:
    queue = WorkQueue[str](name="q", clock=fake_clock, instruments=read.instruments)
    queue.add("a")
    fake_clock.advance(3)
    queue.add("a")
    assert (read("adds_total"), read("depth", priority="")) == (1, 1)
    loan = queue.get()
    assert loan is not None
    assert read("depth", priority="") == 0
    assert read("queue_duration_seconds_sum") == 3
    fake_clock.advance(2)
    queue.add("a")
    queue.add("a")
    assert (read("adds_total"), read("depth", priority="")) == (2, 1)
    assert read("unfinished_work_seconds") == 2
    assert read("longest_running_processor_seconds") == 2
    fake_clock.advance(1)
    loan.done()
    assert read("work_duration_seconds_sum") == 3
    assert read("unfinished_work_seconds") == 0
    assert read("longest_running_processor_seconds") == 0
    queue.get()
    # Waiting began with the add during the loan.
    assert read("queue_duration_seconds_sum") == 3 + 1


@pytest.mark.rule("WQ-29")
def test_running_loans_are_summed_and_the_oldest_is_shown(
    fake_clock: FakeClock, read: Reader
) -> None:
    queue = WorkQueue[str](name="q", clock=fake_clock, instruments=read.instruments)
    for key in ("a", "b"):
        queue.add(key)
        queue.get()
        fake_clock.advance(10)
    assert read("unfinished_work_seconds") == 30
    assert read("longest_running_processor_seconds") == 20


@pytest.mark.rule("WQ-14")
def test_every_delayed_add_counts_as_a_retry(fake_clock: FakeClock, read: Reader) -> None:
    queue = DelayingQueue[str](name="q", clock=fake_clock, instruments=read.instruments)
    queue.add_after("a", 5)
    queue.add_after("a", 0)
    assert (read("retries_total"), read("adds_total")) == (2, 1)
    queue.shut_down()
    queue.add_after("a", 5)
    assert read("retries_total") == 2


@pytest.mark.rule("WQ-29")
def test_a_key_with_priority_counts_as_added_when_it_becomes_ready(
    fake_clock: FakeClock, read: Reader
) -> None:
    queue = PriorityQueue[str](name="q", clock=fake_clock, instruments=read.instruments)
    queue.add("a", after=5, priority=3)
    assert (read("adds_total"), read("retries_total")) == (0, 1)
    queue.add("b")
    assert (read("adds_total"), read("retries_total")) == (1, 1)
    fake_clock.settle()
    fake_clock.advance(5)
    assert (read("adds_total"), read("depth", priority="3")) == (2, 1)
    queue.get()
    assert (read("depth", priority="3"), read("depth", priority="0")) == (0, 1)
    assert read("queue_duration_seconds_sum") == 0
    queue.shut_down()
    assert read("depth", priority="0") == 0


@pytest.mark.rule("WQ-29")
def test_a_raised_key_moves_between_depths(read: Reader) -> None:
    queue = PriorityQueue[str](name="q", instruments=read.instruments)
    queue.add("a", priority=-100)
    queue.add("a")
    assert (read("depth", priority="-100"), read("depth", priority="0")) == (0, 1)
    assert read("adds_total") == 1


@pytest.mark.rule("WQ-31")
def test_priorities_beyond_the_limit_share_one_label(read: Reader) -> None:
    queue = PriorityQueue[str](name="q", instruments=read.instruments)
    for priority in range(40):
        queue.add(f"key-{priority}", priority=priority)
    assert read("depth", priority="24") == 1
    assert read("depth", priority="25") is None
    assert read("depth", priority="exceeded_cardinality_limit") == 15
    for _ in range(40):
        queue.get()
    assert read("depth", priority="exceeded_cardinality_limit") == 0
