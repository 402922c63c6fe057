"""Groups of named threads with one owner, and a guard against use after a fork."""

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, runtime_checkable

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStopped, Forked, SelfJoin, Stopped, ThreadCrashed
from navarchos.logs import get_logger
from navarchos.stopping import StopToken

__all__ = ["THREAD_PREFIX", "ForkGuard", "Scheduler", "ThreadGroup"]

THREAD_PREFIX: Final = "nav-"
"""The prefix of the names of all threads of this library."""

_log = get_logger(__name__)


@runtime_checkable
class Scheduler(Protocol):
    """A clock that also decides which thread runs, for repeatable simulations.

    All waiting uses the clock, so such a clock can run one thread at a time until that
    thread waits. It must also create the threads.
    """

    def thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Return a thread that is not started, and runs `run` when it is scheduled."""
        ...


class ThreadGroup:
    """Threads with one owner and one stop token.

    A thread that ends with an exception stops the whole group, and the first such exception
    is kept as `failure`. `Stopped` is a normal end.

    Promises: `join()` returns True only when no thread of the group runs; a name is
    `nav-<group>-<what>`, and the group should be short, because Linux shows fifteen
    characters.

    Does not promise: to interrupt a thread. Threads end because they wait on `stop`, or on
    a call that a callback of `stop.on_stop` interrupts.

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
        """The first exception that ended a thread, if any."""
        with self._ended:
            return self._failure

    def start(self, what: str, target: Callable[[], object]) -> threading.Thread:
        """Run `target` on a new thread of this group.

        Raises:
            AlreadyStopped: The group was joined; nothing was started.
            Forked: Its threads were started before this process was forked.
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
        """Wait until all threads have ended; it does not stop them.

        Args:
            timeout: Maximum wait in seconds; `None` waits without limit, `0` does not
                wait.

        Returns:
            False if threads still run after the timeout; `join` may be called again.

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
        """Return the sorted names of the running threads."""
        with self._ended:
            return tuple(sorted(thread.name for thread in self._running))

    def raise_failure(self) -> None:
        """Raise `ThreadCrashed` with the first failure as its cause, if any."""
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


class _Lineage:
    """The number of forks between the process that imported this module and this one."""

    forks = 0

    @classmethod
    def fork(cls) -> None:
        cls.forks += 1


# Cheaper than `os.getpid`, which is a system call.
os.register_at_fork(after_in_child=_Lineage.fork)


class ForkGuard:
    """Remembers the process in which an object was started.

    A fork copies the memory and one thread. In the child process the other threads do not
    exist, and a lock that one of them held is never released: a cache would be silently
    outdated there, or hang. An object that is created before a fork and started after it
    is valid.

    Threads: safe from any thread. It takes no lock, because that lock might never be
    released; two threads that start at once are in one process and write the same number.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._started: int | None = None

    def start(self) -> None:
        """Remember this process; later calls have no effect."""
        if self._started is None:
            self._started = _Lineage.forks

    def check(self) -> None:
        """Raise if the object was started in another process.

        Raises:
            Forked: This process is a fork of that process.
        """
        if self._started is not None and self._started != _Lineage.forks:
            raise Forked(self._what)
