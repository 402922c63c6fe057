"""Where requests arrive, over HTTP or without: who asks, what for, and what goes wrong.

The record of requests: counts, and the latest ones with their outcome.
"""

import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from navarchos.logs import get_logger, traceback_of
from navarchos.testing.apiserver.faults import Fault, Faults, inject, request_facts
from navarchos.testing.apiserver.handler import Call, Request, open_watch, route, serve, watch_head
from navarchos.testing.apiserver.objects import encode
from navarchos.testing.apiserver.requests import Response, with_warnings
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.watches import WatchLines
from navarchos.testing.apiserver.writes import Api

__all__ = [
    "MAX_BODY_BYTES",
    "AcceptedRequest",
    "AuditLog",
    "AuditRecord",
    "RequestPipeline",
    "error_response",
    "failure_response",
    "too_large_response",
]

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""The longest body that a request may have, in bytes, as upstream."""

_log = get_logger(__name__)

_AUDIT_LENGTH: Final = 10_000
_VERBS: Final = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "evict",
)  # fmt: skip


class AuditRecord(NamedTuple):
    """One request and its outcome; `code` is 0 when the connection was cut."""

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user_agent: str
    code: int


class AuditLog:
    """Counts and the latest requests.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._record_lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()  # verb, agent; guarded by _record_lock
        self._audit: deque[AuditRecord] = deque(maxlen=_AUDIT_LENGTH)  # guarded by _record_lock

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests on resources by verb; every verb is there."""
        return self.requests_by("")

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Those of clients whose user agent begins like this; every verb is there."""
        found = dict.fromkeys(_VERBS, 0)
        with self._record_lock:
            for (verb, user_agent), count in self._counts.items():
                if user_agent.startswith(agent):
                    found[verb] += count
        return found

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The latest requests on resources, oldest first."""
        with self._record_lock:
            return tuple(self._audit)

    def count(self, call: Call, user_agent: str) -> None:
        """Count a request as it begins."""
        if call.target is not None:
            with self._record_lock:
                self._counts[call.verb, user_agent] += 1

    def add(self, call: Call, user_agent: str, code: int) -> None:
        """Keep a request that has been answered."""
        target = call.target
        if target is None:
            return
        record = AuditRecord(
            call.verb, call.resource, target.subresource, target.namespace,
            target.name or call.selected, user_agent, code,
        )  # fmt: skip
        with self._record_lock:
            self._audit.append(record)


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A request that has been let in.

    Attributes:
        request: What came, and whom it is made for.
        call: What it asks for.
        fault: What is to go wrong with it.
    """

    request: Request
    call: Call
    fault: Fault | None

    @property
    def delay(self) -> float:
        """Seconds to wait before it is served."""
        return 0.0 if self.fault is None else self.fault.delay


class RequestPipeline:
    """Lets requests in, has them served, and keeps the record.

    Threads: safe from any thread; nothing here waits.
    """

    def __init__(self, api: Api, record: AuditLog, faults: Faults) -> None:
        self.api = api
        self._record = record
        self._faults = faults

    def admit(self, request: Request, headers: Collection[tuple[str, str]]) -> AcceptedRequest:
        """Let a request in; it is counted then.

        Raises:
            StatusError: It is refused: nobody may ask that, or not this user.
        """
        api = self.api
        try:
            user = api.access.authorize(request.method, request.path, request.query, headers)
        except StatusError as error:
            self._record_refused(request, error)
            raise
        call = route(api, request)
        self._record.count(call, request.user_agent)
        fault = None
        if self._faults.is_armed:
            fault = self._faults.take(request_facts(call, request))
        if user is not request.user:
            request = replace(request, user=user)
        return AcceptedRequest(request, call, fault)

    def _record_refused(self, request: Request, error: StatusError) -> None:
        """Keep a request that is refused, if it is one that anybody could make."""
        try:
            call = route(self.api, request)
        except StatusError:
            return  # nobody learns here what is served
        self._record.count(call, request.user_agent)
        self._record.add(call, request.user_agent, error.code)

    def begin(self, accepted: AcceptedRequest) -> Api:
        """Let the case's fault strike; returns what is to serve it.

        Raises:
            Cut: The connection is to end.
            StatusError: The fault refuses it.
        """
        if accepted.fault is None:
            return self.api
        return inject(accepted.fault, self.api, accepted.call, accepted.request)

    def answer(self, accepted: AcceptedRequest) -> Response:
        """Serve whatever is not a watch; refusals are answers, too.

        Raises:
            Cut: The connection is to end.
        """
        return serve(self.begin(accepted), accepted.call, accepted.request)

    def watch(self, accepted: AcceptedRequest, *, streaming: bool) -> tuple[Response, WatchLines]:
        """Begin a watch: returns the head of its answer, and what it tells.

        Raises:
            Cut: The connection is to end.
            StatusError: The refusal.
        """
        self.begin(accepted)
        lines = open_watch(self.api, accepted.call, accepted.request, streaming=streaming)
        return watch_head(accepted.call), lines

    def close(self, accepted: AcceptedRequest, code: int) -> None:
        """Keep a request that has been answered; `code` is 0 if its connection was cut."""
        self._record.add(accepted.call, accepted.request.user_agent, code)


def error_response(error: StatusError) -> Response:
    """Return the answer to a request that is refused."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    answer = Response(error.code, encode(error.to_json()), headers=headers)
    return with_warnings(answer, error.warnings)


def too_large_response() -> Response:
    """Return the answer to a request whose body is longer than `MAX_BODY_BYTES`."""
    message = f"Request entity too large: limit is {MAX_BODY_BYTES}"
    return error_response(StatusError(413, "RequestEntityTooLarge", message))


def failure_response(error: Exception, request: Request) -> Response:
    """Return the answer to a request that failed; a fault of ours is logged, too."""
    if isinstance(error, StatusError):
        return error_response(error)
    _log.error(
        "request_failed", method=request.method, path=request.path, exception=traceback_of(error)
    )
    message = f"Internal error occurred: {error!r}"
    return error_response(StatusError(500, "InternalError", message))
