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
    """Do `work` on every piece, and return when all has ended.

    As client-go's `ParallelizeUntil`, but that a failure is not dropped: it begins no
    further piece, and is raised when those in hand have ended (WQ-34).

    Args:
        pieces: What to work on, each once, in no order.
        work: Called on the workers' threads.
        workers: Most threads; never more than there are chunks.
        stop: Begin no piece once it is set; then pieces may be left out, so ask it.
        chunk: Pieces that a thread takes at a time: more than one where the work on
            each is next to nothing.
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
    """Tasks that one caller waits for. Fields are guarded by the crew's lock."""

    def __init__(self, left: int, lock: threading.Lock) -> None:
        self.left = left
        self.done = threading.Condition(lock)
        self.failure: BaseException | None = None


class WorkerPool:
    """Runs a function over the items of a batch, a few at once, for many callers.

    Callers share the threads, so the total is bounded however many there are. The
    calling thread waits for its batch, and no longer.

    Lifecycle: `run` provides the threads. Before and after it `map` does the work
    on the calling thread, so nothing is ever lost or left waiting.

    Threads: `map` is safe from any thread but the crew's own.
    """

    def __init__(self, name: str, *, size: int = 8, clock: Clock = SYSTEM_CLOCK) -> None:
        self._name = name
        self._size = size
        self._clock = clock
        self._tasks_lock = threading.Lock()
        # One for the threads and one a batch, so that nobody is woken for nothing.
        self._to_do = threading.Condition(self._tasks_lock)
        # guarded by _tasks_lock; oldest first
        self._waiting: deque[tuple[_Batch, Callable[[], None]]] = deque()
        self._open = False  # guarded by _tasks_lock

    def run(self, stop: StopToken) -> None:
        """Provide the threads until `stop` is set; then finish what was handed in."""
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
        """Tell whether there are threads."""
        with self._tasks_lock:
            return self._open

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the results in the order of the items.

        Raises:
            BaseException: The first that `function` raised; no further item was begun
                after it, and none is under way any more.
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
            except BaseException as error:  # noqa: BLE001 - raised where the batch came from
                failure = error
            with self._tasks_lock:
                batch.failure = batch.failure or failure
                batch.left -= 1
                if not batch.left:
                    batch.done.notify()
