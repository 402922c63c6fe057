"""The same work on many pieces, by several threads."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["parallelize"]

T = TypeVar("T")


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
