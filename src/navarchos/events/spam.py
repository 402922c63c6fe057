"""A limit on how many events one object may have."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

__all__ = ["SpamFilter"]

_BURST: Final = 25
_REFILL: Final = 1 / 300
_OBJECTS: Final = 4096


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class SpamFilter:
    """A token bucket per key: 25 at once, then one every five minutes (EV-10).

    The 4096 keys used last are remembered.

    Threads: owned by one, or guarded by its owner's lock.
    """

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def allow(self, key: Hashable, now: float) -> bool:
        """Take a token of the key if it has one. `now` is a monotonic instant."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(_BURST, now)
            if len(self._buckets) > _OBJECTS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        bucket.tokens = min(_BURST, bucket.tokens + (now - bucket.filled_at) * _REFILL)
        bucket.filled_at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
