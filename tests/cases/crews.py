"""Crews that have threads, for a `with` block."""

from collections.abc import Iterator
from contextlib import contextmanager

from navarchos.operator.crew import Crew
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["at_work"]


@contextmanager
def at_work(size: int) -> Iterator[Crew]:
    """Return a crew with threads; it has none any more afterwards."""
    stop = StopToken()
    group = ThreadGroup("crew-test", stop=stop)
    crew = Crew("crew", size=size)
    group.start("", lambda: crew.run(stop))
    while not crew.is_open():
        stop.wait(0.01)
    try:
        yield crew
    finally:
        stop.stop("done")
        assert group.join(10)
