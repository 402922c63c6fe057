"""Faults on demand: refusals, delays, broken connections, old answers, wrong watches.

How they strike stands in `striking`.


How faults strike: before a request is served, and in the stream of a watch.
"""

import random
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from navarchos.errors import ConfigError
from navarchos.logs import get_logger
from navarchos.testing.apiserver.eviction import charge
from navarchos.testing.apiserver.handler import Call, Request, read_eviction
from navarchos.testing.apiserver.reads import expired_page
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.writes import Api

__all__ = ["EVERYDAY_FAULTS", "Cut", "Ending", "Fault", "Faults", "Spoiler", "asked_by", "strike"]

_log = get_logger(__name__)

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

    Every pattern that is given must match; one that is empty matches all. A fault
    that only some requests can suffer, such as one of watches, hits no others. The
    actions of one fault happen together: `delay` first.

    Attributes:
        verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
            `deletecollection` or `evict`.
        resource: The plural.
        name: The object's name.
        user_agent: A part of the `User-Agent` header.
        times: How many requests are hit; `None` hits all.
        probability: How likely one that matches is hit; see `Faults.seed`.
        delay: Seconds to wait before anything else.
        status: Answer with this HTTP status instead of serving.
        reason: The `Status` reason; the usual one of that status by default.
        message: The `Status` message.
        retry_after: Seconds for `Retry-After`, with `status`; 0 sends none.
        reset: Cut the connection instead of serving the request.
        lose_answer: Serve the request, then cut the connection instead of answering.
        lag: Answer reads from a cache that is so many seconds behind. As upstream,
            only those are answered from a cache that name a `resourceVersion`; one
            that it has not yet seen gets 504, without upstream's wait of 3 s.
        expire_continue: Answer a page that is asked for by a token with 410 and a token
            to go on with, as after a compaction.
        charge_only: Let an eviction pass its budget and go no further, as one whose
            server dies then: the slot stays spent until whoever keeps budgets gives it
            back, upstream after 2 minutes. The answer is `status`, or none.
        drop_after: End the watch properly after so many events.
        half_close_after: End the connection without ending the stream.
        stall_after: Keep the watch open and silent.
        stall_within: The same, within the line that follows.
        truncate_after: Cut the connection within the line that follows.
        lose: Leave the event with this number (from 1) out.
        duplicate: Send the event with this number twice.
    """

    verb: str = ""
    resource: str = ""
    name: str = ""
    user_agent: str = ""
    times: int | None = 1
    probability: float = 1.0
    delay: float = 0.0
    status: int | None = None
    reason: str = ""
    message: str = ""
    retry_after: int = 0
    reset: bool = False
    lose_answer: bool = False
    lag: float = 0.0
    expire_continue: bool = False
    charge_only: bool = False
    drop_after: int | None = None
    half_close_after: int | None = None
    stall_after: int | None = None
    stall_within: int | None = None
    truncate_after: int | None = None
    lose: int | None = None
    duplicate: int | None = None

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ConfigError("times", self.times, "it must be at least 1, or None for always")
        if self.delay < 0:
            raise ConfigError("delay", self.delay, "it must not be negative")
        if self.lag < 0:
            raise ConfigError("lag", self.lag, "it must not be negative")
        if not 0 < self.probability <= 1:
            raise ConfigError("probability", self.probability, "it must be above 0 and at most 1")

    @property
    def is_for_watches(self) -> bool:
        """Whether it acts on the events of a watch."""
        numbers = (
            self.drop_after, self.half_close_after, self.stall_after, self.stall_within,
            self.truncate_after, self.lose, self.duplicate,
        )  # fmt: skip
        return any(number is not None for number in numbers)

    def matches(self, asked: "Asked") -> bool:
        """Return whether a request can be hit."""
        return (
            self.verb in {"", asked.verb}
            and self.resource in {"", asked.resource}
            and self.name in {"", asked.name}
            and self.user_agent in asked.user_agent
            and self._can_be_suffered(asked)
        )

    def _can_be_suffered(self, asked: "Asked") -> bool:
        return (
            (asked.verb == "watch" or not self.is_for_watches)
            and (asked.verb != "watch" or not self.lose_answer)
            and (asked.verb == "evict" or not self.charge_only)
            and (asked.from_cache or not self.lag)
            and (asked.continues or not self.expire_continue)
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


EVERYDAY_FAULTS: Final = (
    Fault(delay=0.05),
    Fault(status=429, retry_after=1),
    Fault(status=429),
    Fault(status=500),
    Fault(status=503),
    Fault(reset=True),
    Fault(lose_answer=True),
    Fault(verb="update", status=409),
    Fault(verb="patch", status=409),
    Fault(verb="watch", status=410),
    Fault(verb="list", lag=1.0),
    Fault(expire_continue=True),
    Fault(drop_after=1),
    Fault(half_close_after=1),
    Fault(truncate_after=1),
    Fault(duplicate=1),
)
"""What a client has to live with. A watch that loses events breaks what Kubernetes promises,
and one that stalls takes the time after which its client gives up: those are not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What faults go by in a request.

    Attributes:
        verb: As in `Fault`.
        resource: The plural, or nothing.
        name: The object's name, or nothing.
        user_agent: The header.
        from_cache: It is a read that upstream answers from its cache.
        continues: It asks for the next page of a list.
    """

    verb: str
    resource: str = ""
    name: str = ""
    user_agent: str = ""
    from_cache: bool = False
    continues: bool = False


@dataclass(slots=True)
class _Dice:
    """Draws that depend on the seed and on how often the same was asked, and on nothing else.

    So a run can be repeated though its threads take turns otherwise.
    """

    seed: int
    thrown: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def throw(self, *what: str) -> random.Random:
        self.thrown[what] += 1
        return random.Random(repr((self.seed, what, self.thrown[what])))  # noqa: S311 - no secret


class Faults:
    """The faults that are waiting to happen, in the order they were added.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._faults_lock = threading.Lock()
        self._left: list[tuple[Fault, int | None]] = []  # guarded by _faults_lock
        self._dice = _Dice(0)  # guarded by _faults_lock
        self._rate = 0.0  # guarded by _faults_lock
        self._among: Sequence[Fault] = ()  # guarded by _faults_lock

    def add(self, fault: Fault) -> None:
        """Arm a fault."""
        with self._faults_lock:
            self._left.append((fault, fault.times))

    def clear(self) -> None:
        """Disarm all, those that come at random, too."""
        with self._faults_lock:
            self._left.clear()
            self._rate, self._among = 0.0, ()

    def seed(self, seed: int) -> None:
        """Begin anew to draw for faults with a `probability`.

        What the n-th request of a verb, a resource and a user agent suffers follows
        from the seed: whoever asks for the same in the same order suffers the same.
        """
        with self._faults_lock:
            self._dice = _Dice(seed)

    def shake(
        self,
        *,
        rate: float = 0.1,
        seed: int | None = None,
        among: Sequence[Fault] = EVERYDAY_FAULTS,
    ) -> int:
        """Let a share of all requests go wrong at random, until `clear`.

        Faults that were added come first. The seed is logged, to be used again.

        Args:
            rate: How likely a request is hit, if any of `among` can hit it.
            seed: As for `seed`; drawn without one.
            among: One that matches is taken, each as likely. `times` and
                `probability` are not looked at.

        Returns:
            The seed.

        Raises:
            ConfigError: The rate is no share.
        """
        if not 0 <= rate <= 1:
            raise ConfigError("rate", rate, "it must be between 0 and 1")
        seed = secrets.randbits(32) if seed is None else seed
        with self._faults_lock:
            self._dice = _Dice(seed)
            self._rate, self._among = rate, tuple(among)
        _log.info("faults_shaken", seed=seed, rate=rate)
        return seed

    @property
    def pending(self) -> tuple[Fault, ...]:
        """The added faults that have not yet happened as often as they should."""
        with self._faults_lock:
            return tuple(fault for fault, _ in self._left)

    @property
    def is_armed(self) -> bool:
        """Whether any request may go wrong. A stale look, without the lock, is harmless."""
        return bool(self._left or self._rate)

    def take(self, asked: Asked) -> Fault | None:
        """Return the fault that hits a request, and use it up once."""
        with self._faults_lock:
            return self._take_added_locked(asked) or self._take_any_locked(asked)

    def _take_added_locked(self, asked: Asked) -> Fault | None:
        for index, (fault, left) in enumerate(self._left):
            if not fault.matches(asked) or not self._strikes_locked(fault, index, asked):
                continue
            if left == 1:
                del self._left[index]
            elif left is not None:
                self._left[index] = (fault, left - 1)
            return fault
        return None

    def _strikes_locked(self, fault: Fault, index: int, asked: Asked) -> bool:
        if fault.probability == 1:
            return True
        stream = (str(index), asked.verb, asked.resource, asked.user_agent)
        return self._dice.throw(*stream).random() < fault.probability

    def _take_any_locked(self, asked: Asked) -> Fault | None:
        candidates = [fault for fault in self._among if fault.matches(asked)]
        if not candidates:
            return None
        drawn = self._dice.throw("any", asked.verb, asked.resource, asked.user_agent)
        return drawn.choice(candidates) if drawn.random() < self._rate else None


