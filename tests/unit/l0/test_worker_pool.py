"""A pool of threads that many callers share."""

import threading
from functools import partial

import pytest
from tests.cases.worker_pools import running_pool

from navarchos.parallel import WorkerPool
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup


def test_without_threads_the_calling_thread_does_the_work() -> None:
    assert WorkerPool("c").map(lambda n: n * 2, [1, 2, 3]) == [2, 4, 6]


def test_a_batch_runs_concurrently_and_returns_in_order() -> None:
    together = threading.Barrier(3, timeout=30)

    def meet(number: int) -> int:
        together.wait()  # three at once, or the barrier breaks
        return number * 2

    with running_pool(3) as pool:
        assert pool.map(meet, [1, 2, 3, 4, 5, 6]) == [2, 4, 6, 8, 10, 12]
    assert pool.map(lambda n: n + 1, [1, 2]) == [2, 3]


def test_the_exception_of_a_task_reaches_the_caller() -> None:
    def fail(number: int) -> int:
        if number == 2:
            raise ValueError(number)
        return number

    with running_pool(2) as pool:
        with pytest.raises(ValueError, match="2"):
            pool.map(fail, [1, 2, 3])
        assert pool.map(fail, [4, 5]) == [4, 5]


def test_no_further_task_of_a_batch_starts_after_a_failure() -> None:
    started: list[int] = []

    def fail_at_two(number: int) -> None:
        started.append(number)
        if number == 2:
            raise ValueError(number)

    with running_pool(1) as pool, pytest.raises(ValueError, match="2"):
        pool.map(fail_at_two, [1, 2, 3, 4])
    assert started == [1, 2]


def test_batches_of_many_callers_all_complete() -> None:
    done: dict[int, list[int]] = {}

    def call(pool: WorkerPool, caller: int) -> None:
        for _ in range(50):
            done[caller] = pool.map(lambda n: n + caller, [10, 20, 30, 40, 50])

    with running_pool(3) as pool:
        callers = ThreadGroup("callers", stop=StopToken())
        for caller in range(4):
            callers.start(str(caller), partial(call, pool, caller))
        assert callers.join(30)
    assert done == {n: [10 + n, 20 + n, 30 + n, 40 + n, 50 + n] for n in range(4)}
