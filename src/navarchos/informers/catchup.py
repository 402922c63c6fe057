"""Waiting until a cache has everything that its server has."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final, Generic, TypeVar

from navarchos.client.options import ListOptions
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped
from navarchos.informers.position import CachePosition, Position, is_at_least
from navarchos.informers.scope import ScopedSource
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["BOOKMARK_GRACE", "CatchUp"]

T = TypeVar("T")

BOOKMARK_GRACE: Final = 1.0
"""Longest wait in seconds for an event or a bookmark before a relist is forced."""

_VERSION_TIMEOUT: Final = 20.0
"""Longest wait in seconds for the server's version.

A new leader catches up before it acts. If it waited for this answer as long as a cache may
take to fill, one lost answer would keep the leader idle for two minutes while it holds the
lease. A list of one object comes soon or never: a server's own queues hold a request for at
most 15 s."""

_GRACE: Final = 0.05
_GRACE_PER_OBJECT: Final = 50e-6


class CatchUp(Generic[T]):
    """Compares a cache's position with the server's.

    Threads: safe from any thread, and for several at once.
    """

    def __init__(
        self,
        source: ScopedSource[T],
        position: CachePosition,
        relist: Callable[[ResourceVersion], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._source = source
        self._position = position
        self._relist = relist
        self._clock = clock

    def wait(self, timeout: float | None, objects: int, *stops: StopToken | None) -> bool:
        """Wait until the cache has everything that the server has when this is called.

        A resource in which nothing changes has a version that lags behind the server's
        until the next bookmark, for up to a minute. So after a grace period a relist brings
        the version. A relist costs the more, the more objects there are, so the grace
        period grows with their number.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit.
            objects: The number of objects that a list would bring.
            stops: Tokens that end the wait; `None` stands for no token.

        Returns:
            False if the time passed or a token was set first.

        Raises:
            ClientError: The server did not return its version.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        try:
            wanted = self._version_of_server(timeout, *stops)
        except Stopped:
            if any(stop is not None and stop.is_set() for stop in stops):
                return False
            raise  # the client was closed

        def reached(at: Position) -> bool:
            return at.synced and (at.version == wanted or is_at_least(at.version, wanted) is True)

        # A relist would only delay a first list that is under way.
        if not self._position.wait_for(lambda at: at.synced, self._left(deadline), *stops):
            return False
        grace = min(BOOKMARK_GRACE, _GRACE + objects * _GRACE_PER_OBJECT)
        left = self._left(deadline)
        if left is not None:
            grace = min(grace, left)
        if self._position.wait_for(reached, grace, *stops):
            return True
        lists = self._position.snapshot().lists
        self._relist(wanted)
        # If versions cannot be compared, only the next list proves that the cache is current.
        comparable = is_at_least(wanted, wanted) is not None
        return self._position.wait_for(
            lambda at: reached(at) or (at.lists > lists and not comparable),
            self._left(deadline),
            *stops,
        )

    def _version_of_server(
        self, timeout: float | None, *stops: StopToken | None
    ) -> ResourceVersion:
        """Return the version of a consistent list; one object of it is enough."""
        request = StopToken(clock=self._clock)
        with ExitStack() as withdrawing:
            for stop in stops:
                if stop is not None:
                    withdrawing.callback(stop.on_stop(partial(request.stop, "the wait was ended")))
            page = self._source.page(
                ListOptions(limit=1),
                timeout=min(timeout or _VERSION_TIMEOUT, _VERSION_TIMEOUT),
                stop=request,
            )
        return ResourceVersion(page.resource_version)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.monotonic())
