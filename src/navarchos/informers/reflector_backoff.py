"""The pauses of one reflector, which all grow by one back-off."""

from typing import Final

from navarchos.backoff import BackoffTimer
from navarchos.client.errors import ApiError, ConnectFailed, TooManyRequests
from navarchos.logs import get_logger
from navarchos.stopping import StopToken

__all__ = ["MAX_RETRY_AFTER", "ReflectorBackoff", "is_busy"]

MAX_RETRY_AFTER: Final = 60.0
"""Seconds; what a server asks for beyond that is not granted: a cache would be blind so long."""

_log = get_logger(__name__)


class ReflectorBackoff:
    """Waits between attempts (RF-02, RF-15). Owned by the reflector's thread.

    Args:
        resource: For the log.
        backoff: How pauses grow. A server that says when to come back gets at least
            that, up to `MAX_RETRY_AFTER`.
    """

    def __init__(self, resource: str, backoff: BackoffTimer) -> None:
        self._resource = resource
        self._backoff = backoff

    def delay(self, error: Exception | None) -> float:
        """Return the seconds to wait after an error, or after none, and grow."""
        asked = error.retry_after if isinstance(error, ApiError) else None
        return max(self._backoff.next(), min(asked or 0.0, MAX_RETRY_AFTER))

    def wait_for_server(self, error: Exception, stop: StopToken) -> None:
        """Wait until a busy server may be asked again.

        Raises:
            Stopped: The token was set.
        """
        delay = self.delay(error)
        _log.warning("server_is_busy", resource=self._resource, why=str(error), delay=delay)
        stop.wait(delay)
        stop.raise_if_set()


def is_busy(error: BaseException) -> bool:
    """Tell whether the server only wants to be asked later (RF-15): it is there, or soon."""
    return isinstance(error, TooManyRequests) or (
        isinstance(error, ConnectFailed) and error.refused
    )
