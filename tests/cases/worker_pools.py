"""Crews that have threads, for a `with` block."""

from collections.abc import Iterator
from contextlib import contextmanager

from navarchos.parallel import WorkerPool
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["running_pool"]


@contextmanager
def running_pool(size: int) -> Iterator[WorkerPool]:
    """Return a crew with threads; it has none any more afterwards."""
    stop = StopToken()
    group = ThreadGroup("crew-test", stop=stop)
    worker_pool = WorkerPool("worker_pool", size=size)
    group.start("", lambda: worker_pool.run(stop))
    while not worker_pool.is_open():
        stop.wait(0.01)
    try:
        yield worker_pool
    finally:
        stop.stop("done")
        assert group.join(10)
