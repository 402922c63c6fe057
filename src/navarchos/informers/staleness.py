"""Whether a cache hears of its server's changes."""

from prometheus_client import Gauge

from navarchos.informers.progress import Progress

__all__ = ["Staleness"]


class Staleness:
    """Flags a cache as stale from the moment its watch is known to be lost.

    A watch that its server ends in good order is opened again at once; that is no
    loss. Silence is one when it lasts longer than the idle timeout.

    Threads: owned by the reflector's thread; what it reports is read from any.
    """

    def __init__(self, progress: Progress, gauge: Gauge) -> None:
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
