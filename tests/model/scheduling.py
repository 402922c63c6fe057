"""Run one thread at a time, in virtual time, in an order that a seed decides.

The library waits through a `Clock` only. This clock lets a thread run until it waits, then
chooses the next one among the threads that can run; when none can, time moves to the next
deadline. A whole manager therefore runs unchanged, with all its threads, and its seed
repeats the run: every interleaving at the points where threads wait is possible, and none
takes real time. The threads are greenlets, because a run creates hundreds of them and
switches between them tens of thousands of times.
"""

import heapq
import random
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

from greenlet import getcurrent, greenlet

__all__ = ["EPOCH", "Killed", "Process", "ProcessClock", "Scheduler", "Stalled"]

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


_DEPTH: Final = 20_000
"""The recursion limit. A greenlet begins at the depth of its starter, so several hundred threads
count as a deep recursion if each starts the next one (seed 2333)."""


class Killed(BaseException):
    """The process of this thread was killed. No exception handler may catch this."""


class Stalled(AssertionError):
    """No thread can run, and none waits for a time."""


class Process:
    """A process: threads that are killed and stopped together.

    Attributes:
        name: The name in the trace.
        is_dead: Whether it was killed. Its threads then have no effect.
        is_frozen: Whether it is stopped, as after `SIGSTOP`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False


class _Task:
    """A thread as the scheduler sees it.

    While it waits for a condition it is in the list of the condition's waiters, where
    `Condition.notify` calls `release`.
    """

    __slots__ = (
        "body", "is_ready", "name", "notified", "process", "scheduler", "thread", "wait_number",
    )  # fmt: skip

    def __init__(self, scheduler: "Scheduler", process: Process, thread: threading.Thread) -> None:
        self.scheduler = scheduler
        self.name = thread.name
        self.process = process
        self.thread = thread
        self.body = getcurrent()
        self.is_ready = False
        self.notified = False
        self.wait_number = 0

    def release(self) -> None:
        self.notified = True
        self.scheduler.wake(self)


class _Thread(threading.Thread):
    """A thread as its owner sees it. It is not a thread of the operating system."""

    def __init__(self, begin: Callable[[threading.Thread], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._begin = begin

    def start(self) -> None:
        self._begin(self)


class Scheduler:
    """Owns time and turns. The thread that creates it has the first turn.

    Attributes:
        turns: The number of turns so far.

    Threads: only the thread that has the turn may call a method.
    """

    def __init__(self, rand: random.Random, begins_at: datetime = EPOCH) -> None:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEPTH))
        self.driver = Process("driver")
        self._begins_at = begins_at
        self.turns = 0
        self._rand = rand
        self._now = 0.0
        self._numbers = count()
        self._ready: list[_Task] = []
        self._held: list[_Task] = []  # ready, but stopped
        self._timers: list[tuple[float, int, _Task, int]] = []
        self._tasks: dict[_Task, None] = {}
        self._current = _Task(self, self.driver, threading.current_thread())
        self._tasks[self._current] = None
        self._main = getcurrent()

    @property
    def seconds(self) -> float:
        """Virtual seconds since the beginning."""
        return self._now

    def now(self) -> datetime:
        """Return the virtual time of day."""
        return self._begins_at + timedelta(seconds=self._now)

    def sleep(self, seconds: float) -> None:
        """Let others run for this time; with 0, let all ready threads run once."""
        self._refuse_the_dead()
        self._prepare(max(0.0, seconds))
        self._pass_on()
        self._refuse_the_dead()

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a condition, as `Clock.wait`."""
        self._refuse_the_dead()
        if timeout is not None and timeout <= 0:
            return False
        task = self._current
        self._prepare(timeout)
        waiters = condition._waiters  # type: ignore[attr-defined]
        waiters.append(task)
        saved = condition._release_save()  # type: ignore[attr-defined]
        try:
            self._pass_on()
        finally:
            condition._acquire_restore(saved)  # type: ignore[attr-defined]
            if not task.notified:
                waiters.remove(task)
        self._refuse_the_dead()
        return task.notified

    def thread(self, name: str, run: Callable[[], None], process: Process) -> threading.Thread:
        """Return a thread of a process, not yet started."""

        def begin(thread: threading.Thread) -> None:
            task = _Task(self, process, thread)
            # Called with a value if an ended greenlet continues here.
            task.body = greenlet(lambda *_: self._body(task, run), self._main)
            self._tasks[task] = None
            self.wake(task)

        return _Thread(begin, name)

    def _body(self, task: _Task, run: Callable[[], None]) -> None:
        try:
            if not task.process.is_dead:
                run()
        except Killed:
            pass  # also while it unwinds: further waits of a killed thread fail in the same way
        del self._tasks[task]
        chosen = self._choose()
        self._give_turn(chosen)
        getcurrent().parent = chosen.body  # an ended greenlet continues there

    def kill(self, process: Process) -> None:
        """End every thread of a process at its present point."""
        process.is_dead = True
        self.thaw(process)
        for task in self._tasks:
            if task.process is process and task is not self._current:
                self.wake(task)

    def freeze(self, process: Process) -> None:
        """Stop all threads of a process, as `SIGSTOP` does."""
        process.is_frozen = True

    def thaw(self, process: Process) -> None:
        """Continue a stopped process; time has passed meanwhile."""
        process.is_frozen = False
        held = [task for task in self._held if task.process is process]
        self._held = [task for task in self._held if task.process is not process]
        self._ready.extend(held)

    def threads_of(self, process: Process) -> list[str]:
        """Return the names of the threads of a process that have not ended."""
        return [task.name for task in self._tasks if task.process is process]

    def wake(self, task: _Task) -> None:
        """Make a thread ready for a turn."""
        if not task.is_ready and task is not self._current:
            task.is_ready = True
            self._ready.append(task)

    def _refuse_the_dead(self) -> None:
        if self._current.process.is_dead:
            raise Killed

    def _prepare(self, timeout: float | None) -> None:
        task = self._current
        task.notified = False
        task.wait_number += 1
        if timeout is not None:
            entry = (self._now + timeout, next(self._numbers), task, task.wait_number)
            heapq.heappush(self._timers, entry)

    def _pass_on(self) -> None:
        task = self._current
        # Not among the ready ones and not current: it can be woken.
        self._current = _NO_TASK
        chosen = self._choose()
        if chosen is task:
            self._current = task
            return
        self._give_turn(chosen)
        chosen.body.switch()

    def _give_turn(self, task: _Task) -> None:
        self._current = task
        self.turns += 1
        # Code such as a join asks for the current thread: return the task that is running.
        threading._active[threading.get_ident()] = task.thread  # type: ignore[attr-defined]

    def _choose(self) -> _Task:
        while True:
            while self._timers and self._timers[0][0] <= self._now:
                _, _, task, number = heapq.heappop(self._timers)
                if task.wait_number == number:
                    self.wake(task)
            if self._ready:
                index = self._rand.randrange(len(self._ready))
                self._ready[index], self._ready[-1] = self._ready[-1], self._ready[index]
                task = self._ready.pop()
                if task.process.is_frozen:
                    self._held.append(task)
                    continue
                task.is_ready = False
                task.wait_number += 1  # its timer, if there is one, is void
                return task
            if not self._timers:
                raise Stalled("no thread can run")
            self._now = max(self._now, self._timers[0][0])


_NO_TASK: Final = _Task(None, Process("none"), threading.Thread(name="none"))  # type: ignore[arg-type]


class ProcessClock:
    """The clock of one process; its threads are the scheduler's."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process

    def monotonic(self) -> float:
        """Return virtual seconds since an arbitrary instant."""
        return 1_000.0 + self._scheduler.seconds

    def now(self) -> datetime:
        """Return the virtual time of day."""
        return self._scheduler.now()

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait in virtual time, and let others run."""
        return self._scheduler.wait(condition, timeout)

    def thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Return a thread of this process."""
        return self._scheduler.thread(name, run, self._process)
