"""Executes requests to the API server.

Adds credentials, the client's own rate limit, retries of reads, deadlines, metrics and
logged warnings, and turns error responses into exceptions.
"""

import copy
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Generic, Protocol, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from navarchos.client import errors
from navarchos.client.config import ClientConfig
from navarchos.client.credentials import Renewal
from navarchos.client.metrics import RequestMetrics
from navarchos.client.transport import (
    Call,
    HttpRequest,
    RawResponse,
    Response,
    Transport,
    WriteFence,
)
from navarchos.clock import Clock
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.tokens import TokenBucket

__all__ = ["NoLimit", "RequestExecutor", "RequestLimit"]

R = TypeVar("R")

_log = get_logger(__name__)

_MAX_TRIES: Final = 10  # as client-go
_MAX_WARNINGS: Final = 1_000
_FIRST_FAILURE: Final = 300  # API servers do not redirect; the login page of a proxy does
_BROKEN_PAUSE: Final = 1.0  # as client-go, for a server that drops new connections
# A call with this header replaces the client's whole impersonation, as in client-go.
_IMPERSONATE: Final = "impersonate-user"
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class RequestLimit(Protocol):
    """The client's own limit on its requests. Safe from any thread."""

    def reserve(self, longest: float | None) -> float | None:
        """Reserve the next request.

        Args:
            longest: Maximum wait in seconds; `None` for no maximum.

        Returns:
            Seconds to wait before sending; `None` if the wait would be longer than
            `longest`, and then nothing is reserved.
        """
        ...


class NoLimit:
    """No limit."""

    def reserve(self, longest: float | None) -> float | None:
        """Return 0."""
        return 0.0


class _Parsed(msgspec.Struct, Generic[R], frozen=True):
    """The result of reading a body, and the size of the body."""

    result: R
    size: int


