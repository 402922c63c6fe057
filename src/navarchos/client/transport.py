"""The interface between requests and the network.

A `Transport` sends one request and returns one response. All code above it (retries,
errors, decoding, watches) is the same over a real connection and over a function, which
tests use instead:

```python
client = Client(config, transport=FunctionTransport(respond))
```
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from navarchos.stopping import StopToken

__all__ = [
    "BufferedResponse",
    "Call",
    "FunctionTransport",
    "HttpRequest",
    "RawResponse",
    "Response",
    "Transport",
    "WriteFence",
]

WriteFence = Callable[[], float]
"""Return for how many seconds from now a write may be in progress.

Raises, preferably a subclass of `Stopped`, if the write must not be sent at all. Called
from any thread, several times per request, and finally immediately before the bytes are
handed to the network. A leader election uses it: the fence is closed when the lease ends.
"""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request.

    Attributes:
        method: `GET` and so on.
        target: Path and encoded query, as in the request's first line.
        headers: Header fields with one value. They contain credentials, so they are left
            out of the `repr`.
        body: The body, if there is one.
        repeated: Further header fields, whose names may occur several times.
        timeout: Seconds until the response must begin, and until a body that is read
            whole must be complete; `None` waits without limit.
        stop: Setting it unblocks a thread that sends this request or reads its response.
        fence: Asked before bytes are sent; its exception prevents the request.
        resolved: Called with the seconds that a look-up of the host's name took.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    repeated: Sequence[tuple[str, str]] = ()
    timeout: float | None = None
    stop: StopToken | None = field(default=None, repr=False)
    fence: WriteFence | None = field(default=None, repr=False)
    resolved: Callable[[float], None] | None = field(default=None, repr=False)


class Call(msgspec.Struct, frozen=True):
    """A request before it has credentials and a deadline.

    Attributes:
        verb: The verb in errors and metrics, such as `list`.
        method: HTTP method.
        path: Path without query.
        resource: The resource in errors and metrics.
        key: The object in errors.
        query: Parameters; a parameter with an empty value is left out.
        body: The body, if any.
        content_type: The media type of the body.
        headers: Further header fields.
        timeout: Seconds; `None` for the client's default.
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
        """Whether the request cannot change anything on the server."""
        return self.method in {"GET", "HEAD"}


class RawResponse(msgspec.Struct, frozen=True):
    """A response with its whole body.

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
        """The size of the body in bytes."""
        return len(self.body)


class Response(Protocol):
    """The head of a response, and its body while it arrives.

    The caller of `Transport.send` closes it, on every path. It belongs to one thread at a
    time; another thread can unblock that thread by setting the request's stop token.
    Methods raise `TransportError`, or `Stopped` when the token is set.
    """

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields; look-ups ignore case, or all names are in lower case."""
        ...

    @property
    def is_outdated(self) -> bool:
        """Whether the connection was made with certificates that were replaced since."""
        ...

    def read(self) -> bytes:
        """Return the whole body within the timeout of the request, and close."""
        ...

    def parts(self) -> Iterator[bytes]:
        """Yield the whole body as it arrives, within the timeout of the request, and close."""
        ...

    def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
        """Return the next bytes, waiting until there are some.

        Args:
            timeout: Maximum wait in seconds; `None` waits without limit.
            batch: Wait some milliseconds longer for more bytes. This saves much CPU when
                many bytes arrive in small pieces.

        Returns:
            `b""` at the end of a complete body.

        Raises:
            RequestTimeout: No bytes arrived in time.
            ConnectFailed: The body ended early.
        """
        ...

    def close(self) -> None:
        """Release the connection; close it if the body was not read to its end."""
        ...


class Transport(Protocol):
    """Sends requests. Safe from any thread."""

    def send(self, request: HttpRequest) -> Response:
        """Send a request and wait for the head of its response, for any status.

        Raises:
            TransportError: There is no response; `sent` says whether the server may have
                received the request.
            Stopped: The request's stop token is set.
        """
        ...

    def close(self) -> None:
        """Close idle connections. Responses in use stay usable."""
        ...


@dataclass(slots=True)
class BufferedResponse:
    """A response whose body is in memory."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_outdated: bool = False

    def read(self) -> bytes:
        """Return the body."""
        return self.body

    def parts(self) -> Iterator[bytes]:
        """Yield the body."""
        yield self.body

    def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
        """Return the body once, then `b""`."""
        body, self.body = self.body, b""
        return body

    def close(self) -> None:
        """Do nothing, because there is no connection."""


class FunctionTransport:
    """A transport that calls a function with each request."""

    def __init__(self, respond: Callable[[HttpRequest], Response]) -> None:
        self._respond = respond

    def send(self, request: HttpRequest) -> Response:
        """Return the result of the function."""
        return self._respond(request)

    def close(self) -> None:
        """Do nothing, because there is no connection."""
