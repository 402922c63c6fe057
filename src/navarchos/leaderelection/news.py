"""Tells of new leaders without holding up the election."""

import threading
from collections import deque
from collections.abc import Callable

from navarchos.clock import Clock
from navarchos.logs import get_logger
from navarchos.threads import ThreadGroup

__all__ = ["LeaderNews"]

_log = get_logger(__name__)


class LeaderNews:
    """Calls a listener with each new leader, in order, on a thread of its own (LE-16).

    Threads: `report` and `end` from one thread.
    """

    def __init__(self, listener: Callable[[str], None] | None, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._reported = ""
        self._running = False
        self._news = threading.Condition(threading.Lock())
        self._pending: deque[str] = deque()  # guarded by _news
        self._ended = False  # guarded by _news

    def report(self, holder: str, threads: ThreadGroup) -> None:
        """Pass the holder on if it is not the one that was reported last."""
        if holder == self._reported:
            return
        self._reported = holder
        _log.info("new_leader", holder=holder)
        if self._listener is None:
            return
        with self._news:
            self._pending.append(holder)
            self._news.notify_all()
        if not self._running:
            self._running = True
            threads.start("news", self._tell)

    def end(self) -> None:
        """Let the thread end once everything is told."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _tell(self) -> None:
        assert self._listener is not None
        while (holder := self._next()) is not None:
            try:
                self._listener(holder)
            except Exception as error:  # noqa: BLE001 - a listener must not end an election
                _log.error("new_leader_callback_failed", holder=holder, exc_info=error)

    def _next(self) -> str | None:
        with self._news:
            while not self._pending:
                if self._ended:
                    return None
                self._clock.wait(self._news, None)
            return self._pending.popleft()
