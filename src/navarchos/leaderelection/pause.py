"""The pause between two tries for the lease, which news can cut short."""

import threading

from navarchos.clock import Clock
from navarchos.stopping import StopToken

__all__ = ["Pause"]


class Pause:
    """Waits for a time, a stop, or for `cut_short`.

    Threads: `wait` from one thread, `cut_short` from any.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._is_over = False  # guarded by _changed

    def cut_short(self) -> None:
        """End the pause, or the next one if there is none now."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait(self, stop: StopToken, seconds: float) -> bool:
        """Wait, and return whether `stop` is set."""
        deadline = self._clock.monotonic() + seconds
        withdraw = stop.on_stop(self.cut_short)
        try:
            with self._changed:
                while not self._is_over and (left := deadline - self._clock.monotonic()) > 0:
                    self._clock.wait(self._changed, left)
                self._is_over = False
        finally:
            withdraw()
        return stop.is_set()
