"""Objects that a cache does not have as they are, and why."""

import threading
from collections.abc import Collection, Mapping

from navarchos.informers.metrics import InformerMetrics
from navarchos.logs import get_logger

__all__ = ["LeftOut"]

_log = get_logger(__name__)


class LeftOut:
    """Reports what was left out, and remembers it for as long as it is (ST-12).

    An object is left out from the state that could not be taken in until another
    state of it is, it ends, or a list shows it in good order or not at all. Until then
    the cache has it as it was before, or not at all.

    Threads: every method is safe from any thread; one thread writes.
    """

    def __init__(self, resource: str, metrics: InformerMetrics) -> None:
        self._resource = resource
        self._metrics = metrics
        self._whys_lock = threading.Lock()
        self._whys: dict[str, Exception] = {}  # guarded by _whys_lock; by key

    def present(self) -> dict[str, Exception]:
        """Return why objects are left out at present, by key."""
        with self._whys_lock:
            return dict(self._whys)

    def report(self, why: Exception, key: str = "") -> None:
        """Count and log an object that is left out, without remembering it."""
        self._metrics.decode_failures.inc()
        _log.warning(
            "object_left_out",
            resource=self._resource,
            key=key,
            why=str(why),
            # Foreign code's: an index function's, or a transform's.
            exc_info=why if why.__cause__ else None,
        )

    def add(self, key: str, why: Exception) -> None:
        """Report an object, and remember it."""
        self.report(why, key)
        self._change({key: why}, gone=())

    def remove(self, key: str) -> None:
        """Forget an object: the cache has its present state, or it has ended."""
        # Nearly always there is nothing to forget; only this thread adds anything.
        if self._whys:
            self._change({}, gone=(key,))

    def replace(self, whys: Mapping[str, Exception]) -> None:
        """Forget all others: these are what a list could not bring. Already reported."""
        self._change(whys, gone=[key for key in self.present() if key not in whys])

    def close(self) -> None:
        """Take this cache's share out of the gauge. Called once, after all else."""
        self._metrics.left_out.dec(len(self.present()))

    def _change(self, more: Mapping[str, Exception], gone: Collection[str]) -> None:
        with self._whys_lock:
            before = len(self._whys)
            for key in gone:
                self._whys.pop(key, None)
            self._whys.update(more)
            if len(self._whys) != before:
                self._metrics.left_out.inc(len(self._whys) - before)
