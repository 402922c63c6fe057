"""Waiting until a cache is no older than its server."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final, Generic, TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped
from navarchos.informers.position import CachePosition, Position, is_at_least
from navarchos.informers.scope import ScopedSource
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["BOOKMARK_GRACE", "CatchUp"]

T = TypeVar("T")

BOOKMARK_GRACE: Final = 1.0
"""Most seconds that an event or bookmark may take to arrive before a relist is forced."""

_ANSWER: Final = 20.0
"""Most seconds to wait for the server's version. Whoever catches up has taken over and does
nothing else meanwhile, so an answer that is lost must not cost all the time that a cache may
take; a server's own queues hold a request for up to 15 s."""

_GRACE: Final = 0.05
_GRACE_PER_OBJECT: Final = 50e-6


class CatchUp(Generic[T]):
    """Compares a cache's position with the server's.

    Threads: safe from any thread, and for several at once.
    """

    def __init__(
        self,
        source: ScopedSource[T],
        progress: CachePosition,
        relist: Callable[[ResourceVersion], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._source = source
        self._progress = progress
        self._relist = relist
        self._clock = clock

    def wait(self, timeout: float | None, objects: int, *stops: StopToken | None) -> bool:
        """Wait until the cache has all that the server has when this is called.

        A resource in which nothing changes has a version that lags behind the
        server's until the next bookmark, up to a minute. So after a grace a list
        brings the version, at the price of a list: the grace is the shorter, the
        fewer objects there are to list.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit.
            objects: How many objects a list is going to bring.
            stops: Tokens that end the wait; `None` stands for no token.

        Returns:
            False if the time passed or a token was set first.

        Raises:
            ClientError: The server did not say its version.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        try:
            wanted = self._servers_version(timeout, *stops)
        except Stopped:
            if any(stop is not None and stop.is_set() for stop in stops):
                return False
            raise  # the client was closed

        def reached(at: Position) -> bool:
            return at.synced and (at.version == wanted or is_at_least(at.version, wanted) is True)

        # A first list that is under way would only be delayed by another one.
        if not self._progress.wait_for(lambda at: at.synced, self._left(deadline), *stops):
            return False
        grace = min(BOOKMARK_GRACE, _GRACE + objects * _GRACE_PER_OBJECT)
        left = self._left(deadline)
        if left is not None:
            grace = min(grace, left)
        if self._progress.wait_for(reached, grace, *stops):
            return True
        lists = self._progress.position.lists
        self._relist(wanted)
        # Versions that cannot be compared leave the next list as the only proof.
        comparable = is_at_least(wanted, wanted) is not None
        return self._progress.wait_for(
            lambda at: reached(at) or (at.lists > lists and not comparable),
            self._left(deadline),
            *stops,
        )

    def _servers_version(self, timeout: float | None, *stops: StopToken | None) -> ResourceVersion:
        """Read the version of a consistent list, of which one object is enough."""
        asked = StopToken(clock=self._clock)
        with ExitStack() as withdrawing:
            for stop in stops:
                if stop is not None:
                    withdrawing.callback(stop.on_stop(partial(asked.stop, "no longer waited for")))
            page = self._source.page(
                "", limit=1, timeout=min(timeout or _ANSWER, _ANSWER), stop=asked
            )
        return ResourceVersion(page.resource_version)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.monotonic())
