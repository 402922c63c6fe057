"""A clock that stands still until a test moves it."""

import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from navarchos.threads import THREAD_PREFIX

__all__ = ["FakeClock"]

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SETTLE_LIMIT: Final = 30.0


@dataclass(slots=True, eq=False)
class _Waiter:
    condition: threading.Condition
    deadline: float | None
    fired: bool = False


class _ThreadSnapshot(NamedTuple):
    """The state of all threads; two snapshots are equal if no thread ran in between."""

    waits: int
    parked: int
    busy: tuple[str, ...]


class FakeClock:
    """Virtual time for tests: `advance()` moves it and wakes the threads that are due.

    A wait with a timeout ends when virtual time reaches its deadline, or when its
    condition is notified. Real time has no effect.

    Promises: `advance()` returns after every due waiter has been notified; `settle()`
    returns when every thread of the library is parked in a wait of this clock.

    Does not promise: that a notified waiter has run when `advance()` returns. Call
    `settle()` for that.

    Threads: every method is safe from any thread; only the test calls `advance()` and
    `settle()`, without holding a condition.
    """

    def __init__(self, *, start: datetime = _EPOCH) -> None:
        self._start = start
        self._changed = threading.Condition(threading.Lock())
        self._monotonic = 1_000.0  # guarded by _changed
        self._waiters: dict[int, _Waiter] = {}  # guarded by _changed; by thread ident
        self._waits = 0  # guarded by _changed; number of waits that have begun
        # Threads that are older than this clock use another one, for example the threads
        # of a server that several tests share.
        self._foreign = weakref.WeakSet(threading.enumerate())

    def monotonic(self) -> float:
        """Return virtual seconds since an arbitrary instant."""
        with self._changed:
            return self._monotonic

    def now(self) -> datetime:
        """Return the virtual wall-clock time."""
        return self._start + timedelta(seconds=self.monotonic() - 1_000.0)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a condition that the caller holds, in virtual time."""
        with self._changed:
            deadline = None if timeout is None else self._monotonic + timeout
            waiter = _Waiter(condition, deadline)
            if deadline is not None and deadline <= self._monotonic:
                return False
            self._waiters[threading.get_ident()] = waiter
            self._waits += 1
            self._changed.notify_all()
        try:
            # No thread can notify between the registration and this wait: notifying
            # needs the condition's lock, which the caller holds.
            condition.wait()
        finally:
            with self._changed:
                del self._waiters[threading.get_ident()]
                self._changed.notify_all()
        return not waiter.fired

    def advance(self, seconds: float) -> None:
        """Move time forward and stop at each deadline on the way.

        The call first waits until all threads are parked (see `settle`). Threads that wake
        at a deadline run before time moves on, so a thread that waits again within the span
        is also woken again within the span.

        Raises:
            AssertionError: As `settle`.
        """
        self.settle()
        with self._changed:
            goal = self._monotonic + seconds
        while True:
            with self._changed:
                due = [w.deadline for w in self._waiters.values() if w.deadline is not None]
                self._monotonic = min([goal, *(d for d in due if d > self._monotonic)])
                reached = self._monotonic >= goal
            if self._fire():
                self.settle()
            if reached:
                return

    def settle(self, *, threads: int = 0) -> None:
        """Return when every thread of the library is parked in this clock.

        Only threads whose name begins with `nav-` count, without the calling thread and
        without threads that are older than this clock.

        Args:
            threads: At least so many threads must be parked; for threads that the
                test started itself under other names.

        Raises:
            AssertionError: Thirty real seconds passed; names the busy threads.
        """
        limit = time.monotonic() + _SETTLE_LIMIT
        while True:
            first = self._snapshot()
            # Compare two snapshots: a thread that was busy during the first one may have
            # notified a thread that counted as parked, and may have ended since.
            if not first.busy and first.parked >= threads and self._snapshot() == first:
                return
            if time.monotonic() > limit:
                raise AssertionError(
                    f"not settled: busy {first.busy}, parked {first.parked} < {threads}"
                )
            with self._changed:
                # Changes of the waiters notify the condition; the timeout covers ended threads.
                self._changed.wait(0.002)

    def _snapshot(self) -> _ThreadSnapshot:
        with self._changed:
            waits, waiters = self._waits, dict(self._waiters)
        parked = _parked(waiters)
        busy = sorted(
            thread.name
            for thread in threading.enumerate()
            if thread.name.startswith(THREAD_PREFIX)
            and thread.ident not in parked
            and thread is not threading.current_thread()
            and thread not in self._foreign
        )
        return _ThreadSnapshot(waits, len(parked), tuple(busy))

    def waiting(self) -> int:
        """Return how many threads wait on this clock now."""
        with self._changed:
            return len(self._waiters)

    def next_deadline(self) -> float | None:
        """Return the virtual seconds until the next waiter is due, if any."""
        with self._changed:
            deadlines = [w.deadline for w in self._waiters.values() if w.deadline is not None]
            return min(deadlines) - self._monotonic if deadlines else None

    def _fire(self) -> bool:
        with self._changed:
            due = [
                waiter
                for waiter in self._waiters.values()
                if waiter.deadline is not None and waiter.deadline <= self._monotonic
            ]
            for waiter in due:
                waiter.fired = True
        # Take the conditions' locks without holding ours: waiters take them before ours.
        for condition in {waiter.condition for waiter in due}:
            with condition:
                condition.notify_all()
        return bool(due)


def _parked(waiters: Mapping[int, _Waiter]) -> set[int]:
    """Return the threads that still wait and have not been notified.

    A notified thread stays registered until it runs again. The condition removes a waiter
    at the moment of its notification, so its list of waiters is the reliable one.
    """
    registered: dict[threading.Condition, list[int]] = {}
    for ident, waiter in waiters.items():
        registered.setdefault(waiter.condition, []).append(ident)
    parked: set[int] = set()
    for condition, idents in registered.items():
        with condition:
            queued = len(condition._waiters)  # type: ignore[attr-defined]  # noqa: SLF001 - see above
        if queued >= len(idents):
            parked.update(idents)
    return parked
