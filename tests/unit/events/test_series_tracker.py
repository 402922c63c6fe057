"""What is written and when, without a thread and without a server."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.events.model import EventFacts, EventType, Reference, SeriesSnapshot
from navarchos.events.series_tracker import (
    FINISH_AFTER,
    QUEUE_LIMIT,
    REFRESH_EVERY,
    TRIES,
    EventSeriesTracker,
    RecordResult,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def facts(reason: str = "R", *, name: str = "a") -> EventFacts:
    reference = Reference("v1", "Node", "", name, f"uid-{name}", "1")
    return EventFacts(reference, EventType.NORMAL, reason, reason, "note")


class Scribe:
    """A book and its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.book = EventSeriesTracker(self.now)

    def record(self, event: EventFacts) -> RecordResult:
        return self.book.record(event, at=START + timedelta(seconds=self.now), now=self.now)

    def write(self) -> list[int]:
        """Write all waiting series; return the written counts."""
        counts = []
        while (event := self.book.next(self.now)) is not None:
            counts.append(event.count)
            self.book.written(event)
        return counts

    def take(self) -> SeriesSnapshot:
        event = self.book.next(self.now)
        assert event is not None
        return event


@pytest.fixture
def scribe() -> Scribe:
    return Scribe()


@pytest.mark.rule("EV-15")
def test_first_and_second_are_written_later_ones_only_counted(scribe: Scribe) -> None:
    written = []
    for _ in range(4):
        scribe.record(facts())
        written.append(scribe.write())
    assert written == [[1], [2], [], []]


def test_repeats_before_the_first_write_go_with_it(scribe: Scribe) -> None:
    for _ in range(5):
        scribe.record(facts())
    assert scribe.write() == [5]


@pytest.mark.rule("EV-16")
def test_a_continuing_series_is_refreshed_every_half_hour(scribe: Scribe) -> None:
    written = []
    while scribe.now <= REFRESH_EVERY:
        scribe.record(facts())
        written += scribe.write()
        scribe.now += 60.0
    assert written == [1, 2, 31]


@pytest.mark.rule("EV-16")
def test_an_idle_series_is_written_a_last_time_and_forgotten(scribe: Scribe) -> None:
    for _ in range(3):
        scribe.record(facts())
        scribe.write()
    scribe.now += FINISH_AFTER + 1
    assert scribe.write() == [3]
    scribe.now += FINISH_AFTER + 1
    scribe.write()
    assert scribe.book.next_due() is None
    scribe.record(facts())
    assert scribe.write() == [1]


@pytest.mark.rule("EV-16")
def test_a_single_event_is_forgotten_when_it_is_old(scribe: Scribe) -> None:
    scribe.record(facts())
    scribe.write()
    scribe.now += FINISH_AFTER + 1
    scribe.write()
    assert scribe.book.next_due() is None


@pytest.mark.rule("RT-30")
def test_occurrences_during_a_write_are_kept(scribe: Scribe) -> None:
    scribe.record(facts())
    first = scribe.take()
    scribe.record(facts())
    scribe.record(facts())
    scribe.book.written(first)
    assert scribe.write() == [3]


def test_a_series_that_is_being_written_is_not_returned_again(scribe: Scribe) -> None:
    scribe.record(facts())
    scribe.take()
    scribe.record(facts())
    assert scribe.book.next(scribe.now) is None


@pytest.mark.rule("EV-12")
def test_a_write_without_an_answer_is_tried_again_at_its_time(scribe: Scribe) -> None:
    scribe.record(facts())
    assert scribe.book.failed(scribe.take(), again_at=10.0)
    assert scribe.write() == []
    assert scribe.book.next_due() == 10.0
    scribe.now = 10.0
    assert scribe.write() == [1]


@pytest.mark.rule("EV-12")
def test_twelve_tries_are_enough(scribe: Scribe) -> None:
    scribe.record(facts())
    tries = 1
    while scribe.book.failed(scribe.take(), again_at=scribe.now):
        tries += 1
    assert tries == TRIES
    assert len(scribe.book) == 0


def test_a_failing_event_does_not_hold_up_others(scribe: Scribe) -> None:
    scribe.record(facts("A"))
    scribe.record(facts("B"))
    scribe.book.failed(scribe.take(), again_at=10.0)
    assert scribe.take().facts.reason == "B"