class RequestExecutor:
    """Executes the calls of one client.

    Promises: only reads are repeated: after 429 or 503 with a `Retry-After` header; at
    once if a pooled connection turned out to be closed; and a second later if a new
    connection broke before the response was complete (as client-go's rest/request.go).
    Watches are not repeated; their caller opens them again. After 401 any request is
    repeated once with renewed credentials, which are fetched once for all requests that
    were refused with the same credentials. All tries together end at the call's deadline.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        config: ClientConfig,
        transport: Transport,
        *,
        clock: Clock,
        instruments: Instruments,
        stop: StopToken,
    ) -> None:
        self.stop = stop
        self._fence: WriteFence | None = None
        self._config = config
        self._transport = transport
        self._clock = clock
        self._limit = _limit(config, clock)
        self._metrics = RequestMetrics(instruments, urlsplit(config.host).netloc)
        self._renewal = Renewal(self._renew)
        impersonate = config.impersonate
        self._impersonated = impersonate.headers() if impersonate is not None else ()
        self._warned_lock = threading.Lock()
        self._warned: set[str] = set()  # guarded by _warned_lock

    def fenced(self, fence: WriteFence) -> Self:
        """Return a copy that asks the fence before each request that is not a read."""
        fenced = copy.copy(self)
        fenced._fence = fence  # noqa: SLF001 - a copy of this object
        return fenced

    def call(self, call: Call, stop: StopToken | None = None) -> RawResponse:
        """Execute a call and return the response, for any status.

        Args:
            call: The request.
            stop: Setting it unblocks the caller; a child of the client's own token, which
                is the default.

        Raises:
            TransportError: There was no response.
            Stopped: The client was closed, or its stop token was set.
        """
        return self._perform(call, self.stop if stop is None else stop, _whole)

    def checked(self, call: Call, stop: StopToken | None = None) -> RawResponse:
        """Execute a call as `call` does, and return the response of a success.

        Raises:
            ApiError: The server refused the request.
            TransportError: There was no response.
            Stopped: The client was closed, or its stop token was set.
        """
        response = self.call(call, stop)
        if response.status >= _FIRST_FAILURE:
            raise _error(call, response)
        return response

    def stream_into(self, call: Call, stop: StopToken, take: Callable[[Iterator[bytes]], R]) -> R:
        """Execute a call as `checked` does, and return the result of `take`.

        Args:
            call: The request.
            stop: Setting it unblocks the caller; a child of the client's own token.
            take: Reads the body while it arrives. If a response breaks off and the call is
                repeated, `take` is called again and starts with the first part.

        Raises:
            ApiError: The server refused the request.
            TransportError: There was no complete response.
            Stopped: The client was closed, or its stop token was set.
        """
        found = self._perform(call, stop, partial(_taken, take))
        if isinstance(found, RawResponse):
            raise _error(call, found)
        return found.result

    def open(self, call: Call, stop: StopToken) -> Response:
        """Execute a call and return its response before the body has arrived.

        Args:
            call: Its timeout covers the head of the response only.
            stop: Setting it unblocks a thread that waits for the response or reads it. A
                child of the client's own token.

        Raises:
            ApiError: The server refused the request.
            TransportError: There was no response.
            Stopped: The token was set.
        """
        response = self._perform(call, stop, lambda response: response)
        if response.status >= _FIRST_FAILURE:
            raise _error(call, _whole(response))
        return response

    def _perform(self, call: Call, stop: StopToken, receive: Callable[[Response], R]) -> R:
        timeout = call.timeout if call.timeout is not None else self._config.timeout
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        try:
            return self._repeat(call, _RetryState(deadline, self._clock, stop), receive)
        except errors.ClientError as error:
            error.verb, error.resource, error.key = call.verb, call.resource, call.key
            raise

    def _repeat(self, call: Call, tries: "_RetryState", receive: Callable[[Response], R]) -> R:
        while True:
            waited = tries.begin(self._limit)
            if self._config.qps is not None:
                self._metrics.waited(call.method, waited)
            renewals = self._renewal.count
            try:
                response, received = self._try(call, tries, receive)
            except errors.ConnectFailed as error:
                if call.is_read and tries.may_reconnect(error, watch=call.verb == "watch"):
                    continue
                raise
            if response.status == 401 and self._config.renew and tries.may_renew():
                response.close()
                self._renewal.after(renewals)
                continue
            if call.verb != "watch" and call.is_read and response.status in {429, 503}:
                delay = _retry_after(received)
                if delay is not None and tries.may_wait(delay):
                    continue
            return received

    def _renew(self) -> None:
        if self._config.renew:
            self._config.renew()
            # Pooled connections were made with the old client certificate.
            self._transport.close()

    def _try(
        self, call: Call, tries: "_RetryState", receive: Callable[[Response], R]
    ) -> tuple[Response, R]:
        begun = self._clock.monotonic()
        code = "<error>"
        try:
            response = self._transport.send(self._request(call, tries))
            self._log_warnings(response.headers.get("warning", ""))
            try:
                received = receive(response)
            except errors.DecodeError:
                code = str(response.status)  # a response arrived, even if it is unreadable
                raise
            code = str(response.status)
            size = received.size if isinstance(received, RawResponse | _Parsed) else None
            self._metrics.sized(call.method, sent=len(call.body or b""), received=size)
            return response, received
        finally:
            self._metrics.tried(
                call.method,
                call.verb,
                call.resource,
                code=code,
                seconds=self._clock.monotonic() - begun,
                again=tries.again,
            )

    def _request(self, call: Call, tries: "_RetryState") -> HttpRequest:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": self._config.user_agent,
        }
        if self._config.authorization and (value := self._config.authorization()):
            headers["Authorization"] = value
        if self._config.compression and call.verb == "list":
            headers["Accept-Encoding"] = "gzip"
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        given = call.headers or {}
        named = {name.lower() for name in given}
        kept = {name: value for name, value in headers.items() if name.lower() not in named}
        timeout, fence = tries.left(), None if call.is_read else self._fence
        if fence is not None:
            allowed = fence()
            timeout = allowed if timeout is None else min(timeout, allowed)
        return HttpRequest(
            call.method,
            call.target,
            {**kept, **given},
            call.body,
            repeated=() if _IMPERSONATE in named else self._impersonated,
            timeout=timeout,
            stop=tries.stop,
            fence=fence,
            resolved=self._metrics.resolved,
        )

    def _log_warnings(self, header: str) -> None:
        """Log each warning of the server, such as a deprecated version, once (CL-17)."""
        for text in _WARNING.findall(header):
            if self._is_new_warning(text):
                _log.warning("api_server_warning", text=text)

    def _is_new_warning(self, text: str) -> bool:
        with self._warned_lock:
            if text in self._warned or len(self._warned) >= _MAX_WARNINGS:
                return False
            self._warned.add(text)
            return True


class _RetryState:
    """The deadline, the waits and the allowed repeats of one call."""

    def __init__(self, deadline: float | None, clock: Clock, stop: StopToken) -> None:
        self.stop = stop
        self._deadline = deadline
        self._clock = clock
        self._begun = 0
        self._renewed = False

    def left(self) -> float | None:
        """Return the seconds until the deadline; `None` without one, 0 after it."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - self._clock.monotonic())

    @property
    def again(self) -> bool:
        """Whether the current try is a repeat."""
        return self._begun > 1

    def begin(self, limit: RequestLimit) -> float:
        """Begin a try: wait for the client's own limit.

        Returns:
            The wait in seconds.

        Raises:
            RequestTimeout: The deadline has passed, or the wait would be longer.
            Stopped: The stop token was set.
        """
        self.stop.raise_if_set()
        left = self.left()
        if left == 0:
            raise errors.RequestTimeout("the deadline passed before the request was sent")
        delay = limit.reserve(left)
        if delay is None:
            raise errors.RequestTimeout(
                "the wait for this client's own rate limit exceeds the timeout; raise qps and burst"
            )
        if delay > 0:
            self.stop.wait(delay)
            self.stop.raise_if_set()
        self._begun += 1
        return delay

    def may_reconnect(self, error: errors.ConnectFailed, *, watch: bool) -> bool:
        """Return whether a read may use another connection; wait before it if needed."""
        if error.kept:
            # Each such failure removes one pooled connection, so this loop ends.
            return self.left() != 0
        return error.sent and not watch and self.may_wait(_BROKEN_PAUSE)

    def may_wait(self, delay: float) -> bool:
        """Wait before another try and return True, unless tries or time are used up."""
        left = self.left()
        if self._begun >= _MAX_TRIES or (left is not None and delay >= left):
            return False
        self.stop.wait(delay)
        return True

    def may_renew(self) -> bool:
        """Return whether credentials may be renewed; True only for the first call."""
        self._renewed, before = True, self._renewed
        return not before


