"""The way of a request through the server, over HTTP or in memory, and the audit log.

A request is authorized, counted, routed, possibly hit by a fault, served, and recorded.
"""

import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from navarchos.logs import get_logger, traceback_of
from navarchos.testing.apiserver import handler, objects, watches, writes
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.faults import (
    ConnectionCut,
    Fault,
    Faults,
    inject,
    loses_response,
    request_facts,
)
from navarchos.testing.apiserver.requests import ApiResponse, Request, with_warnings

__all__ = [
    "MAX_BODY_BYTES",
    "AcceptedRequest",
    "AuditLog",
    "AuditRecord",
    "OpenedWatch",
    "RequestPipeline",
    "error_response",
    "failure_response",
    "too_large_response",
]

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""The longest body that a request may have, in bytes, as upstream."""

_AUDIT_LENGTH: Final = 10_000
_VERBS: Final = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "evict",
)  # fmt: skip

_log = get_logger(__name__)


class AuditRecord(NamedTuple):
    """One request and its result; `code` is 0 when the connection was cut."""

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user_agent: str
    code: int


class AuditLog:
    """Counts the requests, and keeps the latest ones.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._log_lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()  # verb, agent; guarded by _log_lock
        self._records: deque[AuditRecord] = deque(maxlen=_AUDIT_LENGTH)  # guarded by _log_lock

    @property
    def requests(self) -> Mapping[str, int]:
        """The number of requests on resources by verb; every verb is a key."""
        return self.requests_by("")

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Return the same for the clients whose user agent begins with `agent`."""
        found = dict.fromkeys(_VERBS, 0)
        with self._log_lock:
            for (verb, user_agent), count in self._counts.items():
                if user_agent.startswith(agent):
                    found[verb] += count
        return found

    @property
    def records(self) -> Sequence[AuditRecord]:
        """The latest requests on resources, oldest first."""
        with self._log_lock:
            return tuple(self._records)

    def count(self, call: handler.ApiCall, user_agent: str) -> None:
        """Count a request when it begins."""
        if call.target is not None:
            with self._log_lock:
                self._counts[call.verb, user_agent] += 1

    def add(self, call: handler.ApiCall, user_agent: str, code: int) -> None:
        """Keep a request that has got its response."""
        target = call.target
        if target is None:
            return
        record = AuditRecord(
            call.verb, call.resource, target.subresource, target.namespace,
            target.name or call.selected, user_agent, code,
        )  # fmt: skip
        with self._log_lock:
            self._records.append(record)


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A request that the server has authorized.

    Attributes:
        request: The request, with its user.
        call: The verb, and the object that it is about.
        fault: The fault that hits the request.
    """

    request: Request
    call: handler.ApiCall
    fault: Fault | None

    @property
    def delay(self) -> float:
        """Seconds to wait before the request is served."""
        return 0.0 if self.fault is None else self.fault.delay


class OpenedWatch(NamedTuple):
    """A watch that begins: the response without its body, and the lines."""

    head: ApiResponse
    lines: watches.WatchLines


class RequestPipeline:
    """Authorizes requests, lets them be served, and records them.

    Threads: safe from any thread; no method waits.
    """

    def __init__(self, api: writes.Api, audit: AuditLog, faults: Faults) -> None:
        self.api = api
        self._audit = audit
        self._faults = faults

    def admit(self, request: Request, headers: Collection[tuple[str, str]]) -> AcceptedRequest:
        """Authorize and count a request.

        Raises:
            StatusError: The path or the method does not exist, or the user lacks the
                permission.
        """
        try:
            user = self.api.access.authorize(request.method, request.path, request.query, headers)
        except statuses.StatusError as error:
            self._record_refused(request, error)
            raise
        call = handler.route(self.api, request)
        self._audit.count(call, request.user_agent)
        fault = None
        if self._faults.is_armed:
            fault = self._faults.take(request_facts(call, request))
        if user is not request.user:
            request = replace(request, user=user)
        return AcceptedRequest(request, call, fault)

    def _record_refused(self, request: Request, error: statuses.StatusError) -> None:
        """Record an unauthorized request, if its path and method exist."""
        try:
            call = handler.route(self.api, request)
        except statuses.StatusError:
            return  # a user without permission must not learn which paths exist
        self._audit.count(call, request.user_agent)
        self._audit.add(call, request.user_agent, error.code)

    def _begin(self, accepted: AcceptedRequest) -> writes.Api:
        if accepted.fault is None:
            return self.api
        return inject(accepted.fault, self.api, accepted.call, accepted.request)

    def respond(self, accepted: AcceptedRequest) -> ApiResponse:
        """Serve a request that is not a watch; a refusal is a response as well.

        Raises:
            ConnectionCut: A fault cuts the connection, before or after serving.
        """
        try:
            response = handler.serve(self._begin(accepted), accepted.call, accepted.request)
        except ConnectionCut:
            raise
        except Exception as error:  # noqa: BLE001 - an error of this server becomes a 500
            response = failure_response(error, accepted.request)
        if loses_response(accepted.fault):
            raise ConnectionCut
        return response

    def open_watch(self, accepted: AcceptedRequest, *, streaming: bool) -> OpenedWatch:
        """Begin a watch.

        Args:
            accepted: The request.
            streaming: Whether the server offers streaming lists.

        Raises:
            ConnectionCut: A fault cuts the connection.
            StatusError: The request is refused.
        """
        self._begin(accepted)
        lines = handler.open_watch(self.api, accepted.call, accepted.request, streaming=streaming)
        return OpenedWatch(handler.watch_head(accepted.call), lines)

    def record(self, accepted: AcceptedRequest, code: int) -> None:
        """Record the status of a response; 0 if the connection was cut."""
        self._audit.add(accepted.call, accepted.request.user_agent, code)


def error_response(error: statuses.StatusError) -> ApiResponse:
    """Return the response to a request that is refused."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    response = ApiResponse(error.code, objects.encode(error.to_json()), headers=headers)
    return with_warnings(response, error.warnings)


def too_large_response() -> ApiResponse:
    """Return the response to a request whose body is longer than `MAX_BODY_BYTES`."""
    message = f"Request entity too large: limit is {MAX_BODY_BYTES}"
    return error_response(statuses.StatusError(413, "RequestEntityTooLarge", message))


def failure_response(error: Exception, request: Request) -> ApiResponse:
    """Return the response to a request that raised an error; log it unless it is a refusal."""
    if isinstance(error, statuses.StatusError):
        return error_response(error)
    _log.error(
        "request_failed", method=request.method, path=request.path, error=traceback_of(error)
    )
    message = f"Internal error occurred: {error!r}"
    return error_response(statuses.StatusError(500, "InternalError", message))
