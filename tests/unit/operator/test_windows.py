"""Windows: vectors, both rules about weekdays, changes of clocks, and a naive oracle."""

import itertools
import os
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from navarchos.errors import ConfigError
from navarchos.operator.windows import (
    Blackout,
    DayRule,
    Schedule,
    Window,
    parse_days,
    parse_time,
)

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/Los_Angeles",
    "Australia/Lord_Howe",  # its clocks change by half an hour
    "America/Santiago",  # its clocks change at midnight
    "Asia/Kathmandu",
)
CHANGES = (
    ("America/Los_Angeles", "2026-03-08"),
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/Los_Angeles", "2026-11-01"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Santiago", "2026-04-05"),
    ("America/Santiago", "2026-09-06"),
)
"""Days of 2026 on which clocks change."""


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def schedule(days: str, start: str, end: str, zone: str, rule: DayRule = DayRule.START) -> Schedule:
    names = [day for day in days.split(",") if day]
    return Schedule((Window.parse(names, start, end, zone, rule=rule),))


BERLIN, PACIFIC = "Europe/Berlin", "America/Los_Angeles"


@pytest.mark.rule("RB-61")
@pytest.mark.rule("NP-40")
@pytest.mark.parametrize(
    ("days", "start", "end", "zone", "instant", "by_start", "by_moment"),
    [
        ("fri", "22:00", "04:00", "UTC", "2026-06-05T03:00:00Z", False, True),
        ("fri", "22:00", "04:00", "UTC", "2026-06-05T22:00:00Z", True, True),
        ("fri", "22:00", "04:00", "UTC", "2026-06-06T03:00:00Z", True, False),
        ("fri", "22:00", "04:00", "UTC", "2026-06-06T04:00:00.900Z", True, False),
        ("fri", "22:00", "04:00", "UTC", "2026-06-06T04:00:01Z", False, False),
        ("mon,tue,wed,thu", "11:59pm", "00:01am", PACIFIC, "2019-04-05T07:00:00Z", True, False),
        ("mon,tue,wed,fri", "11:59pm", "00:01am", PACIFIC, "2019-04-05T07:00:00Z", False, True),
        ("mon,tue,wed,thu,fri", "9am", "5pm", PACIFIC, "2019-04-04T11:59:00Z", False, False),
        ("mon,tue,wed,thu,fri", "9am", "5pm", PACIFIC, "2019-04-04T19:00:00Z", True, True),
        ("su", "2:30", "3:30", BERLIN, "2026-03-29T01:29:59Z", False, False),
        ("su", "2:30", "3:30", BERLIN, "2026-03-29T01:30:00Z", True, True),
        ("su", "2:30", "3:30", BERLIN, "2026-03-29T01:30:01Z", False, False),
        ("su", "2:00", "2:30", BERLIN, "2026-10-25T00:00:00Z", True, False),
        ("su", "2:00", "2:30", BERLIN, "2026-10-25T01:15:00Z", True, True),
        ("su", "2:00", "2:30", BERLIN, "2026-10-25T01:30:01Z", False, False),
        ("sa", "23:00", "4:00", BERLIN, "2026-10-25T02:59:59Z", True, False),
        ("sa", "23:00", "4:00", BERLIN, "2026-10-25T03:00:01Z", False, False),
    ],
)
def test_both_rules_about_weekdays(
    days: str, start: str, end: str, zone: str, instant: str, *, by_start: bool, by_moment: bool
) -> None:
    assert schedule(days, start, end, zone).is_open(at(instant)) is by_start
    of_plan = schedule(days, start, end, zone, DayRule.MOMENT)
    assert of_plan.is_open(at(instant)) is by_moment


