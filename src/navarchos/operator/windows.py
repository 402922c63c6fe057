"""Time windows: when nodes may start. The only implementation of windows (NP-40). Pure.

A window has days, two times of day and a time zone. It becomes intervals of instants, so that a
change of clocks needs no special case anywhere else.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final, assert_never
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from navarchos.errors import ConfigError

__all__ = [
    "ALWAYS",
    "DAY_PATTERN",
    "TIME_PATTERN",
    "Blackout",
    "DayRule",
    "Schedule",
    "Window",
    "parse_days",
    "parse_time",
]

DAY_PATTERN: Final = (
    "(?i)^([0-6]|su(n(day)?)?|mo(n(day)?)?|tu(e(sday)?)?|we(d(nesday)?)?|th(u(rsday)?)?"
    "|fr(i(day)?)?|sa(t(urday)?)?)$"
)
"""The names of a day: 0 (Sunday) to 6, two letters, three, or the name."""

TIME_PATTERN: Final = (
    "^((0?[0-9]|1[0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9])?)?|(0?[0-9]|1[0-2])(am|pm)"
    "|(0[0-9]|1[0-2]):[0-5][0-9](am|pm))$"
)
"""The forms of a time of day: 15:04, 15:04:05, 15, 03:04pm, 03pm, 3pm."""

_DAY_NAMES: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_EVERY_DAY: Final = frozenset(range(7))
_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)

_REACH: Final = 3
"""Days before and after an instant whose windows can contain it: a window lasts at most a day,
and local time differs from UTC by at most a day."""

_WEEK: Final = 8
"""Days within which a weekly window opens again; one that stays open for so long never closes.

One more than a week, because a change of clocks can remove a window of a few minutes.
"""


class DayRule(StrEnum):
    """Which weekday decides whether a moment is inside a window."""

    START = "Start"
    """The day on which the window starts: `fri 22:00-04:00` is the night after Friday."""
    MOMENT = "Moment"
    """The day of the moment: `fri 22:00-04:00` is early and late Friday. For published Plans."""


def parse_days(days: Iterable[str]) -> frozenset[int]:
    """Return the days as numbers from 0 (Sunday); empty if none is named.

    Raises:
        ConfigError: A text is not the name of a day.
    """
    found = set()
    for index, text in enumerate(days):
        if not re.fullmatch(DAY_PATTERN, text, re.ASCII):
            allowed = "it must be 0 (Sunday) to 6, or the name of a day in two or three letters"
            raise ConfigError(f"days[{index}]", text, f"{allowed} or in full")
        is_number = text.isdigit()
        found.add(int(text) if is_number else _day_number(text.lower()))
    return frozenset(found)


def _day_number(text: str) -> int:
    return next(number for number, name in enumerate(_DAY_NAMES) if name.startswith(text))


def parse_time(text: str, *, field: str = "time") -> int:
    """Return a time of day in seconds after midnight.

    Args:
        text: The time, in one of the forms of `TIME_PATTERN`.
        field: What an error calls the text.

    Raises:
        ConfigError: The text has none of these forms.
    """
    if not re.fullmatch(TIME_PATTERN, text, re.ASCII):
        raise ConfigError(field, text, "it must be a time such as 15:04, 15:04:05, 15, 3pm")
    digits = text.removesuffix("am").removesuffix("pm")
    hour, minute, second = (*(int(part) for part in digits.split(":")), 0, 0)[:3]
    if digits != text:
        hour = hour % 12 + (12 if text.endswith("pm") else 0)
    return hour * 3600 + minute * 60 + second


Interval = tuple[datetime, datetime]
"""The first instant of an open window, and the first instant after it. In UTC."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that opens every week. `Window.parse` validates it."""

    days: frozenset[int]
    """0 is Sunday."""
    start: int
    """Seconds after midnight."""
    end: int
    """Seconds after midnight; the second is included."""
    zone: ZoneInfo
    rule: DayRule = DayRule.START

    @classmethod
    def parse(
        cls,
        days: Sequence[str] = (),
        start: str = "",
        end: str = "",
        time_zone: str = "",
        *,
        rule: DayRule = DayRule.START,
    ) -> "Window":
        """Parse a window.

        Args:
            days: Names of days. Without days: every day with `DayRule.START`, and no day with
                `DayRule.MOMENT`.
            start: The time at which it opens; 0:00 if empty.
            end: The last second in which it is open; 23:59:59 if empty. If it is before `start`,
                the window ends on the next day.
            time_zone: An IANA name; UTC if empty.
            rule: Which weekday counts.

        Raises:
            ConfigError: A text is invalid, the system does not know the time zone, or start and
                end are equal.
        """
        begins = parse_time(start or "0:00", field="start")
        ends = parse_time(end or "23:59:59", field="end")
        if begins == ends:
            raise ConfigError("end", end, "it must differ from start")
        found = parse_days(days)
        if not found and rule is DayRule.START:
            found = _EVERY_DAY
        return cls(found, begins, ends, _zone(time_zone or "UTC"), rule)

    def intervals(self, day: date) -> Iterator[Interval]:
        """Yield the intervals that belong to a local date, in order."""
        if (day.isoweekday() % 7) not in self.days:
            return
        match self.rule:
            case DayRule.START:
                last = day if self.start < self.end else day + _DAY
                opens = _instant(_local(day, self.start), self.zone, is_end=False)
                closes = _instant(_local(last, self.end), self.zone, is_end=True) + _SECOND
                spans = [(opens, closes)]
            case DayRule.MOMENT:
                spans = list(self._spans_of_moment(day))
            case _:
                assert_never(self.rule)
        yield from (span for span in spans if span[0] < span[1])

    def _spans_of_moment(self, day: date) -> Iterator[Interval]:
        """Yield what a comparison of local times accepts of a date with one of our weekdays.

        A window past midnight is the part before `end` and the part after `start`, and each is
        24 hours long at most, whatever the clocks do.
        """
        midnight, following = (
            _instant(_local(each, 0), self.zone, is_end=False) for each in (day, day + _DAY)
        )
        start = _go_instant(_local(day, self.start), self.zone)
        after_end = _go_instant(_local(day, self.end), self.zone) + _SECOND
        if self.start < self.end:
            spans = [(start, after_end)]
        else:
            spans = [(start - _DAY, after_end), (max(start, after_end), after_end + _DAY)]
        for opens, closes in spans:
            yield max(opens, midnight), min(closes, following)


