"""Names of event objects."""

import re
import uuid
from datetime import UTC, datetime
from typing import Final

__all__ = ["EventNames"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LIMIT: Final = 253


class EventNames:
    """Makes names: `<object>.<hex of unix nanoseconds>`, or a uuid (EV-02).

    Promises: no name twice, even when the clock stands still or steps back.

    Threads: owned by one, or guarded by its owner's lock.
    """

    def __init__(self) -> None:
        self._last = 0

    def name(self, obj: str, at: datetime) -> str:
        """Return a name for an event about the object `obj`."""
        since = at.astimezone(UTC) - _EPOCH
        nanoseconds = ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1000
        self._last = max(nanoseconds, self._last + 1)
        name = f"{obj}.{self._last:x}"
        fits = len(name) <= _LIMIT and _SUBDOMAIN.fullmatch(name)
        return name if fits else str(uuid.uuid4())
