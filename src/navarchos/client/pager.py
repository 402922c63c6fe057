"""Iteration over the objects of a collection, with pages fetched ahead."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Self, TypeVar

from navarchos.client.decoding import ResourceList
from navarchos.client.errors import DecodeError
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["PAGES_AHEAD", "ItemPager"]

T = TypeVar("T")

PAGES_AHEAD: Final = 10
"""Maximum number of fetched pages that wait for their reader."""


class ItemPager(Generic[T]):
    """Iterates over the objects of a collection, in the server's order (RF-11).

    ```python
    with pods.each() as found:
        for pod in found:
            ...
    ```

    Promises: at most `PAGES_AHEAD` pages and the current page are in memory; leaving the
    `with` block, also by an exception, ends the fetching. An error is raised after the
    objects before it.

    Does not promise: a restart when the server has dropped the version of the list, as
    `list` does: some objects were already returned.

    Raises, while iterating:
        Expired: The reader was too slow, and the server has dropped the version.
        ClientError: A page could not be fetched.
        Stopped: The client was closed, or another thread called `close()`.

    Threads: runs one thread, from the constructor to `close()`; one thread iterates, any
    thread may close.

    Attributes:
        failures: The objects so far that could not be decoded. Belongs to the iterating
            thread.
    """

    def __init__(
        self,
        fetch: Callable[[str, StopToken], ResourceList[T]],
        *,
        name: str,
        stop: StopToken,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Start to fetch.

        Args:
            fetch: Returns the page of a continue token; the first page for an empty token.
            name: The collection, for the name of the thread.
            stop: Ends the fetching; belongs to this pager.
            clock: Time for waiting.
        """
        self.failures: list[DecodeError] = []
        self._fetch = fetch
        self._stop = stop
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._pages: deque[ResourceList[T]] = deque()  # guarded by _changed; at most PAGES_AHEAD
        self._end: BaseException | None = None  # guarded by _changed; raised after the pages
        self._items: Iterator[T] = iter(())  # belongs to the reader
        stop.on_stop(self._wake)
        self._threads = ThreadGroup(f"pages-{name}", stop=stop, clock=clock)
        self._threads.start("", self._run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Return the next object, waiting for its page."""
        while True:
            for item in self._items:
                return item
            page = self._next_page()
            self._items = iter(page.items)
            self.failures += page.failures

    def close(self) -> None:
        """End the fetching and wait for its thread; may be called again."""
        self._stop.stop("the pager was closed")
        self._threads.join()

    def _next_page(self) -> ResourceList[T]:
        with self._changed:
            while not self._pages:
                if self._end is not None:
                    raise self._end
                if self._stop.is_set():
                    raise Stopped(self._stop.reason or "")
                self._clock.wait(self._changed, None)
            self._changed.notify_all()
            return self._pages.popleft()

    def _run(self) -> None:
        end: BaseException = StopIteration()
        try:
            token = ""
            while True:
                page = self._fetch(token, self._stop)
                self._put(page)
                token = page.continue_token
                if not token:
                    break
        except (Exception, Stopped) as error:  # noqa: BLE001 - raised by the reader
            end = error
        with self._changed:
            self._end = end
            self._changed.notify_all()

    def _put(self, page: ResourceList[T]) -> None:
        with self._changed:
            self._pages.append(page)
            self._changed.notify_all()
            while page.continue_token and len(self._pages) >= PAGES_AHEAD:
                self._stop.raise_if_set()
                self._clock.wait(self._changed, None)
        self._stop.raise_if_set()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