def _taken(take: Callable[[Iterator[bytes]], R], response: Response) -> "_Parsed[R] | RawResponse":
    """Return the result of reading a success; the whole response for an error status."""
    if response.status >= _FIRST_FAILURE:
        return _whole(response)
    sizes: list[int] = []
    try:
        result = take(_measured(response.parts(), sizes))
    finally:
        response.close()
    return _Parsed(result, sum(sizes))


def _measured(parts: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    for part in parts:
        sizes.append(len(part))
        yield part


def _whole(response: Response) -> RawResponse:
    try:
        body = response.read()
    finally:
        response.close()
    headers = {name.lower(): value for name, value in response.headers.items()}
    return RawResponse(response.status, headers, body)


def _error(call: Call, response: RawResponse) -> errors.ApiError:
    return errors.error_from_response(
        response.status,
        response.headers,
        response.body,
        verb=call.verb,
        resource=call.resource,
        key=call.key,
    )


def _retry_after(received: object) -> float | None:
    if not isinstance(received, RawResponse):
        return None
    return errors.error_from_response(received.status, received.headers, received.body).retry_after


def _limit(config: ClientConfig, clock: Clock) -> RequestLimit:
    if config.qps is None:
        return NoLimit()
    burst = config.burst if config.burst is not None else max(1, round(2 * config.qps))
    return TokenBucket(config.qps, burst, clock=clock)
