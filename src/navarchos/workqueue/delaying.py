"""A queue that can add keys later."""

from typing import TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.instrument import Instruments
from navarchos.workqueue.delays import Delays
from navarchos.workqueue.errors import unhashable
from navarchos.workqueue.order import Order
from navarchos.workqueue.queue import WorkQueue

__all__ = ["DelayingQueue"]

K = TypeVar("K")


class DelayingQueue(WorkQueue[K]):
    """A `WorkQueue` whose keys may wait for their time first (WQ-10 to WQ-14).

    Keys that wait are not counted by `len()`, and any shutdown drops them.

    Threads: starts one thread of its own with the first delayed key, and joins
    it when it is shut down.
    """

    def __init__(
        self,
        *,
        name: str = "",
        order: Order[K] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        super().__init__(name=name, order=order, clock=clock, instruments=instruments)
        self._delays: Delays[K] = Delays(
            self._lock, lambda key, _: self._add_locked(key), name=name, clock=clock
        )

    def add_after(self, key: K, delay: float) -> None:
        """Add `key` at or after `delay` seconds from now; at once if that is not above 0.

        The earlier of two times counts. A plain `add` does not cancel a key that
        waits: it comes again later (RT-17). Ignored after shutdown.

        Raises:
            TypeError: The key is not hashable.
        """
        with self._lock:
            if self._shutting_down:
                return
            if self._metrics is not None:
                self._metrics.retried()
            if delay > 0:
                self._delay_locked(key, delay)
            else:
                self._add_locked(key)

    def shut_down(self) -> None:
        """Take no more keys, drop those that wait, lend what is ready; then end."""
        super().shut_down()
        self._delays.join()

    def shut_down_with_drain(self, timeout: float | None = None) -> bool:
        """Shut down, and wait until every loan has been closed."""
        drained = super().shut_down_with_drain(timeout)
        self._delays.join()
        return drained

    def _delay_locked(self, key: K, delay: float) -> None:
        try:
            self._delays.put_locked(key, delay)
        except TypeError:
            raise unhashable(key) from None

    def _close_locked(self) -> None:
        super()._close_locked()
        self._delays.close_locked()