@pytest.mark.rule("EV-01")
def test_an_event_without_room_is_refused(scribe: Scribe) -> None:
    for n in range(QUEUE_LIMIT):
        assert scribe.record(facts(name=f"n{n}")) is RecordResult.QUEUED
    assert scribe.record(facts(name="one-more")) is RecordResult.NO_ROOM
    assert scribe.record(facts(name="n0")) is RecordResult.COUNTED


@pytest.mark.rule("EV-07")
def test_a_repeat_is_known_before_the_limit_is_asked(scribe: Scribe) -> None:
    """So a series costs its object one token, however often it occurs."""
    for _ in range(100):
        scribe.record(facts("R0"))
    fresh = [scribe.record(facts(f"R{n}")) for n in range(1, 26)]
    assert fresh == [RecordResult.QUEUED] * 24 + [RecordResult.FILTERED]
    assert scribe.record(facts("R0")) is RecordResult.COUNTED


@pytest.mark.rule("EV-10")
def test_an_object_that_talks_too_much_is_filtered(scribe: Scribe) -> None:
    outcomes = [scribe.record(facts(f"R{n}")) for n in range(26)]
    assert outcomes == [RecordResult.QUEUED] * 25 + [RecordResult.FILTERED]


@pytest.mark.rule("EV-07")
def test_the_4096_series_used_last_are_remembered(scribe: Scribe) -> None:
    for n in range(4096):
        scribe.record(facts(name=f"n{n}"))
        scribe.write()
    assert scribe.record(facts(name="n0")) is RecordResult.COUNTED
    scribe.write()
    scribe.record(facts(name="one-more"))
    scribe.write()
    assert scribe.record(facts(name="n0")) is RecordResult.COUNTED
    assert scribe.record(facts(name="n1")) is RecordResult.QUEUED


def test_flushing_writes_all_that_the_server_does_not_know(scribe: Scribe) -> None:
    for _ in range(5):
        scribe.record(facts("A"))
        scribe.write()
    scribe.record(facts("B"))
    scribe.book.failed(scribe.take(), again_at=1e9)
    scribe.record(facts("C"))
    scribe.book.flush()
    assert sorted(scribe.write()) == [1, 1, 5]


@pytest.mark.rule("EV-13")
def test_flushing_tries_once(scribe: Scribe) -> None:
    scribe.record(facts())
    scribe.book.flush()
    assert not scribe.book.failed(scribe.take(), again_at=10.0)


def test_clear_returns_the_number_of_lost_series(scribe: Scribe) -> None:
    scribe.record(facts("A"))
    scribe.write()
    scribe.record(facts("B"))
    assert scribe.book.clear() == 1
    assert scribe.book.next_due() is None


@given(
    st.lists(
        st.one_of(
            st.sampled_from("ABC").map(lambda reason: ("record", reason)),
            st.sampled_from([("wrote", ""), ("failed", "")]),
            st.floats(1, 2000).map(lambda seconds: ("wait", seconds)),
        ),
        max_size=60,
    )
)
def test_no_count_is_written_twice_and_the_last_one_is_written(
    steps: list[tuple[str, str | float]],
) -> None:
    """Counts of one object grow; a series is never handed out while it is out."""
    scribe = Scribe()
    stored: dict[str, int] = {}  # by name of the event object
    recorded = failures = 0
    for what, argument in steps:
        if what == "record":
            recorded += scribe.record(facts(str(argument))) in {
                RecordResult.QUEUED,
                RecordResult.COUNTED,
            }
        elif what == "wait":
            scribe.now += float(argument)
        elif (event := scribe.book.next(scribe.now)) is None:
            continue
        elif what == "failed" and failures < TRIES - 1:
            failures += 1
            scribe.book.failed(event, again_at=scribe.now + 10)
        else:
            assert event.count > stored.get(event.name, 0)
            stored[event.name] = event.count
            scribe.book.written(event)
    scribe.book.flush()
    while (event := scribe.book.next(scribe.now)) is not None:
        assert event.count > stored.get(event.name, 0)
        stored[event.name] = event.count
        scribe.book.written(event)
    assert sum(stored.values()) == recorded
