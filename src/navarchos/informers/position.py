"""How far a cache has come, and waiting for it to come further."""

import threading
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import Gauge

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["CachePosition", "Position", "Staleness", "is_at_least", "wait_until"]


class Position(NamedTuple):
    """What a store has taken in.

    Attributes:
        synced: Whether the first list is in it.
        version: The version absorbed last.
        lists: How many whole lists it has taken in.
        stale: Whether the watch that feeds it is known to be lost at present.
    """

    synced: bool
    version: ResourceVersion
    lists: int
    stale: bool = False


class CachePosition:
    """The position of a store, for those who wait for it.

    Threads: every method is safe from any thread; one thread reports.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._position_lock = threading.Lock()
        self._moved = threading.Condition(self._position_lock)
        self._waiting = 0  # guarded by _position_lock; how many wait for a move
        self._synced = False  # guarded by _position_lock
        self._version = ResourceVersion("")  # guarded by _position_lock
        self._lists = 0  # guarded by _position_lock
        self._stale = False  # guarded by _position_lock

    @property
    def position(self) -> Position:
        """The present position."""
        with self._position_lock:
            return self._position_locked()

    def advance(self, version: ResourceVersion, *, listed: bool = False) -> None:
        """Report a change that is in the store."""
        with self._position_lock:
            self._version = version
            self._lists += listed
            if self._waiting:  # for every change of a watch comes by, and nearly nobody waits
                self._moved.notify_all()

    def sync(self) -> None:
        """Report that the first list is in the store."""
        with self._position_lock:
            self._synced = True
            self._moved.notify_all()

    def flag(self, *, stale: bool) -> None:
        """Report that the watch was lost, or found again."""
        with self._position_lock:
            self._stale = stale
            self._moved.notify_all()

    def wait_for(
        self,
        is_reached: Callable[[Position], bool],
        timeout: float | None,
        *stops: StopToken | None,
    ) -> bool:
        """Wait until the position satisfies a predicate.

        Returns:
            False when the time passed, or a token was set, before.
        """
        with self._position_lock:
            self._waiting += 1
        try:
            return wait_until(
                self._moved,
                lambda: is_reached(self._position_locked()),
                timeout,
                self._clock,
                *stops,
            )
        finally:
            with self._position_lock:
                self._waiting -= 1

    def _position_locked(self) -> Position:
        return Position(self._synced, self._version, self._lists, self._stale)


def wait_until(
    changed: threading.Condition,
    is_reached: Callable[[], bool],
    timeout: float | None,
    clock: Clock,
    *stops: StopToken | None,
) -> bool:
    """Wait on a condition until a predicate holds, the time passes or a token is set.

    Args:
        changed: Notified when the predicate may have changed. Not held by the caller.
        is_reached: Called with `changed` held.
        timeout: Longest wait in seconds; `None` waits without limit, `0` only looks.
        clock: Measures the timeout.
        stops: Tokens that end the wait; `None` stands for no token.

    Returns:
        Whether the predicate held.
    """
    tokens = [stop for stop in stops if stop is not None]
    withdraw = [stop.on_stop(lambda: _notify(changed)) for stop in tokens]
    deadline = None if timeout is None else clock.monotonic() + timeout
    try:
        with changed:
            while not is_reached():
                left = None if deadline is None else deadline - clock.monotonic()
                if (left is not None and left <= 0) or any(stop.is_set() for stop in tokens):
                    return False
                clock.wait(changed, left)
            return True
    finally:
        for off in withdraw:
            off()


def _notify(changed: threading.Condition) -> None:
    with changed:
        changed.notify_all()


class Staleness:
    """Flags a cache as stale from the moment its watch is known to be lost.

    A watch that its server ends in good order is opened again at once; that is no
    loss. Silence is one when it lasts longer than the idle timeout.

    Threads: owned by the reflector's thread; what it reports is read from any.
    """

    def __init__(self, progress: CachePosition, gauge: Gauge) -> None:
        self._progress = progress
        self._gauge = gauge

    def lost(self) -> None:
        """Flag the cache; harmless when repeated."""
        self._set(stale=True)

    def found(self) -> None:
        """Take the flag back: a watch from the last version is open; harmless when repeated."""
        self._set(stale=False)

    def _set(self, *, stale: bool) -> None:
        if self._progress.position.stale != stale:
            self._progress.flag(stale=stale)
            self._gauge.inc(1 if stale else -1)


def is_at_least(version: str, floor: str) -> bool | None:
    """Tell whether a state at `version` contains everything up to `floor`.

    To clients a resourceVersion was long an opaque string, and the reflector still
    treats it as one. Here it is compared as an integer, as client-go's mutation
    cache and leader of consistent reads do, because that is what it is: the
    revision of etcd, one counter for all objects of a resource. Kubernetes 1.35
    makes it official (KEP-5504): versions of one resource from one server are
    decimal integers and comparable. Both arguments must be from one resource.

    Returns:
        `None` if either is no such integer, as with a foreign aggregated API:
        nothing can be said then.
    """
    digits = version + floor
    if not (version and floor and digits.isascii() and digits.isdecimal()):
        return None
    return int(version) >= int(floor)
