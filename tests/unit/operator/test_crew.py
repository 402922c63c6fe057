"""A few threads for many callers."""

import threading

import pytest

from navarchos.operator.crew import Crew
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup


def test_without_threads_the_caller_does_the_work() -> None:
    assert Crew("c").map(lambda n: n * 2, [1, 2, 3]) == [2, 4, 6]


def test_a_batch_is_worked_off_together_in_order() -> None:
    stop = StopToken()
    group = ThreadGroup("crew-test", stop=stop)
    crew = Crew("crew", size=3)
    group.start("", lambda: crew.run(stop))
    together = threading.Barrier(3, timeout=30)

    def meet(number: int) -> int:
        together.wait()  # three at once, or nobody passes
        return number * 2

    while not crew.is_open():
        stop.wait(0.01)
    try:
        assert crew.map(meet, [1, 2, 3, 4, 5, 6]) == [2, 4, 6, 8, 10, 12]
    finally:
        stop.stop("done")
        assert group.join(10)
    assert crew.map(lambda n: n + 1, [1, 2]) == [2, 3]


def test_what_a_task_raises_reaches_whoever_gave_the_batch() -> None:
    stop = StopToken()
    group = ThreadGroup("crew-test", stop=stop)
    crew = Crew("crew", size=2)
    group.start("", lambda: crew.run(stop))
    while not crew.is_open():
        stop.wait(0.01)

    def fail(number: int) -> int:
        if number == 2:
            raise ValueError(number)
        return number

    try:
        with pytest.raises(ValueError, match="2"):
            crew.map(fail, [1, 2, 3])
        assert crew.map(fail, [4, 5]) == [4, 5]
    finally:
        stop.stop("done")
        assert group.join(10)
