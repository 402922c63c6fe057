"""One request to the API server, with everything that every request gets.

Credentials, the client's own rate limit, retries of reads, deadlines, metrics,
warnings, and the translation of error answers.
"""

import copy
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Generic, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from navarchos.client.config import ClientConfig
from navarchos.client.errors import (
    ApiError,
    ClientError,
    ConnectFailed,
    DecodeError,
    RequestTimeout,
    error_from_answer,
)
from navarchos.client.metrics import RequestMetrics
from navarchos.client.ratelimit import NoLimit, RequestLimit
from navarchos.client.renewal import Renewal
from navarchos.client.transport import HttpRequest, Response, Transport, WriteFence
from navarchos.clock import Clock
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.tokens import TokenBucket

__all__ = ["Call", "RawResponse", "RequestExecutor"]

R = TypeVar("R")

_log = get_logger(__name__)

_MOST_TRIES: Final = 10  # as client-go's
_MOST_WARNINGS: Final = 1_000
_FIRST_FAILURE: Final = 300  # API servers do not redirect; a proxy's login page does
_BROKEN_PAUSE: Final = 1.0  # as client-go's, for a server that drops new connections
_IMPERSONATE: Final = "impersonate-user"  # a call that names it says all of it, as in client-go
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class Call(msgspec.Struct, frozen=True):
    """A request before it has credentials and a deadline.

    Attributes:
        verb: As in errors and metrics.
        method: HTTP method.
        path: Path without query.
        resource: As in errors and metrics.
        key: As in errors.
        query: Parameters; those with an empty value are left out.
        body: The body, if there is one.
        content_type: Of the body.
        headers: Further header fields.
        timeout: Seconds; `None` for the client's own.
    """

    verb: str
    method: str
    path: str
    resource: str
    key: str = ""
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None
    timeout: float | None = None

    @property
    def target(self) -> str:
        """Path and query."""
        query = urlencode([(name, value) for name, value in self.query if value])
        joint = "&" if "?" in self.path else "?"
        return f"{self.path}{joint}{query}" if query else self.path

    @property
    def is_read(self) -> bool:
        """Whether repeating it cannot change anything."""
        return self.method in {"GET", "HEAD"}


class RawResponse(msgspec.Struct, frozen=True):
    """An answer as it came.

    Attributes:
        status: HTTP status.
        headers: Header fields, names in lower case.
        body: The whole body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def size(self) -> int:
        """Of the body, in bytes."""
        return len(self.body)


class _Taken(msgspec.Struct, Generic[R], frozen=True):
    """What was made of a body while it came, and how large that was."""

    made: R
    size: int


class RequestExecutor:
    """Performs calls for one client.

    Promises: only reads are repeated: after 429 or 503 when the server says when
    to come back, at once when a kept connection turned out to be closed, and a second
    later when a new one broke before the answer was complete (client-go
    rest/request.go). Watches are opened again by whoever asked for them. Any request
    is repeated once after 401 with renewed credentials, which are fetched once for all
    that were refused with the same ones. All tries together end at
    the call's deadline.

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
        """Return this caller with a fence before whatever may change something."""
        behind = copy.copy(self)
        behind._fence = fence  # noqa: SLF001 - of our own copy
        return behind

    def call(self, call: Call, stop: StopToken | None = None) -> RawResponse:
        """Perform a call and return the answer, whatever its status.

        Args:
            call: What to send.
            stop: Frees whoever waits; a child of the client's own token, which is
                the one used without it.

        Raises:
            TransportError: There was no answer.
            Stopped: The client was closed or told to stop.
        """
        return self._perform(call, self.stop if stop is None else stop, _whole)

    def checked(self, call: Call, stop: StopToken | None = None) -> RawResponse:
        """Perform a call, as `call` does, and return the answer if it is a success.

        Raises:
            ApiError: The server refused.
            TransportError: There was no answer.
            Stopped: The client was closed or told to stop.
        """
        response = self.call(call, stop)
        if response.status >= _FIRST_FAILURE:
            raise _error(call, response)
        return response

    def received(self, call: Call, stop: StopToken, take: Callable[[Iterator[bytes]], R]) -> R:
        """Perform a call as `checked` does, and return what `take` makes of the body.

        Args:
            call: What to send.
            stop: Frees whoever waits; a child of the client's own token.
            take: Gets the body as it comes. Called anew, from the first part, each time
                that the call is repeated because an answer broke off.

        Raises:
            ApiError: The server refused.
            TransportError: There was no complete answer.
            Stopped: The client was closed or told to stop.
        """
        found = self._perform(call, stop, partial(_taken, take))
        if isinstance(found, RawResponse):
            raise _error(call, found)
        return found.made

    def open(self, call: Call, stop: StopToken) -> Response:
        """Perform a call and return its answer while the body is still to come.

        Args:
            call: Its timeout covers the head of the answer only.
            stop: Setting it frees whoever waits for the answer or reads from it.
                A child of the client's own token.

        Raises:
            ApiError: The server refused.
            TransportError: There was no answer.
            Stopped: The token was set.
        """
        answer = self._perform(call, stop, lambda answer: answer)
        if answer.status >= _FIRST_FAILURE:
            raise _error(call, _whole(answer))
        return answer

    def _perform(self, call: Call, stop: StopToken, receive: Callable[[Response], R]) -> R:
        timeout = call.timeout if call.timeout is not None else self._config.timeout
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        try:
            return self._repeat(call, _Tries(deadline, self._clock, stop), receive)
        except ClientError as error:
            error.verb, error.resource, error.key = call.verb, call.resource, call.key
            raise

    def _repeat(self, call: Call, tries: "_Tries", receive: Callable[[Response], R]) -> R:
        while True:
            waited = tries.begin(self._limit)
            if self._config.qps is not None:
                self._metrics.waited(call.method, waited)
            renewals = self._renewal.count
            try:
                answer, received = self._try(call, tries, receive)
            except ConnectFailed as error:
                if call.is_read and tries.may_reconnect(error, watch=call.verb == "watch"):
                    continue
                raise
            if answer.status == 401 and self._config.renew and tries.may_renew():
                answer.close()
                self._renewal.after(renewals)
                continue
            if call.verb != "watch" and call.is_read and answer.status in {429, 503}:
                delay = _retry_after(received)
                if delay is not None and tries.may_wait(delay):
                    continue
            return received

    def _renew(self) -> None:
        if self._config.renew:
            self._config.renew()
            # Kept connections have shown the old client certificate.
            self._transport.close()

    def _try(
        self, call: Call, tries: "_Tries", receive: Callable[[Response], R]
    ) -> tuple[Response, R]:
        begun = self._clock.monotonic()
        code = "<error>"
        try:
            answer = self._transport.send(self._request(call, tries))
            self._log_warnings(answer.headers.get("warning", ""))
            try:
                received = receive(answer)
            except DecodeError:
                code = str(answer.status)  # it came, whatever it is
                raise
            code = str(answer.status)
            size = received.size if isinstance(received, RawResponse | _Taken) else None
            self._metrics.sized(call.method, sent=len(call.body or b""), received=size)
            return answer, received
        finally:
            self._metrics.tried(
                call.method,
                call.verb,
                call.resource,
                code=code,
                seconds=self._clock.monotonic() - begun,
                again=tries.again,
            )

    def _request(self, call: Call, tries: "_Tries") -> HttpRequest:
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
        """Log what the server warns of, such as deprecated versions, once each (CL-17)."""
        for text in _WARNING.findall(header):
            if self._is_news(text):
                _log.warning("api_server_warning", text=text)

    def _is_news(self, text: str) -> bool:
        with self._warned_lock:
            if text in self._warned or len(self._warned) >= _MOST_WARNINGS:
                return False
            self._warned.add(text)
            return True