@dataclass(frozen=True, slots=True)
class Blackout:
    """A time in which no node starts: from the first instant to before the last."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows and blackouts together. Without windows it is open outside the blackouts.

    All instants have a time zone. Results are in UTC: Python finds a repeated local time unequal
    to the same instant in another zone.
    """

    windows: tuple[Window, ...] = ()
    blackouts: tuple[Blackout, ...] = ()

    @property
    def is_always_open(self) -> bool:
        """Whether there is neither a window nor a blackout."""
        return not self.windows and not self.blackouts

    def is_open(self, at: datetime) -> bool:
        """Return whether an instant is inside a window and outside all blackouts."""
        if any(blackout.start <= at < blackout.end for blackout in self.blackouts):
            return False
        return not self.windows or any(
            opens <= at < closes for opens, closes in _intervals(self.windows, at, days=_REACH)
        )

    def next_open(self, at: datetime) -> datetime | None:
        """Return the first instant from `at` at which it is open; `at` itself if it is open now.

        `None` if it never opens: a blackout up to the last years of the calendar has no end.
        """
        found: datetime | None = at
        while found is not None and found < _END_OF_TIME:  # mutant: blackouts-without-end
            opening = self._next_window(found)
            if opening is None:
                return None
            covering = [b.end for b in self.blackouts if b.start <= opening < b.end]
            if not covering:
                return opening
            found = max(covering)
        return None

    def next_close(self, at: datetime) -> datetime | None:
        """Return the first instant from `at` at which it is closed; `at` itself if it is now.

        `None` if it is open for more than a week, so that nothing depends on its end.
        """
        if not self.is_open(at):
            return at
        starts = [blackout.start for blackout in self.blackouts if blackout.start > at]
        closing = self._end_of_window(at)
        return min([*starts, *([] if closing is None else [closing])], default=None)

    def _next_window(self, at: datetime) -> datetime | None:
        if not self.windows:
            return at.astimezone(UTC)
        for opens, closes in _intervals(self.windows, at, days=_WEEK * 2):
            if closes > at:
                return max(at.astimezone(UTC), opens)
        return None

    def show(self, instant: datetime) -> str:
        """Return an instant as text, in the zone of the first window."""
        zone = self.windows[0].zone if self.windows else ZoneInfo("UTC")
        return f"{instant.astimezone(zone):%Y-%m-%d %H:%M:%S} {zone.key}"

    def _end_of_window(self, at: datetime) -> datetime | None:
        """Return when the windows that are open now are all closed."""
        end = at
        for opens, closes in _intervals(self.windows, at, days=_WEEK + _REACH):
            if opens <= end < closes:
                end = closes
        return None if not self.windows or end - at > _WEEK * _DAY else end


_END_OF_TIME: Final = datetime(9990, 1, 1, tzinfo=UTC)
"""Later instants have no date in some zones, or no following weeks."""

ALWAYS: Final = Schedule()
"""Open at any time."""


def _intervals(windows: Iterable[Window], at: datetime, *, days: int) -> list[Interval]:
    """Return the intervals around an instant and on the following days, sorted."""
    found: list[Interval] = []
    for window in windows:
        today = at.astimezone(window.zone).date()
        for offset in range(-_REACH, days + 1):
            found.extend(_intervals_of_day(window, today + timedelta(days=offset)))
    return sorted(found)


@lru_cache(maxsize=4096)
def _intervals_of_day(window: Window, day: date) -> tuple[Interval, ...]:
    # Admission asks about the same few days again and again.
    return tuple(window.intervals(day))


def _local(day: date, seconds: int) -> datetime:
    """Return a local time, without a zone."""
    return datetime.combine(day, time()) + timedelta(seconds=seconds)


def _instant(local: datetime, zone: ZoneInfo, *, is_end: bool) -> datetime:
    """Return the instant of a local time (RB-62).

    A repeated local time is its first occurrence for a start, its second for an end. A skipped
    local time moves forward by the gap: it is read with the offset before the change.
    """
    first, second = local.replace(tzinfo=zone), local.replace(tzinfo=zone, fold=1)
    is_skipped = _offset(first) < _offset(second)
    # mutant: repeated-hour-ends-early
    chosen = second if is_end and not is_skipped else first
    return chosen.astimezone(UTC)


def _go_instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant that Go's `time.Date` gives a local time.

    The offset in force at the same digits read as UTC; if that leads to another offset's time,
    the offset in force there.
    """
    digits = local.replace(tzinfo=UTC)
    guess = digits - _offset(digits.astimezone(zone))
    return digits - _offset(guess.astimezone(zone))


def _offset(moment: datetime) -> timedelta:
    offset = moment.utcoffset()
    assert offset is not None  # the moment has a time zone
    return offset


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        rule = "it must be an IANA time zone that this system knows, such as Europe/Berlin"
        raise ConfigError("timeZone", name, rule) from error
