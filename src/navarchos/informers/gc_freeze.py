"""Keeps filled caches out of the garbage collector's reach for as long as they are needed."""

import gc
import threading
import weakref
from typing import Final

__all__ = ["GC_FREEZER", "GcFreezer"]


class GcFreezer:
    """Freezes the objects in memory for several owners, and unfreezes them after the last.

    The collector does not walk frozen objects, so cyclic garbage among them stays. Objects
    that other code had frozen before the first owner came stay frozen.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._owners_lock = threading.Lock()
        self._owners: weakref.WeakSet[object] = weakref.WeakSet()  # guarded by _owners_lock
        self._may_unfreeze = False  # guarded by _owners_lock; no other code froze before

    def freeze(self, owner: object) -> None:
        """Move all objects that are in memory now out of the collector's reach."""
        # Frozen garbage would stay, so collect it first. Not under the lock, because
        # finalizers run arbitrary code.
        gc.collect()
        with self._owners_lock:
            if not self._owners:
                self._may_unfreeze = gc.get_freeze_count() == 0
            self._owners.add(owner)
            gc.freeze()

    def is_frozen_for(self, owner: object) -> bool:
        """Return whether an owner has frozen, and not unfrozen since."""
        with self._owners_lock:
            return owner in self._owners

    def unfreeze(self, owner: object) -> None:
        """Return all objects to the collector, unless another owner needs them frozen."""
        with self._owners_lock:
            if owner not in self._owners:
                return
            self._owners.discard(owner)
            if not self._owners and self._may_unfreeze:
                gc.unfreeze()


GC_FREEZER: Final = GcFreezer()
"""The only one, because a process has one collector."""
