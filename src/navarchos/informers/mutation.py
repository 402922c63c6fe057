"""Detects changes of cached objects, which all readers share (ST-15).

Code that changes a shared object changes it for every reader, and hides the server's next
change from code that compares states. Frozen structs do not freeze the dicts and lists in
them: the `labels` of a cached object are a dict, and writing to it changes it for all.
"""

import copy
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

import msgspec

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.informers.errors import CacheMutated
from navarchos.informers.indexes import IndexFunction
from navarchos.informers.position import CachePosition
from navarchos.informers.store import Replaced, WritableStore
from navarchos.meta import ResourceVersion, key_of
from navarchos.stopping import StopToken

__all__ = [
    "MUTATION_VARIABLE",
    "MutationDetector",
    "WatchedStore",
    "mutation_detection",
    "mutation_detector_wanted",
]

T = TypeVar("T")

MUTATION_VARIABLE: Final = "NAVARCHOS_DETECT_CACHE_MUTATIONS"
"""The environment variable that turns the detector on if it is not empty."""

_CHECK_EVERY: Final = 1.0
_FORGET_AFTER: Final = 120.0


class _Override:
    """The setting of this process; `None` leaves the choice to the environment."""

    wanted: bool | None = None


def mutation_detector_wanted() -> bool:
    """Return whether informers that are made now get the detector."""
    wanted = _Override.wanted
    return wanted if wanted is not None else bool(os.environ.get(MUTATION_VARIABLE))


@contextmanager
def mutation_detection(wanted: bool | None) -> Iterator[None]:
    """Turn the detector on or off for the informers that are made meanwhile.

    For test suites. It takes precedence over the environment, unless it is `None`. The
    suite does not use the environment variable, because child processes would inherit it:
    their memory and speed would then differ from production.

    Threads: one at a time; the setting holds for all threads of the process.
    """
    before, _Override.wanted = _Override.wanted, wanted
    try:
        yield
    finally:
        _Override.wanted = before


class MutationDetector(Generic[T]):
    """Keeps a copy of each object that was stored lately, and compares.

    For test suites and canaries: it doubles the memory of the stored objects and costs a
    thread. As client-go's `KUBE_CACHE_MUTATION_DETECTOR`, it checks an object for two to
    four minutes after it was stored, even if it has left the cache.

    Threads: every method is safe from any thread; `run` is for one thread.
    """

    def __init__(self, name: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Make a detector without objects.

        Args:
            name: The cache's name, for the error.
            clock: Time and waiting.
        """
        self._name = name
        self._clock = clock
        self._pairs_lock = threading.Lock()
        self._recent: list[tuple[T, T]] = []  # guarded by _pairs_lock; object and copy
        self._older: list[tuple[T, T]] = []  # guarded by _pairs_lock
        self._forget_at = clock.monotonic() + _FORGET_AFTER  # guarded by _pairs_lock

    def keep(self, objects: Iterable[T]) -> None:
        """Copy objects that are about to be stored."""
        pairs = [(obj, copy.deepcopy(obj)) for obj in objects]
        with self._pairs_lock:
            self._recent += pairs

    def check(self) -> None:
        """Compare each object with its copy.

        Raises:
            CacheMutated: An object differs from its copy.
        """
        with self._pairs_lock:
            pairs = self._older + self._recent
            if self._clock.monotonic() >= self._forget_at:
                self._forget_at = self._clock.monotonic() + _FORGET_AFTER
                self._older, self._recent = self._recent, []
        changed = {
            f"{key_of(before)}{_where(before, now)}" for now, before in pairs if now != before
        }
        if changed:
            raise CacheMutated(self._name, changed)

    def run(self, stop: StopToken) -> None:
        """Check every second, and once more after the stop.

        Raises:
            CacheMutated: An object was changed.
        """
        while not stop.wait(_CHECK_EVERY):
            self.check()
        self.check()


class WatchedStore(WritableStore[T]):
    """A store whose objects a detector checks."""

    def __init__(
        self,
        indexers: Mapping[str, IndexFunction[T]] | None,
        position: CachePosition,
        detector: MutationDetector[T],
    ) -> None:
        super().__init__(indexers, position)
        self._detector = detector

    def put(self, key: str, obj: T, version: ResourceVersion) -> T | None:
        """Store an object, and check it from now on."""
        self._detector.keep([obj])
        return super().put(key, obj, version)

    def replace(
        self, objects: Mapping[str, T], version: ResourceVersion, *, keep: Iterable[str] = ()
    ) -> Replaced[T]:
        """Replace the whole content, and check it from now on."""
        self._detector.keep(objects.values())
        return super().replace(objects, version, keep=keep)


def _where(before: object, now: object) -> str:
    """Return the path of the first difference, such as `.metadata.labels.a`."""
    if isinstance(before, list | tuple) and isinstance(now, list | tuple):
        if len(before) != len(now):
            return ""
        members = [(f"[{at}]", *both) for at, both in enumerate(zip(before, now, strict=True))]
    else:
        old, new = _members(before), _members(now)
        members = [(f".{name}", old.get(name), new.get(name)) for name in {**old, **new}]
    for name, was, is_now in members:
        if was != is_now:
            return f"{name}{_where(was, is_now)}"
    return ""


def _members(obj: object) -> Mapping[str, object]:
    if isinstance(obj, msgspec.Struct):
        return {name: getattr(obj, name) for name in obj.__struct_fields__}
    return obj if isinstance(obj, Mapping) else {}
