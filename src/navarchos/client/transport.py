"""The seam between requests and the network.

A `Transport` sends one request and returns one answer. Everything above it
(retries, errors, decoding, watches) is the same over a real connection and over
a function, which is what tests put here:

```python
client = Client(config, transport=FunctionTransport(answer))
```
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from navarchos.stopping import StopToken

__all__ = [
    "BufferedResponse",
    "FunctionTransport",
    "HttpRequest",
    "Response",
    "Transport",
    "WriteFence",
]

WriteFence = Callable[[], float]
"""Says for how many seconds from now a request may be under way.

Raises, best a kind of `Stopped`, when it must not be sent at all. Called from any
thread, several times per request, and at last immediately before its bytes are handed
to the network.
"""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request.

    Attributes:
        method: `GET` and so on.
        target: Path and encoded query, as in the request's first line.
        headers: All that the caller sets once. Credentials are among them, so they are
            not in the `repr`.
        body: The body, if there is one.
        repeated: Further header fields, whose names may come several times.
        timeout: Seconds for the answer to begin, and for a body that is read
            whole to be complete; `None` waits without limit.
        stop: Setting it frees a thread that is blocked in this request or in its
            answer.
        fence: Asked before bytes are sent; what it raises keeps them here.
        resolved: Told the seconds that a look-up of the host's name took, if there was
            one.
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


class Response(Protocol):
    """The head of an answer, and its body as it comes.

    The receiver closes it, on every path. Owned by one thread at a time; another
    one frees it by setting the request's token. Failures are `TransportError`, or
    `Stopped` when that token is set.
    """

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields; look-ups ignore case, or names are in lower case."""
        ...

    @property
    def is_outdated(self) -> bool:
        """Whether the connection was made with certificates that have been replaced."""
        ...

    def read(self) -> bytes:
        """Return the whole body within the request's timeout, and close."""
        ...

    def parts(self) -> Iterator[bytes]:
        """Yield the whole body as it comes, within the request's timeout, and close."""
        ...

    def read_some(self, timeout: float | None, *, gather: bool = False) -> bytes:
        """Return the next bytes, waiting until there are some.

        Args:
            timeout: Longest silence in seconds; `None` waits without limit.
            gather: Whether more may be let come for some milliseconds. That costs much
                less where much comes in small pieces.

        Returns:
            `b""` at the proper end of the body.

        Raises:
            RequestTimeout: Nothing came in time.
            ConnectFailed: The body ended early.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; one whose body is not read to its end is shut."""
        ...


class Transport(Protocol):
    """Sends requests. Safe from any thread."""

    def send(self, request: HttpRequest) -> Response:
        """Send a request and wait for the head of its answer, whatever its status.

        Raises:
            TransportError: There is no answer; `sent` tells what may have happened.
            Stopped: The request's token is set.
        """
        ...

    def close(self) -> None:
        """Close idle connections. Answers in use stay usable."""
        ...


@dataclass(slots=True)
class BufferedResponse:
    """An answer that is already there."""

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

    def read_some(self, timeout: float | None, *, gather: bool = False) -> bytes:
        """Return the body once, then its end."""
        body, self.body = self.body, b""
        return body

    def close(self) -> None:
        """Do nothing: there is no connection."""


class FunctionTransport:
    """A transport that is a function of the request."""

    def __init__(self, answer: Callable[[HttpRequest], Response]) -> None:
        self._answer = answer

    def send(self, request: HttpRequest) -> Response:
        """Return what the function returns, or raise what it raises."""
        return self._answer(request)

    def close(self) -> None:
        """Do nothing: there is no connection."""
