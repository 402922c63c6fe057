"""Threads that are named, owned and joined."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, runtime_checkable

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStopped, SelfJoin, Stopped, ThreadCrashed
from navarchos.forking import ForkGuard
from navarchos.logs import get_logger
from navarchos.stopping import StopToken

__all__ = ["THREAD_PREFIX", "Scheduler", "ThreadGroup"]

THREAD_PREFIX: Final = "nav-"
"""Every thread of this library has a name that begins like this."""

_log = get_logger(__name__)


@runtime_checkable
class Scheduler(Protocol):
    """A clock that decides which thread runs, too: what repeatable simulations need.

    As all waiting goes through the clock, such a one can let one thread run at a time
    until that waits. All that it needs besides is to make the threads.
    """

    def thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Return a thread that has not been started and runs `run` once it has its turn."""
        ...


class ThreadGroup:
    """Threads with one owner, one stop token and one fate.

    A thread that ends with an exception stops the whole group, and the first
    such exception is kept as `failure`. `Stopped` is a normal end.

    Promises: `join()` returns True only when no thread of the group runs any
    more; a name is `nav-<group>-<what>`, with the telling part first because
    Linux shows fifteen characters.

    Does not promise: to interrupt a thread. Threads end because they wait on
    `stop`, or on something that `stop.on_stop` frees.

    Threads: every method is safe from any thread; `join()` from a thread of the
    group raises `SelfJoin` instead of waiting for itself.
    """

    def __init__(self, name: str, *, stop: StopToken, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.stop = stop
        self._clock = clock
        self._fork_guard = ForkGuard(f"thread group {name}")
        self._ended = threading.Condition(threading.Lock())
        self._running: set[threading.Thread] = set()  # guarded by _ended
        self._failure: BaseException | None = None  # guarded by _ended
        self._closed = False  # guarded by _ended

    @property
    def failure(self) -> BaseException | None:
        """The first exception that ended a thread, if any did."""
        with self._ended:
            return self._failure

    def start(self, what: str, target: Callable[[], object]) -> threading.Thread:
        """Run `target` on a new thread of this group.

        Raises:
            AlreadyStopped: The group has been joined; nothing was started.
            Forked: Threads of it were started before this process was forked.
        """
        self._fork_guard.check()
        name = f"{THREAD_PREFIX}{self.name}-{what}" if what else f"{THREAD_PREFIX}{self.name}"
        with self._ended:
            if self._closed:
                raise AlreadyStopped(f"thread group {self.name}")
            self._fork_guard.start()
            thread = self._make(name, partial(self._run, name, target))
            self._running.add(thread)
            # Started under the lock: join() must never see an unstarted thread.
            thread.start()
        return thread

    def join(self, timeout: float | None = None) -> bool:
        """Wait until every thread has ended; it does not ask them to.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit, `0`
                only looks.

        Returns:
            False when the time passed with threads still running. Nothing
            changes then, and `join` may be called again.

        Raises:
            SelfJoin: Called by a thread of this group.
            Forked: Its threads were started before this process was forked.
        """
        self._fork_guard.check()
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._ended:
            if threading.current_thread() in self._running:
                raise SelfJoin(f"thread group {self.name}")
            while self._running:
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                self._clock.wait(self._ended, left)
            self._closed = self._closed or self.stop.is_set()
            return True

    def running(self) -> tuple[str, ...]:
        """Return the names of the threads that still run, sorted."""
        with self._ended:
            return tuple(sorted(thread.name for thread in self._running))

    def raise_failure(self) -> None:
        """Raise `ThreadCrashed` from the first failure, if there was one."""
        failure = self.failure
        if failure is not None:
            raise ThreadCrashed(self.name) from failure

    def _make(self, name: str, run: Callable[[], None]) -> threading.Thread:
        if isinstance(self._clock, Scheduler):
            return self._clock.thread(name, run)
        return threading.Thread(target=run, name=name, daemon=True)

    def _run(self, name: str, target: Callable[[], object]) -> None:
        try:
            target()
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - kept, and it stops the group
            self._fail(name, error)
        finally:
            with self._ended:
                self._running.discard(threading.current_thread())
                self._ended.notify_all()

    def _fail(self, name: str, error: BaseException) -> None:
        with self._ended:
            first = self._failure is None
            if first:
                self._failure = error
        _log.error("thread_crashed", thread=name, first=first, exc_info=error)
        self.stop.stop(f"thread {name} crashed: {error!r}")
