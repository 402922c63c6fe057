"""Faults that a test asks for: refusals, delays, broken connections, stale reads, wrong watches.

Everything about a fault is in this module. A new fault takes:

1. A field of `Fault`, described there, and its `Stage` in `STAGES`; a test compares the two.
2. What the fault does, in the function of its stage: `inject` before a request is served,
   `loses_response` after it, `StreamFaults` in the stream of a watch. A new way to end a stream
   is a member of `StreamEnd`: the type checker names the places that must handle it.
3. If only some requests can suffer the fault: a line in `Fault._applies_to`.
4. A row in the table of `docs/testing/api-server.md`; a test compares that, too.
"""

import random
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from navarchos.errors import ConfigError
from navarchos.logs import get_logger
from navarchos.testing.apiserver import eviction, handler, reads, requests, writes
from navarchos.testing.apiserver import status as statuses

__all__ = [
    "COMMON_FAULTS",
    "STAGES",
    "ConnectionCut",
    "Fault",
    "Faults",
    "RequestFacts",
    "Stage",
    "StreamEnd",
    "StreamFaults",
    "inject",
    "loses_response",
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


class Stage(Enum):
    """When a field of `Fault` takes effect."""

    MATCH = auto()
    """It selects the requests that the fault hits."""
    BEFORE = auto()
    """Before the request is served."""
    AFTER = auto()
    """After the request has been served, before the response is sent."""
    STREAM = auto()
    """While the events of a watch are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong, for which requests, and how often.

    A request is hit if it matches all patterns; an empty pattern matches every request. A
    fault that only some requests can suffer, for example one of watches, does not hit
    others. The actions of one fault happen together, `delay` first.

    Attributes:
        verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
            `deletecollection` or `evict`.
        resource: The plural.
        name: The object's name.
        user_agent: A part of the `User-Agent` header.
        times: How many requests are hit; `None` hits all.
        probability: The probability that a matching request is hit; see `Faults.seed`.
        delay: Seconds to wait before anything else.
        status: Respond with this HTTP status instead of serving the request.
        reason: The reason of the `Status`; by default the usual one of that HTTP status.
        message: The message of the `Status`.
        retry_after: Seconds for `Retry-After`, with `status`; 0 sends no header.
        reset: Cut the connection instead of serving the request.
        lose_answer: Serve the request, then cut the connection instead of responding.
        lag: Serve reads from a cache that is this many seconds behind. As upstream, only
            reads with a `resourceVersion` are served from a cache. A version that the cache
            has not seen yet gets 504, without upstream's wait of 3 seconds.
        expire_continue: Refuse the continue token of a list with 410 and a new token, as
            after a compaction.
        spend_budget_only: Let an eviction use its disruption budget and stop there, as if the
            server died at that moment. The budget stays used until the disruption controller
            corrects it, upstream after 2 minutes. The response is `status`; without it the
            connection is cut.
        drop_after: End the watch properly after this many events.
        half_close_after: End the connection after this many events without ending the stream.
        stall_after: Keep the watch open after this many events, and send nothing more.
        stall_within: The same in the middle of the line that follows.
        truncate_after: Cut the connection in the middle of the line that follows.
        lose: Leave out the event with this number (from 1).
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
        """Whether the fault acts on the events of a watch."""
        return any(getattr(self, name) is not None for name in _STREAM_FIELDS)

    def matches(self, facts: "RequestFacts") -> bool:
        """Return whether the fault can hit a request."""
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

    def error(self) -> statuses.StatusError | None:
        """Return the refusal, if the fault refuses requests."""
        if self.status is None:
            return None
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after else None
        return statuses.StatusError(
            self.status,
            self.reason or _REASONS.get(self.status, ""),
            self.message or "injected fault",
            details=details,
            retry_after=self.retry_after,
        )


STAGES: Final[Mapping[str, Stage]] = {
    **dict.fromkeys(
        ("verb", "resource", "name", "user_agent", "times", "probability"), Stage.MATCH
    ),
    **dict.fromkeys(
        (
            "delay", "status", "reason", "message", "retry_after", "reset", "lag",
            "expire_continue", "spend_budget_only",
        ),
        Stage.BEFORE,
    ),
    "lose_answer": Stage.AFTER,
    **dict.fromkeys(
        (
            "drop_after", "half_close_after", "stall_after", "stall_within", "truncate_after",
            "lose", "duplicate",
        ),
        Stage.STREAM,
    ),
}  # fmt: skip
"""The stage of every field of `Fault`."""

_STREAM_FIELDS: Final = tuple(name for name, stage in STAGES.items() if stage is Stage.STREAM)

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
"""The faults that every client must tolerate.

A watch that loses events is not among them, because Kubernetes promises that it does not
happen. A watch that stalls is not, because a test would wait until the client gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """The facts of a request that decide which fault hits it.

    Attributes:
        verb: As in `Fault`.
        resource: The plural; empty if the request is not about a resource.
        name: The object's name; empty if the request is not about one object.
        user_agent: The header.
        from_cache: The request is a read that upstream serves from its watch cache.
        continues: The request asks for the next page of a list.
    """

    verb: str
    resource: str = ""
    name: str = ""
    user_agent: str = ""
    from_cache: bool = False
    continues: bool = False


@dataclass(slots=True)
class _Draws:
    """Random draws that depend only on the seed and on the number of earlier equal draws.

    A run can therefore be repeated although its threads are scheduled differently.
    """

    seed: int
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def draw(self, *what: str) -> random.Random:
        self.counts[what] += 1
        return random.Random(repr((self.seed, what, self.counts[what])))  # noqa: S311 - no secret


class Faults:
    """The faults that are armed, in the order in which they were added.

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
        """Disarm all faults, random ones included."""
        with self._faults_lock:
            self._armed.clear()
            self._rate, self._random_faults = 0.0, ()

    def seed(self, seed: int) -> None:
        """Restart the random draws for faults with a `probability`.

        The fault that hits the n-th request of a verb, a resource and a user agent follows
        from the seed: a client that sends the same requests in the same order gets the same
        faults.
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
        """Hit a share of all requests with random faults, until `clear`.

        Faults that were added come first. The seed is logged, so that a run can be repeated.

        Args:
            rate: The probability that a request is hit, if any of `among` can hit it.
            seed: As for `seed`; a random one by default.
            among: The faults to draw from, all equally likely. Their `times` and
                `probability` are ignored.

        Returns:
            The seed.

        Raises:
            ConfigError: `rate` is not between 0 and 1.
        """
        if not 0 <= rate <= 1:
            raise ConfigError("rate", rate, "it must be between 0 and 1")
        seed = secrets.randbits(32) if seed is None else seed
        with self._faults_lock:
            self._draws = _Draws(seed)
            self._rate, self._random_faults = rate, tuple(among)
        _log.info("random_faults_armed", seed=seed, rate=rate)
        return seed

    @property
    def pending(self) -> tuple[Fault, ...]:
        """The added faults that have not yet happened as often as they should."""
        with self._faults_lock:
            return tuple(fault for fault, _ in self._armed)

    @property
    def is_armed(self) -> bool:
        """Whether a request may be hit.

        Reads without the lock: a request that begins while a fault is added may miss it, as
        it would have a moment earlier.
        """
        return bool(self._armed or self._rate)

    def take(self, facts: RequestFacts) -> Fault | None:
        """Return the fault that hits a request, and count it as used once."""
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
    """The connection must be cut without a response."""


def request_facts(call: handler.ApiCall, request: requests.Request) -> RequestFacts:
    """Return the facts of a request that decide which fault hits it."""
    query = request.query
    return RequestFacts(
        verb=call.verb,
        resource=call.resource,
        name=call.name,
        user_agent=request.user_agent,
        from_cache=_is_from_cache(call, request),
        continues=call.verb == "list" and bool(query.get("continue")),
    )


def _is_from_cache(call: handler.ApiCall, request: requests.Request) -> bool:
    """Return whether upstream serves a read from its watch cache rather than from etcd."""
    query = request.query
    version, match = query.get("resourceVersion"), query.get("resourceVersionMatch")
    if not version or query.get("continue"):
        return False
    if call.verb == "list":
        pages = query.get("limit", "0") != "0" and version != "0" and not match
        return match != "Exact" and not pages
    return call.verb == "get"


def inject(
    fault: Fault, api: writes.Api, call: handler.ApiCall, request: requests.Request
) -> writes.Api:
    """Do what a fault does before a request is served; return the API that must serve it.

    The caller waits for the fault's delay.

    Raises:
        ConnectionCut: The connection must be cut.
        StatusError: The response.
    """
    if fault.spend_budget_only and call.target is not None:
        body, options = handler.read_eviction(request)
        eviction.spend_budget(api, call.target, body, options)
    error = fault.error()
    if fault.reset or (fault.spend_budget_only and error is None):
        raise ConnectionCut
    if error is not None:
        raise error
    if fault.expire_continue:
        raise reads.expired_page(request.query["continue"])
    if fault.lag and call.target is not None:
        return replace(api, store=api.store.as_of(call.target.kind.bucket, fault.lag))
    return api


def loses_response(fault: Fault | None) -> bool:
    """Return whether the connection must be cut instead of sending the response."""
    return fault is not None and fault.lose_answer


class StreamEnd(Enum):
    """How a fault ends the stream of a watch."""

    END = auto()
    """The stream ends properly."""
    CUT = auto()
    """The connection is cut."""
    HALF_CLOSE = auto()
    """The server closes its side of the connection, and keeps the other side open."""
    STALL = auto()
    """The server sends nothing more; the stream ends properly when the server stops."""
    STALL_WITHIN = auto()
    """The same in the middle of a line; the connection is cut when the server stops."""


class StreamFaults:
    """Decides which lines of a watch are sent, after a fault has hit the watch.

    Pure, except that it counts lines. The owner of the connection sends the result.
    """

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault if fault is not None and fault.is_for_watches else None
        self._sent = 0

    def apply(self, lines: Sequence[bytes]) -> Iterator[bytes | StreamEnd]:
        """Yield what to send; a `StreamEnd` is always the last item.

        A batch without lines asks for an end that is due before the first line.
        """
        if self._fault is None:
            if lines:
                yield b"".join(lines)
            return
        for line in lines:
            yield from self._one(self._fault, line)
        if not lines and (end := self._due(self._fault)):
            yield end

    def _one(self, fault: Fault, line: bytes) -> Iterator[bytes | StreamEnd]:
        if self._sent in {fault.truncate_after, fault.stall_within}:
            yield line[: len(line) // 2]
            yield StreamEnd.CUT if self._sent == fault.truncate_after else StreamEnd.STALL_WITHIN
        if end := self._due(fault):
            yield end
        self._sent += 1
        if self._sent == fault.lose:
            return
        yield line * 2 if self._sent == fault.duplicate else line
        if end := self._due(fault):
            yield end

    def _due(self, fault: Fault) -> StreamEnd | None:
        if self._sent == fault.drop_after:
            return StreamEnd.END
        if self._sent == fault.half_close_after:
            return StreamEnd.HALF_CLOSE
        return StreamEnd.STALL if self._sent == fault.stall_after else None
