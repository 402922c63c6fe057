"""A few threads for many callers."""

import threading
from functools import partial

import pytest
from tests.cases.crews import at_work

from navarchos.operator.crew import Crew
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup


def test_without_threads_the_caller_does_the_work() -> None:
    assert Crew("c").map(lambda n: n * 2, [1, 2, 3]) == [2, 4, 6]


def test_a_batch_is_worked_off_together_in_order() -> None:
    together = threading.Barrier(3, timeout=30)

    def meet(number: int) -> int:
        together.wait()  # three at once, or nobody passes
        return number * 2

    with at_work(3) as crew:
        assert crew.map(meet, [1, 2, 3, 4, 5, 6]) == [2, 4, 6, 8, 10, 12]
    assert crew.map(lambda n: n + 1, [1, 2]) == [2, 3]


def test_what_a_task_raises_reaches_whoever_gave_the_batch() -> None:
    def fail(number: int) -> int:
        if number == 2:
            raise ValueError(number)
        return number

    with at_work(2) as crew:
        with pytest.raises(ValueError, match="2"):
            crew.map(fail, [1, 2, 3])
        assert crew.map(fail, [4, 5]) == [4, 5]


def test_nothing_more_of_a_batch_is_begun_after_a_failure() -> None:
    begun: list[int] = []

    def fail_at_two(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise ValueError(number)

    with at_work(1) as crew, pytest.raises(ValueError, match="2"):
        crew.map(fail_at_two, [1, 2, 3, 4])
    assert begun == [1, 2]


def test_batches_of_many_callers_are_all_worked_off() -> None:
    done: dict[int, list[int]] = {}

    def call(crew: Crew, caller: int) -> None:
        for _ in range(50):
            done[caller] = crew.map(lambda n: n + caller, [10, 20, 30, 40, 50])

    with at_work(3) as crew:
        callers = ThreadGroup("callers", stop=StopToken())
        for caller in range(4):
            callers.start(str(caller), partial(call, crew, caller))
        assert callers.join(30)
    assert done == {n: [10 + n, 20 + n, 30 + n, 40 + n, 50 + n] for n in range(4)}
