"""Faults on demand: refusals, delays, broken connections, and watches that go wrong."""

import threading
from dataclasses import dataclass
from typing import Final

from navarchos.errors import ConfigError
from navarchos.testing.apiserver.status import StatusError

__all__ = ["Fault", "Faults"]

_REASONS: Final = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong, for which requests, and how often.

    Every pattern that is given must match; one that is empty matches all. The
    actions of one fault happen together: `delay` first.

    Attributes:
        verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
            `deletecollection` or `evict`.
        resource: The plural.
        name: The object's name.
        user_agent: A part of the `User-Agent` header.
        times: How many requests are hit; `None` hits all.
        delay: Seconds to wait before anything else.
        status: Answer with this HTTP status instead of serving.
        reason: The `Status` reason; the usual one of that status by default.
        message: The `Status` message.
        retry_after: Seconds for `Retry-After`, with `status`.
        reset: Cut the connection instead of answering.
        drop_after: End the watch properly after so many events.
        half_close_after: End the connection without ending the stream.
        stall_after: Keep the watch open and silent.
        truncate_after: Cut the connection within the line that follows.
        lose: Leave the event with this number (from 1) out.
        duplicate: Send the event with this number twice.
    """

    verb: str = ""
    resource: str = ""
    name: str = ""
    user_agent: str = ""
    times: int | None = 1
    delay: float = 0.0
    status: int | None = None
    reason: str = ""
    message: str = ""
    retry_after: int = 0
    reset: bool = False
    drop_after: int | None = None
    half_close_after: int | None = None
    stall_after: int | None = None
    truncate_after: int | None = None
    lose: int | None = None
    duplicate: int | None = None

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ConfigError("times", self.times, "at least 1, or None for always")
        if self.delay < 0:
            raise ConfigError("delay", self.delay, "seconds, not negative")

    @property
    def is_for_watches(self) -> bool:
        """Whether it acts on the events of a watch."""
        numbers = (
            self.drop_after, self.half_close_after, self.stall_after, self.truncate_after,
            self.lose, self.duplicate,
        )  # fmt: skip
        return any(number is not None for number in numbers)

    def matches(self, verb: str, resource: str, name: str, user_agent: str) -> bool:
        """Return whether a request is hit."""
        if self.is_for_watches and verb != "watch":
            return False
        return (
            self.verb in {"", verb}
            and self.resource in {"", resource}
            and self.name in {"", name}
            and self.user_agent in user_agent
        )

    def error(self) -> StatusError | None:
        """Return the refusal, if this fault is one."""
        if self.status is None:
            return None
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after else None
        return StatusError(
            self.status,
            self.reason or _REASONS.get(self.status, ""),
            self.message or "injected fault",
            details=details,
            retry_after=self.retry_after,
        )


class Faults:
    """The faults that are waiting to happen, in the order they were added.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._faults_lock = threading.Lock()
        self._left: list[tuple[Fault, int | None]] = []  # guarded by _faults_lock

    def add(self, fault: Fault) -> None:
        """Arm a fault."""
        with self._faults_lock:
            self._left.append((fault, fault.times))

    def clear(self) -> None:
        """Disarm all."""
        with self._faults_lock:
            self._left.clear()

    @property
    def pending(self) -> tuple[Fault, ...]:
        """The faults that have not yet happened as often as they should."""
        with self._faults_lock:
            return tuple(fault for fault, _ in self._left)

    def take(self, verb: str, resource: str, name: str, user_agent: str) -> Fault | None:
        """Return the first fault that hits a request, and use it up once."""
        if not self._left:
            return None  # the usual case, without the lock: a stale look is harmless
        with self._faults_lock:
            for index, (fault, left) in enumerate(self._left):
                if fault.matches(verb, resource, name, user_agent):
                    if left == 1:
                        del self._left[index]
                    elif left is not None:
                        self._left[index] = (fault, left - 1)
                    return fault
        return None
