"""The known series of events, and which of them must be written."""

import heapq
import itertools
import re
import uuid
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final

from navarchos.events.model import EventFacts, SeriesSnapshot

__all__ = [
    "FINISH_AFTER",
    "QUEUE_LIMIT",
    "REFRESH_EVERY",
    "TRIES",
    "EventNames",
    "EventSeriesTracker",
    "RecordResult",
    "SpamFilter",
]

QUEUE_LIMIT: Final = 1000
"""Maximum number of events that wait to be written (EV-01)."""

TRIES: Final = 12
"""How often an event is sent before it is dropped (EV-12)."""

FINISH_AFTER: Final = 360.0
"""Seconds without an occurrence after which a series is written and forgotten (EV-16)."""

REFRESH_EVERY: Final = 1800.0
"""Seconds between two writes of a series that continues (EV-16)."""

_MAX_SERIES: Final = 4096
_BURST: Final = 25
_REFILL: Final = 1 / 300
_MAX_OBJECTS: Final = 4096
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME: Final = 253


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class SpamFilter:
    """A token bucket for each key: 25 at once, then one every five minutes (EV-10).

    The 4096 most recently used keys are remembered.

    Threads: for one thread, or guarded by the owner's lock.
    """

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def allow(self, key: Hashable, now: float) -> bool:
        """Take a token for the key; return False if it is empty. `now` is monotonic."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(_BURST, now)
            if len(self._buckets) > _MAX_OBJECTS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        bucket.tokens = min(_BURST, bucket.tokens + (now - bucket.filled_at) * _REFILL)
        bucket.filled_at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


class EventNames:
    """Generates names: `<object>.<hex of Unix nanoseconds>`, or a UUID (EV-02).

    Promises: unique names, even if the clock stands still or is set back.

    Threads: for one thread, or guarded by the owner's lock.
    """

    def __init__(self) -> None:
        self._last = 0

    def name(self, obj: str, at: datetime) -> str:
        """Return a name for an event about the object `obj`."""
        since = at.astimezone(UTC) - _UNIX_EPOCH
        nanoseconds = ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1000
        self._last = max(nanoseconds, self._last + 1)
        name = f"{obj}.{self._last:x}"
        fits = len(name) <= _MAX_NAME and _SUBDOMAIN.fullmatch(name)
        return name if fits else str(uuid.uuid4())


class RecordResult(Enum):
    """The result of recording an event."""

    QUEUED = auto()
    COUNTED = auto()
    FILTERED = auto()
    NO_ROOM = auto()


@dataclass(slots=True, eq=False)
class _Series:
    facts: EventFacts
    name: str
    first_at: datetime
    last_at: datetime
    last_seen: float  # monotonic instant of the last occurrence
    count: int = 1
    written: int = 0  # the count on the server; 0 before the first write
    queued: bool = False  # in _ready, in _waiting, or being written
    failures: int = 0

    @property
    def is_dirty(self) -> bool:
        return self.count > self.written

    def snapshot(self) -> SeriesSnapshot:
        return SeriesSnapshot(
            self.facts, self.name, self.count, self.first_at, self.last_at, self.written > 0
        )


class EventSeriesTracker:
    """Decides which series is written, and when; does not write.

    The first event is written at once. The second turns it into a series and is written at
    once, too. Later occurrences are counted and written every 30 minutes, and when the series
    ends (EV-15, EV-16).

    Threads: every method must be called under the recorder's lock.
    """

    def __init__(self, now: float) -> None:
        self._series: OrderedDict[Hashable, _Series] = OrderedDict()  # idle longest first
        self._ready: deque[_Series] = deque()  # queued; to be written now, in this order
        self._waiting: list[tuple[float, int, _Series]] = []  # queued; a heap by instant
        self._ticket = itertools.count()
        self._spam = SpamFilter()
        self._names = EventNames()
        self._next_finish = now + FINISH_AFTER
        self._next_refresh = now + REFRESH_EVERY
        self._flushing = False

    def __len__(self) -> int:
        """Return the number of series that wait to be written."""
        return len(self._ready) + len(self._waiting)

    def record(self, facts: EventFacts, *, at: datetime, now: float) -> RecordResult:
        """Record an event.

        Args:
            facts: The event.
            at: The wall-clock time, for the event.
            now: The monotonic instant, for limits.
        """
        known = self._series.get(facts.key)
        if known is not None:
            self._repeat(known, at, now)
            return RecordResult.COUNTED
        if not self._spam.allow((facts.subject, facts.type), now):
            return RecordResult.FILTERED
        if len(self) >= QUEUE_LIMIT:
            return RecordResult.NO_ROOM
        name = self._names.name(facts.regarding.name, at)
        series = _Series(facts, name, first_at=at, last_at=at, last_seen=now)
        self._series[facts.key] = series
        self._queue(series)
        self._make_room()
        return RecordResult.QUEUED

    def next(self, now: float) -> SeriesSnapshot | None:
        """Return the series that must be written next, or `None`.

        The caller must report each result with `written`, `failed` or `drop`.
        """
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heapq.heappop(self._waiting)[2])
        self._sweep(now)
        return self._ready.popleft().snapshot() if self._ready else None

    def next_due(self) -> float | None:
        """Return the instant at which `next` may return a series again."""
        due = [self._waiting[0][0]] if self._waiting else []
        if self._series:
            due += [self._next_finish, self._next_refresh]
        return min(due, default=None)

    def written(self, event: SeriesSnapshot) -> None:
        """Mark a snapshot as written. Occurrences since the snapshot stay counted (RT-30)."""
        series = self._series[event.facts.key]
        series.written = event.count
        series.failures = 0
        series.queued = False
        # The second occurrence makes it a series; later ones only increase the count.
        if series.is_dirty and (event.count == 1 or self._flushing):
            self._queue(series)

    def failed(self, event: SeriesSnapshot, *, again_at: float) -> bool:
        """Schedule a retry; return False if there were too many failures."""
        series = self._series[event.facts.key]
        series.failures += 1
        if series.failures >= TRIES or self._flushing:
            self.drop(event)
            return False
        heapq.heappush(self._waiting, (again_at, next(self._ticket), series))
        return True

    def drop(self, event: SeriesSnapshot) -> None:
        """Forget the series; the next event of its kind begins a new one."""
        del self._series[event.facts.key]

    def flush(self) -> None:
        """From now on write every changed series at once, and try it only once."""
        self._flushing = True
        self._ready.extend(series for _, _, series in sorted(self._waiting))
        self._waiting.clear()
        for series in self._series.values():
            if series.is_dirty and not series.queued:
                self._queue(series)

    def clear(self) -> int:
        """Forget all series; return the number of series with unwritten occurrences."""
        lost = sum(series.is_dirty for series in self._series.values())
        self._series.clear()
        self._ready.clear()
        self._waiting.clear()
        return lost

    def _repeat(self, series: _Series, at: datetime, now: float) -> None:
        series.count += 1
        series.last_at = at
        series.last_seen = now
        self._series.move_to_end(series.facts.key)
        if series.count == 2 and not series.queued:
            self._queue(series)

    def _queue(self, series: _Series) -> None:
        series.queued = True
        self._ready.append(series)

    def _sweep(self, now: float) -> None:
        refresh = now >= self._next_refresh
        finish = now >= self._next_finish
        if not refresh and not finish:
            return
        for series in [series for series in self._series.values() if not series.queued]:
            idle = now - series.last_seen > FINISH_AFTER
            if series.is_dirty and (idle or refresh):
                self._queue(series)  # a later sweep forgets it, after it was written
            elif idle:
                del self._series[series.facts.key]
        self._next_finish = now + FINISH_AFTER
        self._next_refresh = now + REFRESH_EVERY if refresh else self._next_refresh

    def _make_room(self) -> None:
        if len(self._series) <= _MAX_SERIES:
            return
        oldest = next((s for s in self._series.values() if not s.queued), None)
        if oldest is not None:
            del self._series[oldest.facts.key]
