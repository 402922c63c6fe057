"""The objects of a collection one by one, with pages fetched ahead."""

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
"""Pages that wait for their reader; with so many, no further one is asked for."""


class ItemPager(Generic[T]):
    """Iterates over the objects of a collection, in the server's order (RF-11).

    ```python
    with pods.each() as found:
        for pod in found:
            ...
    ```

    Promises: never more than `PAGES_AHEAD` pages and the one in hand are held in
    memory; leaving the `with`, by an exception too, ends the fetching. What fails is
    raised after the objects that came before it.

    Does not promise: to begin again when the server has forgotten the list's version
    in the middle, as `list` does: objects were already handed out.

    Raises, while iterating:
        Expired: The reader was too slow for the server's memory.
        ClientError: A page could not be had.
        Stopped: The client was closed, or `close()` called from elsewhere.

    Threads: one of its own, from the start to `close()`; one thread iterates, any
    may close.

    Attributes:
        failures: The objects that could not be decoded, so far. The iterating
            thread's.
    """

    def __init__(
        self,
        fetch: Callable[[str, StopToken], ResourceList[T]],
        *,
        name: str,
        stop: StopToken,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Begin to fetch.

        Args:
            fetch: Returns the page of a continue token; empty for the first.
            name: What is fetched, for the thread's name.
            stop: Ends everything; the pager's own.
            clock: For waiting.
        """
        self.failures: list[DecodeError] = []
        self._fetch = fetch
        self._stop = stop
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._pages: deque[ResourceList[T]] = deque()  # guarded by _changed; at most PAGES_AHEAD
        self._end: BaseException | None = None  # guarded by _changed; comes after the pages
        self._items: Iterator[T] = iter(())  # the reader's
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
        """End the fetching and wait for its thread; harmless when repeated."""
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
