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
from navarchos.testing.apiserver.eviction import spend_budget
from navarchos.testing.apiserver.handler import Call, Request, read_eviction
from navarchos.testing.apiserver.reads import expired_page
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.writes import Api

__all__ = [
    "COMMON_FAULTS",
    "ConnectionCut",
    "Fault",
    "Faults",
    "StreamEnd",
    "StreamFaults",
    "inject",
    "request_facts",
]

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
    spend_budget_only: bool = False
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

    def matches(self, facts: "RequestFacts") -> bool:
        """Return whether a request can be hit."""
        return (
            self.verb in {"", facts.verb}
            and self.resource in {"", facts.resource}
            and self.name in {"", facts.name}
            and self.user_agent in facts.user_agent
            and self._applies_to(facts)
        )

    def _applies_to(self, facts: "RequestFacts") -> bool:
        return (
            (facts.verb == "watch" or not self.is_for_watches)
            and (facts.verb != "watch" or not self.lose_answer)
            and (facts.verb == "evict" or not self.spend_budget_only)
            and (facts.from_cache or not self.lag)
            and (facts.continues or not self.expire_continue)
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


COMMON_FAULTS: Final = (
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
class RequestFacts:
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
class _Draws:
    """Draws that depend on the seed and on how often the same was asked, and on nothing else.

    So a run can be repeated though its threads take turns otherwise.
    """

    seed: int
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def draw(self, *what: str) -> random.Random:
        self.counts[what] += 1
        return random.Random(repr((self.seed, what, self.counts[what])))  # noqa: S311 - no secret


class Faults:
    """The faults that are waiting to happen, in the order they were added.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._faults_lock = threading.Lock()
        self._armed: list[tuple[Fault, int | None]] = []  # guarded by _faults_lock
        self._draws = _Draws(0)  # guarded by _faults_lock
        self._rate = 0.0  # guarded by _faults_lock
        self._random_faults: Sequence[Fault] = ()  # guarded by _faults_lock

    def add(self, fault: Fault) -> None:
        """Arm a fault."""
        with self._faults_lock:
            self._armed.append((fault, fault.times))

    def clear(self) -> None:
        """Disarm all, those that come at random, too."""
        with self._faults_lock:
            self._armed.clear()
            self._rate, self._random_faults = 0.0, ()

    def seed(self, seed: int) -> None:
        """Begin anew to draw for faults with a `probability`.

        What the n-th request of a verb, a resource and a user agent suffers follows
        from the seed: whoever asks for the same in the same order suffers the same.
        """
        with self._faults_lock:
            self._draws = _Draws(seed)

    def inject_randomly(
        self,
        *,
        rate: float = 0.1,
        seed: int | None = None,
        among: Sequence[Fault] = COMMON_FAULTS,
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
            self._draws = _Draws(seed)
            self._rate, self._random_faults = rate, tuple(among)
        _log.info("faults_shaken", seed=seed, rate=rate)
        return seed

    @property
    def pending(self) -> tuple[Fault, ...]:
        """The added faults that have not yet happened as often as they should."""
        with self._faults_lock:
            return tuple(fault for fault, _ in self._armed)

    @property
    def is_armed(self) -> bool:
        """Whether any request may go wrong. A stale look, without the lock, is harmless."""
        return bool(self._armed or self._rate)

    def take(self, facts: RequestFacts) -> Fault | None:
        """Return the fault that hits a request, and use it up once."""
        with self._faults_lock:
            return self._take_added_locked(facts) or self._take_random_locked(facts)

    def _take_added_locked(self, facts: RequestFacts) -> Fault | None:
        for index, (fault, left) in enumerate(self._armed):
            if not fault.matches(facts) or not self._is_drawn_locked(fault, index, facts):
                continue
            if left == 1:
                del self._armed[index]
            elif left is not None:
                self._armed[index] = (fault, left - 1)
            return fault
        return None

    def _is_drawn_locked(self, fault: Fault, index: int, facts: RequestFacts) -> bool:
        if fault.probability == 1:
            return True
        stream = (str(index), facts.verb, facts.resource, facts.user_agent)
        return self._draws.draw(*stream).random() < fault.probability

    def _take_random_locked(self, facts: RequestFacts) -> Fault | None:
        candidates = [fault for fault in self._random_faults if fault.matches(facts)]
        if not candidates:
            return None
        drawn = self._draws.draw("any", facts.verb, facts.resource, facts.user_agent)
        return drawn.choice(candidates) if drawn.random() < self._rate else None


class ConnectionCut(Exception):
    """The connection is to be cut without an answer."""


def request_facts(call: Call, request: Request) -> RequestFacts:
    """Return what faults go by in a request."""
    query = request.query
    return RequestFacts(
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


def inject(fault: Fault, api: Api, call: Call, request: Request) -> Api:
    """Do what a fault does before a request is served; returns what is to serve it.

    Its delay is the caller's to wait for.

    Raises:
        Cut: The connection is to end instead.
        StatusError: The answer.
    """
    if fault.spend_budget_only and call.target is not None:
        body, options = read_eviction(request)
        spend_budget(api, call.target.kind, call.target.namespace, call.target.name, body, options)
    error = fault.error()
    if fault.reset or (fault.spend_budget_only and error is None):
        raise ConnectionCut
    if error is not None:
        raise error
    if fault.expire_continue:
        raise expired_page(request.query["continue"])
    if fault.lag and call.target is not None:
        return replace(api, store=api.store.as_of(call.target.kind.bucket, fault.lag))
    return api


class StreamEnd(Enum):
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


class StreamFaults:
    """Tells what becomes of the lines of a watch: right, or wrong where a fault says so.

    Pure but for its count of lines; whoever owns the connection does what it says.
    """

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault if fault is not None and fault.is_for_watches else None
        self._sent = 0

    def apply(self, lines: Sequence[bytes]) -> Iterator[bytes | StreamEnd]:
        """Yield what to send; an `StreamEnd` is the last of all.

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

    def _one(self, fault: Fault, line: bytes) -> Iterator[bytes | StreamEnd]:
        if self._sent in {fault.truncate_after, fault.stall_within}:
            yield line[: len(line) // 2]
            yield StreamEnd.CUT if self._sent == fault.truncate_after else StreamEnd.STALL_WITHIN
        if ending := self._due(fault):
            yield ending
        self._sent += 1
        if self._sent == fault.lose:
            return
        yield line * 2 if self._sent == fault.duplicate else line
        if ending := self._due(fault):
            yield ending

    def _due(self, fault: Fault) -> StreamEnd | None:
        if self._sent == fault.drop_after:
            return StreamEnd.END
        if self._sent == fault.half_close_after:
            return StreamEnd.HALF_CLOSE
        return StreamEnd.STALL if self._sent == fault.stall_after else None