class _Tries:
    """The deadline, the waits and the permitted repeats of one call."""

    def __init__(self, deadline: float | None, clock: Clock, stop: StopToken) -> None:
        self.stop = stop
        self._deadline = deadline
        self._clock = clock
        self._begun = 0
        self._renewed = False

    def left(self) -> float | None:
        """Seconds until the deadline; `None` without one, 0 when it has passed."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - self._clock.monotonic())

    @property
    def again(self) -> bool:
        """Whether the present try is not the first."""
        return self._begun > 1

    def begin(self, limit: RequestLimit) -> float:
        """Wait for the client's own limit; raise if there is no time left.

        Returns:
            The wait in seconds.
        """
        self.stop.raise_if_set()
        left = self.left()
        if left == 0:
            raise RequestTimeout("the deadline passed before the request was sent")
        delay = limit.reserve(left)
        if delay is None:
            raise RequestTimeout("this client's own rate limit leaves no time; raise qps and burst")
        if delay > 0:
            self.stop.wait(delay)
            self.stop.raise_if_set()
        self._begun += 1
        return delay

    def may_reconnect(self, error: ConnectFailed, *, watch: bool) -> bool:
        """Tell whether a read may go over another connection; wait if it should."""
        if error.kept:
            # Each such failure uses up one kept connection, so this ends.
            return self.left() != 0
        return error.sent and not watch and self.may_wait(_BROKEN_PAUSE)

    def may_wait(self, delay: float) -> bool:
        """Wait before another try, if tries and time allow it."""
        left = self.left()
        if self._begun >= _MOST_TRIES or (left is not None and delay >= left):
            return False
        self.stop.wait(delay)
        return True

    def may_renew(self) -> bool:
        """Tell, once, that credentials may be renewed."""
        self._renewed, before = True, self._renewed
        return not before


def _taken(take: Callable[[Iterator[bytes]], R], answer: Response) -> "_Taken[R] | RawResponse":
    """Return what is made of a success; the answer itself if it is none."""
    if answer.status >= _FIRST_FAILURE:
        return _whole(answer)
    sizes: list[int] = []
    try:
        made = take(_measured(answer.parts(), sizes))
    finally:
        answer.close()
    return _Taken(made, sum(sizes))


def _measured(parts: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    for part in parts:
        sizes.append(len(part))
        yield part


def _whole(answer: Response) -> RawResponse:
    try:
        body = answer.read()
    finally:
        answer.close()
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return RawResponse(answer.status, headers, body)


def _error(call: Call, response: RawResponse) -> ApiError:
    return error_from_answer(
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
    return error_from_answer(received.status, received.headers, received.body).retry_after


def _limit(config: ClientConfig, clock: Clock) -> RequestLimit:
    if config.qps is None:
        return NoLimit()
    burst = config.burst if config.burst is not None else max(1, round(2 * config.qps))
    return TokenBucket(config.qps, burst, clock=clock)