class Cut(Exception):
    """The connection is to be cut without an answer."""


def asked_by(call: Call, request: Request) -> Asked:
    """Return what faults go by in a request."""
    query = request.query
    return Asked(
        verb=call.verb,
        resource=call.resource,
        name=call.name,
        user_agent=request.user_agent,
        from_cache=_is_from_cache(call, request),
        continues=call.verb == "list" and bool(query.get("continue")),
    )


def _is_from_cache(call: Call, request: Request) -> bool:
    """Return whether upstream's watch cache may answer, rather than etcd."""
    query = request.query
    version, match = query.get("resourceVersion"), query.get("resourceVersionMatch")
    if not version or query.get("continue"):
        return False
    if call.verb == "list":
        pages = query.get("limit", "0") != "0" and version != "0" and not match
        return match != "Exact" and not pages
    return call.verb == "get"


def strike(fault: Fault, api: Api, call: Call, request: Request) -> Api:
    """Do what a fault does before a request is served; returns what is to serve it.

    Its delay is the caller's to wait for.

    Raises:
        Cut: The connection is to end instead.
        StatusError: The answer.
    """
    if fault.charge_only and call.target is not None:
        body, options = read_eviction(request)
        charge(api, call.target.kind, call.target.namespace, call.target.name, body, options)
    error = fault.error()
    if fault.reset or (fault.charge_only and error is None):
        raise Cut
    if error is not None:
        raise error
    if fault.expire_continue:
        raise expired_page(request.query["continue"])
    if fault.lag and call.target is not None:
        return replace(api, store=api.store.as_of(call.target.kind.bucket, fault.lag))
    return api


