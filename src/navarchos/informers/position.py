"""The position of a cache: how far it has followed its server, and waiting until it gets there."""

import threading
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import Gauge

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["CachePosition", "Position", "is_at_least", "wait_until"]


class Position(NamedTuple):
    """A snapshot of a cache's position, for code that waits for it to change.

    Attributes:
        synced: Whether the first list is in the store.
        version: The version that the store has absorbed last.
        lists: How many whole lists the store has absorbed.
        disconnected: Whether the watch that feeds the store is known to be lost.
    """

    synced: bool
    version: ResourceVersion
    lists: int
    disconnected: bool = False


class CachePosition:
    """The one place that records which versions a cache has seen, and whether it is synced.

    There are three versions, because they answer three questions:

    - `resume_version`: from where the next watch or list continues. An event that was
      skipped does not count, and neither do the first events of a watch from no version,
      which come in any order.
    - `version`: what the store absorbed last.
    - `newest`: the highest version that the store has absorbed since its last list. All
      writes of this process up to it are in the store.

    Threads: the reflector's thread writes; every method and attribute may be used from any
    thread.

    Attributes:
        resume_version: Opaque: sent to the server, never compared (RT-11). Empty before the
            first list.
        is_resume_version_refused: Whether the server has refused it as too old or too new.
        version: Empty before the first change.
        newest: Empty before the first change.
        synced: Whether the first list is in the store.
        disconnected: Whether the watch is known to be lost.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, disconnected: Gauge | None = None) -> None:
        """Start at the beginning.

        Args:
            clock: Measures timeouts.
            disconnected: Counts the caches whose watch is lost.
        """
        self._clock = clock
        self._gauge = disconnected
        self._position_lock = threading.Lock()
        self._moved = threading.Condition(self._position_lock)
        self._waiting = 0  # guarded by _position_lock; how many threads wait for a change
        self.resume_version = ResourceVersion("")
        self.is_resume_version_refused = False
        # Below: written with _position_lock held, by one thread; read without it as well.
        self.version = ResourceVersion("")
        self.newest = ResourceVersion("")
        self.synced = False
        self.disconnected = False
        self._lists = 0  # guarded by _position_lock

    # What the reflector asks the server for

    def version_to_list(self) -> str:
        """Return the version of an ordinary list: never a state older than the last (RF-05)."""
        return "" if self.is_resume_version_refused else self.resume_version or "0"

    def version_to_stream(self) -> str:
        """Return the version of a streaming list (RF-24)."""
        return "" if self.is_resume_version_refused else self.resume_version

    def resume_from(self, version: ResourceVersion) -> None:
        """Continue from the version of a list that succeeded (RF-12)."""
        self.resume_version = version
        self.is_resume_version_refused = False

    # What the store has absorbed

    def advance(self, version: ResourceVersion) -> None:
        """Record that a change, or everything up to a bookmark, is in the store."""
        with self._position_lock:
            self.version = version
            if is_at_least(version, self.newest or "0"):
                self.newest = version
            if self._waiting:  # there are many changes, and hardly ever a waiting thread
                self._moved.notify_all()

    def advance_by_list(self, version: ResourceVersion) -> None:
        """Record that a whole list is in the store."""
        with self._position_lock:
            # `newest` may go back: after a restore from a backup versions start lower.
            self.version = self.newest = version
            self._lists += 1
            self._moved.notify_all()

    def sync(self) -> None:
        """Record that the first list is in the store."""
        with self._position_lock:
            self.synced = True
            self._moved.notify_all()

    # Whether the watch is connected

    def set_disconnected(self, disconnected: bool) -> None:
        """Record that the watch was lost, or that it is open again. May be repeated.

        A watch that its server ends in good order is opened again at once; that is not a
        loss. Silence is a loss when it lasts longer than the idle timeout.
        """
        if self.disconnected == disconnected:
            return
        with self._position_lock:
            self.disconnected = disconnected
            self._moved.notify_all()
        if self._gauge is not None:
            self._gauge.inc(1 if disconnected else -1)

    # Waiting

    def snapshot(self) -> Position:
        """Return the present position."""
        with self._position_lock:
            return self._snapshot_locked()

    def wait_for(
        self,
        is_reached: Callable[[Position], bool],
        timeout: float | None,
        *stops: StopToken | None,
    ) -> bool:
        """Wait until the position satisfies a predicate.

        Args:
            is_reached: Decides; quick, for it runs under the lock.
            timeout: Longest wait in seconds; `None` waits without limit, `0` does not wait.
            stops: Tokens that end the wait; `None` stands for no token.

        Returns:
            False if the time passed or a token was set first.
        """
        with self._position_lock:
            self._waiting += 1
        try:
            return wait_until(
                self._moved,
                lambda: is_reached(self._snapshot_locked()),
                timeout,
                self._clock,
                *stops,
            )
        finally:
            with self._position_lock:
                self._waiting -= 1

    def _snapshot_locked(self) -> Position:
        return Position(self.synced, self.version, self._lists, self.disconnected)


def is_at_least(version: str, floor: str) -> bool | None:
    """Return whether a state at `version` contains everything up to `floor`.

    This is the only place that compares resourceVersions. They were opaque strings to
    clients for a long time, and the reflector still treats them so. Here they are compared
    as integers, as client-go's mutation cache and its consistent reads do, because a version
    is the revision of etcd: one counter for all objects of a resource.
    Kubernetes 1.35 makes it official (KEP-5504): versions of one resource from one server
    are decimal integers and comparable. Both arguments must be from one resource.

    Returns:
        `None` if either is not such an integer, as with some aggregated APIs; then the
        versions cannot be compared.
    """
    digits = version + floor
    if not (version and floor and digits.isascii() and digits.isdecimal()):
        return None
    return int(version) >= int(floor)


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
        timeout: Longest wait in seconds; `None` waits without limit, `0` does not wait.
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