@pytest.mark.rule("RB-60")
@pytest.mark.rule("NP-40")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00", 0),
        ("7", 25200),
        ("15", 54000),
        ("9am", 32400),
        ("09pm", 75600),
        ("12am", 0),
        ("12pm", 43200),
        ("0am", 0),
        ("11:30pm", 84600),
        ("00:01am", 60),
        ("23:59:59", 86399),
    ],
)
def test_times_of_day(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.rule("RB-60")
@pytest.mark.rule("NP-40")
@pytest.mark.parametrize(
    "text", ["24:00", "3PM", "9:5", "3:04pm", "9:05 am", "25", "13pm", "", "9:60", "9am\n", "٣"]
)
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_time(text)


@pytest.mark.rule("RB-60")
@pytest.mark.rule("NP-40")
def test_days_have_four_forms_in_any_case() -> None:
    assert parse_days(["0", "MO", "Tue", "wednesday", "tH", "FRI", "saturDAY"]) == set(range(7))
    for text in ("7", "s", "sund", "", "mond", "tues", "\u017fu", "1\n"):
        with pytest.raises(ConfigError, match="days"):
            parse_days([text])


@pytest.mark.rule("RB-60")
@pytest.mark.rule("NP-40")
def test_invalid_windows_are_refused_with_the_name_of_the_field() -> None:
    with pytest.raises(ConfigError, match=r"end='09:00': it must differ from start"):
        Window.parse((), "9am", "09:00")
    with pytest.raises(ConfigError, match="timeZone='Mars/Olympus'"):
        Window.parse((), "9am", "10am", "Mars/Olympus")
    with pytest.raises(ConfigError, match=r"timeZone='\.\./etc/passwd'"):
        Window.parse((), "9am", "10am", "../etc/passwd")
    with pytest.raises(ConfigError, match="start='x'"):
        Window.parse((), "x", "10am")


@pytest.mark.rule("RB-60")
@pytest.mark.rule("NP-40")
def test_defaults_are_every_day_and_all_day() -> None:
    always = Schedule((Window.parse(),))
    assert always.is_open(at("2026-06-05T23:59:59.999Z"))
    assert always.next_close(at("2026-06-05T00:00:00Z")) is None
    # A published Plan without days never allows a start.
    never = Schedule((Window.parse(rule=DayRule.MOMENT),))
    assert not never.is_open(at("2026-06-05T12:00:00Z"))
    assert never.next_open(at("2026-06-05T12:00:00Z")) is None


@pytest.mark.rule("NP-40")
def test_the_next_opening_is_an_instant_and_is_shown_in_the_zone_of_the_window() -> None:
    night = schedule("fri", "22:00", "04:00", BERLIN)
    opening = night.next_open(at("2026-06-04T00:00:00Z"))
    assert opening is not None
    assert opening == at("2026-06-05T20:00:00Z")
    assert night.show(opening) == "2026-06-05 22:00:00 Europe/Berlin"
    assert night.next_open(opening) == opening
    assert night.next_close(opening) == at("2026-06-06T02:00:01Z")
    assert night.next_close(at("2026-06-04T00:00:00Z")) == at("2026-06-04T00:00:00Z")


@pytest.mark.rule("NP-40")
def test_windows_that_touch_or_overlap_close_together() -> None:
    both = Schedule((Window.parse((), "9:00", "11:59:59"), Window.parse((), "12:00", "13:00")))
    assert both.next_close(at("2026-06-05T10:00:00Z")) == at("2026-06-05T13:00:01Z")


@pytest.mark.rule("NP-41")
def test_blackouts_move_openings_and_closings() -> None:
    seen = Schedule(
        (Window.parse((), "9:00", "17:00"),),
        (
            Blackout(at("2026-06-05T08:00:00Z"), at("2026-06-05T12:00:00Z")),
            Blackout(at("2026-06-05T11:00:00Z"), at("2026-06-06T09:00:00Z")),
            Blackout(at("2026-06-06T15:00:00Z"), at("2026-06-06T16:00:00Z")),
        ),
    )
    assert not seen.is_open(at("2026-06-05T10:00:00Z"))
    assert seen.next_open(at("2026-06-05T08:30:00Z")) == at("2026-06-06T09:00:00Z")
    assert seen.is_open(at("2026-06-06T09:00:00Z"))  # the end is not part of a blackout
    assert seen.next_close(at("2026-06-06T10:00:00Z")) == at("2026-06-06T15:00:00Z")
    assert seen.next_open(at("2026-06-06T15:30:00Z")) == at("2026-06-06T16:00:00Z")


@pytest.mark.rule("NP-41")
def test_a_blackout_without_windows() -> None:
    seen = Schedule((), (Blackout(at("2026-06-05T08:00:00Z"), at("2026-06-05T12:00:00Z")),))
    assert seen.next_close(at("2026-06-01T00:00:00Z")) == at("2026-06-05T08:00:00Z")
    assert seen.next_open(at("2026-06-05T08:00:00Z")) == at("2026-06-05T12:00:00Z")
    assert seen.next_close(at("2026-07-01T00:00:00Z")) is None


@pytest.mark.rule("NP-40")
@pytest.mark.parametrize("end", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-11:00"])
@pytest.mark.parametrize(
    "windows",
    [(), (Window.parse(("mon",), "22:00", "4:00", "Pacific/Auckland"),)],
    ids=["always", "mondays"],
)
def test_a_blackout_up_to_the_end_of_the_calendar_never_opens(
    end: str, windows: tuple[Window, ...]
) -> None:
    """The date after it does not exist: it must not fail, and stop all rollouts."""
    seen = Schedule(windows, (Blackout(at("2026-01-01T00:00:00Z"), at(end)),))
    assert not seen.is_open(at("2026-06-05T08:00:00Z"))
    assert seen.next_open(at("2026-06-05T08:00:00Z")) is None
    assert seen.next_close(at("2026-06-05T08:00:00Z")) == at("2026-06-05T08:00:00Z")


MINUTE = timedelta(minutes=1)


class Oracle:
    """Looks up local times minute by minute, instead of computing offsets.

    It knows the local time of each minute from a list. A window opens at the first minute that
    shows its start, and closes after the last minute that shows its end. If no minute shows a
    time, clocks skipped it: it is as far behind the gap as it would have been inside it.
    """

    def __init__(self, zone: str, first: date, days: int) -> None:
        info = ZoneInfo(zone)
        begin = datetime.combine(first - timedelta(days=3), time(), UTC)
        self.minutes = [begin + n * MINUTE for n in range((days + 6) * 1440)]
        self.shown: dict[datetime, list[datetime]] = {}
        for minute in self.minutes:
            local = minute.astimezone(info).replace(tzinfo=None)
            self.shown.setdefault(local, []).append(minute)
        self.dates = sorted({local.date() for local in self.shown})[1:-1]

    def find(self, local: datetime, which: int) -> datetime:
        if local in self.shown:
            return self.shown[local][which]
        before = local
        while before not in self.shown:
            before -= MINUTE
        # The clocks showed `before`, and then the end of the gap.
        return self.shown[before][which] + (local - before)

    def open_minutes(self, days: set[int], start: int, end: int) -> set[datetime]:
        """Return the minutes that are inside a window, which starts and ends at minutes."""
        found: set[datetime] = set()
        for day in self.dates:
            if day.isoweekday() % 7 not in days:
                continue
            midnight = datetime.combine(day, time())
            last = midnight if start < end else midnight + timedelta(days=1)
            opens = self.find(midnight + start * MINUTE, 0)
            closes = self.find(last + end * MINUTE, -1)
            while opens <= closes:
                found.add(opens)
                opens += MINUTE
        return found


def compare(oracle: Oracle, zone: str, window: tuple[set[int], int, int]) -> None:
    """Compare all minutes of the oracle's days with a window."""
    weekdays, start, end = window
    wanted = oracle.open_minutes(*window)
    seen = schedule(
        ",".join(map(str, weekdays)), f"{start // 60}:{start % 60:02}", _clock(end), zone
    )
    margin = 3 * 1440
    inside = oracle.minutes[margin:-margin]
    opened = {minute for minute in inside if seen.is_open(minute)}
    assert opened == wanted & set(inside)
    edges = [minute for minute in inside if (minute in wanted) != (minute - MINUTE in wanted)]
    for before, edge in itertools.pairwise([inside[0], *edges]):
        if edge in wanted:
            assert seen.next_open(before if before not in wanted else edge - MINUTE) == edge
        else:
            # The last second of the minute `end` is its first one.
            assert seen.next_close(edge - MINUTE) == edge - MINUTE + timedelta(seconds=1)


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"


windows = st.tuples(
    st.sets(st.integers(0, 6), min_size=1),
    st.integers(0, 1439),
    st.integers(0, 1439),
).filter(lambda window: window[1] != window[2])


@pytest.mark.rule("RB-62")
@pytest.mark.rule("NP-40")
@pytest.mark.parametrize("zone", ZONES)
@settings(max_examples=8)
@given(day=st.dates(date(2026, 1, 5), date(2026, 12, 20)), window=windows)
def test_every_minute_of_some_days_equals_the_oracle(
    zone: str, day: date, window: tuple[set[int], int, int]
) -> None:
    compare(Oracle(zone, day, 2), zone, window)


@pytest.mark.rule("RB-62")
@pytest.mark.rule("NP-40")
@pytest.mark.parametrize(("zone", "change"), CHANGES)
@pytest.mark.parametrize(
    ("start", "end"),
    [(90, 150), (120, 180), (150, 210), (1380, 240), (0, 30), (30, 0), (130, 170), (110, 90)],
)
def test_changes_of_clocks_equal_the_oracle(zone: str, change: str, start: int, end: int) -> None:
    first = date.fromisoformat(change) - timedelta(days=1)
    compare(Oracle(zone, first, 3), zone, ({0, 6}, start, end))


@pytest.mark.rule("RB-62")
@pytest.mark.rule("NP-40")
@pytest.mark.skipif(
    int(os.environ.get("NAVARCHOS_SEEDS", "0")) < 10000, reason="takes minutes: make nightly"
)
@pytest.mark.parametrize("zone", ZONES)
def test_every_minute_of_a_year_equals_the_oracle(zone: str) -> None:
    oracle = Oracle(zone, date(2026, 1, 1), 365)
    for window in (({0, 5, 6}, 1320, 240), ({0, 1, 2, 3, 4, 5, 6}, 150, 180), ({0}, 0, 1439)):
        compare(oracle, zone, window)
