"""What the parts of a reflector share, and the pauses between its attempts."""

from typing import Final, Generic, TypeVar

import msgspec

from navarchos.backoff import BackoffTimer
from navarchos.client.errors import ApiError, ConnectFailed, TooManyRequests
from navarchos.clock import Clock
from navarchos.informers.ingest import Ingest
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.position import CachePosition
from navarchos.informers.scope import ScopedSource
from navarchos.logs import get_logger
from navarchos.stopping import StopToken

__all__ = ["MAX_RETRY_AFTER", "ReflectorBackoff", "ReflectorContext", "is_busy"]

T = TypeVar("T")

MAX_RETRY_AFTER: Final = 60.0
"""Longest pause in seconds that a server may ask for; the cache gets no changes meanwhile."""

_log = get_logger(__name__)


class ReflectorBackoff:
    """Waits between attempts; all pauses of one reflector grow together (RF-02, RF-15).

    Threads: owned by the reflector's thread.

    Args:
        kind: The resource, for the log.
        backoff: How pauses grow. A server that sends `Retry-After` gets at least that
            pause, up to `MAX_RETRY_AFTER`.
    """

    def __init__(self, kind: str, backoff: BackoffTimer) -> None:
        self._kind = kind
        self._backoff = backoff

    def delay(self, error: Exception | None) -> float:
        """Return the seconds to wait after an error or an orderly end, and grow."""
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        return max(self._backoff.next(), min(retry_after or 0.0, MAX_RETRY_AFTER))

    def wait_for_server(self, error: Exception, stop: StopToken) -> None:
        """Wait until a busy server may be asked again.

        Raises:
            Stopped: The token was set.
        """
        delay = self.delay(error)
        _log.warning("server_is_busy", resource=self._kind, error=str(error), delay=delay)
        stop.wait(delay)
        stop.raise_if_set()


class ReflectorContext(msgspec.Struct, Generic[T], frozen=True):
    """What the parts of one reflector share.

    Attributes:
        source: The objects to list and watch.
        ingest: Receives the objects and events.
        position: The versions seen so far.
        backoff: The pauses.
        metrics: The informer's metrics.
        clock: Time and waiting.
    """

    source: ScopedSource[T]
    ingest: Ingest[T]
    position: CachePosition
    backoff: ReflectorBackoff
    metrics: InformerMetrics
    clock: Clock


def is_busy(error: BaseException) -> bool:
    """Return whether the server only wants a later attempt: it is up, or about to be (RF-15)."""
    return isinstance(error, TooManyRequests) or (
        isinstance(error, ConnectFailed) and error.refused
    )