class Ending(Enum):
    """How a watch ends that a fault has struck."""

    END = auto()
    """Properly."""
    CUT = auto()
    """The connection is cut."""
    HALF_CLOSE = auto()
    """The server says that nothing more will come, and keeps the connection."""
    STALL = auto()
    """Nothing more comes, and nobody says so; properly once the server stops."""
    STALL_WITHIN = auto()
    """The same in the middle of a line: there is no proper end any more."""


class Spoiler:
    """Tells what becomes of the lines of a watch: right, or wrong where a fault says so.

    Pure but for its count of lines; whoever owns the connection does what it says.
    """

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault if fault is not None and fault.is_for_watches else None
        self._sent = 0

    def spoil(self, lines: Sequence[bytes]) -> Iterator[bytes | Ending]:
        """Yield what to send; an `Ending` is the last of all.

        A batch without lines asks for the ending that is due before the first one.
        """
        if self._fault is None:
            if lines:
                yield b"".join(lines)
            return
        for line in lines:
            yield from self._one(self._fault, line)
        if not lines and (ending := self._due(self._fault)):
            yield ending

    def _one(self, fault: Fault, line: bytes) -> Iterator[bytes | Ending]:
        if self._sent in {fault.truncate_after, fault.stall_within}:
            yield line[: len(line) // 2]
            yield Ending.CUT if self._sent == fault.truncate_after else Ending.STALL_WITHIN
        if ending := self._due(fault):
            yield ending
        self._sent += 1
        if self._sent == fault.lose:
            return
        yield line * 2 if self._sent == fault.duplicate else line
        if ending := self._due(fault):
            yield ending

    def _due(self, fault: Fault) -> Ending | None:
        if self._sent == fault.drop_after:
            return Ending.END
        if self._sent == fault.half_close_after:
            return Ending.HALF_CLOSE
        return Ending.STALL if self._sent == fault.stall_after else None
