"""Names of events."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from navarchos.events.series_tracker import EventNames

AT = datetime(2026, 1, 2, 15, 4, 5, 678, tzinfo=UTC)


@pytest.mark.rule("EV-02")
def test_a_name_is_the_object_and_the_time_in_hex() -> None:
    name = EventNames().name("node-1.zone", AT)
    stem, _, digits = name.rpartition(".")
    assert stem == "node-1.zone"
    assert int(digits, 16) == int(AT.timestamp()) * 10**9 + 678_000


@pytest.mark.rule("EV-02")
@pytest.mark.parametrize("obj", ["system:node", "UPPER", "x" * 250])
def test_a_name_that_would_not_fit_is_a_uuid(obj: str) -> None:
    assert uuid.UUID(EventNames().name(obj, AT)).version == 4


def test_no_name_comes_twice_when_the_clock_stands_or_steps_back() -> None:
    names = EventNames()
    times = [AT, AT, AT - timedelta(hours=1), AT]
    assert len({names.name("x", at) for at in times}) == len(times)
