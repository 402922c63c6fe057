"""Filled caches out of the garbage collector's reach, as long as somebody has them."""

import gc
import threading
import weakref
from typing import Final

__all__ = ["GC_FREEZER", "GcFreezer"]


class GcFreezer:
    """Freezes what is in memory for several holders, and thaws it after the last of them.

    Frozen objects are not walked by the collector, and cyclic garbage among them stays.
    What somebody else had frozen before the first holder came stays frozen.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._holders_lock = threading.Lock()
        self._holders: weakref.WeakSet[object] = weakref.WeakSet()  # guarded by _holders_lock
        self._is_ours = False  # guarded by _holders_lock

    def freeze(self, holder: object) -> None:
        """Move all that is in memory now out of the collector's reach."""
        # Garbage that is frozen stays: collect it first. Not under the lock: what a
        # finalizer does is its own business.
        gc.collect()
        with self._holders_lock:
            if not self._holders:
                self._is_ours = gc.get_freeze_count() == 0
            self._holders.add(holder)
            gc.freeze()

    def holds_for(self, holder: object) -> bool:
        """Tell whether a holder has frozen, and not thawed since."""
        with self._holders_lock:
            return holder in self._holders

    def thaw(self, holder: object) -> None:
        """Give everything back to the collector, unless somebody else holds it."""
        with self._holders_lock:
            if holder not in self._holders:
                return
            self._holders.discard(holder)
            if not self._holders and self._is_ours:
                gc.unfreeze()


GC_FREEZER: Final = GcFreezer()
"""There is one collector in a process."""
