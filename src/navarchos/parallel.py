"""Work on many items at once, by threads of one call or by threads that callers share."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = [
    "WorkerPool",
    "parallelize",
]

T = TypeVar("T")
R = TypeVar("R")

_JOIN: Final = 30.0
"""Seconds that `WorkerPool.run` waits for its threads at the end."""


def parallelize(
    pieces: Sequence[T],
    work: Callable[[T], object],
    *,
    workers: int,
    stop: StopToken,
    chunk: int = 1,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Call `work` for every piece, and return when all calls have ended.

    Like client-go's `ParallelizeUntil`, except that a failure is not dropped: no further call
    starts after it, and it is raised when the running calls have ended (WQ-34).

    Args:
        pieces: The arguments of the calls, each used once, in any order.
        work: Called on the workers' threads.
        workers: The largest number of threads; never more than the number of chunks.
        stop: No call starts once it is set. Check it afterwards: pieces may be left out.
        chunk: The number of pieces that a thread takes at a time. Use more than one if a call
            takes very little time.
        clock: Time and waiting.
    """
    chunks = -(-len(pieces) // chunk)
    threads = ThreadGroup("parallel", stop=stop.child(), clock=clock)
    numbers = iter(range(chunks))  # guarded by numbers_lock
    numbers_lock = threading.Lock()

    def take() -> int | None:
        with numbers_lock:
            return next(numbers, None)

    def run() -> None:
        while (number := take()) is not None:
            for piece in pieces[number * chunk : (number + 1) * chunk]:
                if threads.stop.is_set():
                    return
                work(piece)

    for number in range(min(workers, chunks)):
        threads.start(str(number), run)
    threads.join()
    threads.stop.stop("all pieces are done")
    if threads.failure is not None:
        raise threads.failure


class _Batch:
    """The tasks of one caller. The fields are guarded by the lock of the pool."""

    def __init__(self, left: int, lock: threading.Lock) -> None:
        self.left = left
        self.done = threading.Condition(lock)
        self.failure: BaseException | None = None


class WorkerPool:
    """Calls a function for the items of a batch, several at once, on shared threads.

    All callers share the threads, so their total number is limited. The calling thread waits
    for its own batch only.

    Lifecycle: `run` provides the threads. Before and after `run`, `map` does the work on the
    calling thread, so that no item is lost or left waiting.

    Threads: `map` is safe from any thread except the threads of the pool.
    """

    def __init__(self, name: str, *, size: int = 8, clock: Clock = SYSTEM_CLOCK) -> None:
        self._name = name
        self._size = size
        self._clock = clock
        self._tasks_lock = threading.Lock()
        # One condition for the threads and one for each batch, so that only a thread which has
        # something to do is woken.
        self._to_do = threading.Condition(self._tasks_lock)
        # guarded by _tasks_lock; oldest first
        self._waiting: deque[tuple[_Batch, Callable[[], None]]] = deque()
        self._open = False  # guarded by _tasks_lock

    def run(self, stop: StopToken) -> None:
        """Provide the threads until `stop` is set; then finish the batches that were handed in."""
        group = ThreadGroup(self._name, stop=stop, clock=self._clock)
        with self._tasks_lock:
            self._open = True
        try:
            for number in range(self._size):
                group.start(str(number), self._work)
            stop.wait()
        finally:
            with self._tasks_lock:
                self._open = False
                self._to_do.notify_all()
            group.join(_JOIN)

    def is_open(self) -> bool:
        """Return whether the pool has threads."""
        with self._tasks_lock:
            return self._open

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the results in the order of the items.

        Raises:
            BaseException: The first exception of `function`. No further call has started after
                it, and all running calls have ended.
        """
        if len(items) > 1:
            results = self._shared(function, items)
            if results is not None:
                return results
        return [function(item) for item in items]

    def _shared(self, function: Callable[[T], R], items: Sequence[T]) -> list[R] | None:
        results: dict[int, R] = {}
        batch = _Batch(len(items), self._tasks_lock)

        def work(index: int) -> None:
            results[index] = function(items[index])

        with self._tasks_lock:
            if not self._open:
                return None
            for index in range(len(items)):
                self._waiting.append((batch, partial(work, index)))
            self._to_do.notify(len(items))
            while batch.left:
                self._clock.wait(batch.done, None)
        if batch.failure is not None:
            raise batch.failure
        return [results[index] for index in range(len(items))]

    def _work(self) -> None:
        while True:
            with self._tasks_lock:
                while not self._waiting:
                    if not self._open:
                        return
                    self._clock.wait(self._to_do, None)
                batch, task = self._waiting.popleft()
                begin = batch.failure is None
            failure: BaseException | None = None
            try:
                if begin:
                    task()
            except BaseException as error:  # noqa: BLE001 - raised on the caller's thread
                failure = error
            with self._tasks_lock:
                batch.failure = batch.failure or failure
                batch.left -= 1
                if not batch.left:
                    batch.done.notify()
