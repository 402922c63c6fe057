"""A few threads for many callers."""

import threading
from functools import partial

import pytest
from tests.cases.worker_pools import running_pool

from navarchos.parallel import WorkerPool
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup


def test_without_threads_the_caller_does_the_work() -> None:
    assert WorkerPool("c").map(lambda n: n * 2, [1, 2, 3]) == [2, 4, 6]


def test_a_batch_is_worked_off_together_in_order() -> None:
    together = threading.Barrier(3, timeout=30)

    def meet(number: int) -> int:
        together.wait()  # three at once, or nobody passes
        return number * 2

    with running_pool(3) as worker_pool:
        assert worker_pool.map(meet, [1, 2, 3, 4, 5, 6]) == [2, 4, 6, 8, 10, 12]
    assert worker_pool.map(lambda n: n + 1, [1, 2]) == [2, 3]


def test_what_a_task_raises_reaches_whoever_gave_the_batch() -> None:
    def fail(number: int) -> int:
        if number == 2:
            raise ValueError(number)
        return number

    with running_pool(2) as worker_pool:
        with pytest.raises(ValueError, match="2"):
            worker_pool.map(fail, [1, 2, 3])
        assert worker_pool.map(fail, [4, 5]) == [4, 5]


def test_nothing_more_of_a_batch_is_begun_after_a_failure() -> None:
    begun: list[int] = []

    def fail_at_two(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise ValueError(number)

    with running_pool(1) as worker_pool, pytest.raises(ValueError, match="2"):
        worker_pool.map(fail_at_two, [1, 2, 3, 4])
    assert begun == [1, 2]


def test_batches_of_many_callers_are_all_worked_off() -> None:
    done: dict[int, list[int]] = {}

    def call(worker_pool: WorkerPool, caller: int) -> None:
        for _ in range(50):
            done[caller] = worker_pool.map(lambda n: n + caller, [10, 20, 30, 40, 50])

    with running_pool(3) as worker_pool:
        callers = ThreadGroup("callers", stop=StopToken())
        for caller in range(4):
            callers.start(str(caller), partial(call, worker_pool, caller))
        assert callers.join(30)
    assert done == {n: [10 + n, 20 + n, 30 + n, 40 + n, 50 + n] for n in range(4)}
