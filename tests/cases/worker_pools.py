"""A worker pool with threads, for a `with` block."""

from collections.abc import Iterator
from contextlib import contextmanager

from navarchos.parallel import WorkerPool
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["running_pool"]


@contextmanager
def running_pool(size: int) -> Iterator[WorkerPool]:
    """Yield a pool whose threads run until the end of the block."""
    stop = StopToken()
    group = ThreadGroup("pool-test", stop=stop)
    pool = WorkerPool("pool", size=size)
    group.start("", lambda: pool.run(stop))
    while not pool.is_open():
        stop.wait(0.01)
    try:
        yield pool
    finally:
        stop.stop("done")
        assert group.join(10)
