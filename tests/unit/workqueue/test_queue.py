import gc
import threading
import weakref

import pytest
from tests.informers import present
from tests.unit.workqueue.conftest import Spawn

from navarchos.errors import SelfJoin
from navarchos.testing import FakeClock
from navarchos.workqueue import Loan, QueueTimeout, WorkQueue


def keys_of(queue: WorkQueue[str]) -> list[str]:
    """Take everything that is ready, closing each loan at once."""
    taken = []
    while len(queue):
        with lend(queue) as key:
            taken.append(key)
    return taken


def lend(queue: WorkQueue[str]) -> Loan[str]:
    loan = queue.get(timeout=0)
    assert loan is not None
    return loan


def added_while_on_loan(clock: FakeClock) -> tuple[WorkQueue[str], Loan[str]]:
    """Return a queue that owes its only key another run, and the loan of that key."""
    queue = WorkQueue[str](clock=clock)
    queue.add("a")
    loan = lend(queue)
    queue.add("a")
    return queue, loan


@pytest.mark.rule("WQ-01")
def test_a_key_added_twice_comes_once() -> None:
    queue = WorkQueue[str]()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert keys_of(queue) == ["a", "b"]


@pytest.mark.rule("WQ-02")
def test_add_while_on_loan_runs_the_key_once_more() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    with lend(queue) as key:
        queue.add(key)
        queue.add(key)
        assert len(queue) == 0
        with pytest.raises(QueueTimeout):
            queue.get(timeout=0)
    assert keys_of(queue) == ["a"]


@pytest.mark.rule("WQ-03")
def test_done_without_a_loan_changes_nothing() -> None:
    queue = WorkQueue[str]()
    queue.done("never seen")
    queue.add("a")
    queue.done("a")
    assert keys_of(queue) == ["a"]


@pytest.mark.rule("WQ-03")
def test_closing_a_loan_twice_leaves_the_next_loan_of_the_key_alone() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    first = lend(queue)
    first.done()
    queue.add("a")
    second = lend(queue)
    first.done()
    queue.add("a")
    assert len(queue) == 0  # still on loan to the second
    second.done()
    assert len(queue) == 1


@pytest.mark.rule("WQ-04")
def test_len_counts_neither_loans_nor_keys_added_while_on_loan() -> None:
    queue = WorkQueue[str]()
    for key in ("a", "b", "c"):
        queue.add(key)
    with lend(queue):
        queue.add("a")
        assert len(queue) == 2
    assert len(queue) == 3


@pytest.mark.rule("WQ-05")
def test_after_shutdown_ready_keys_still_come_and_adds_are_ignored() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    assert queue.shutting_down
    with lend(queue) as key:
        assert key == "a"
    assert queue.get() is None
    assert queue.get(timeout=5) is None
    queue.shut_down()


@pytest.mark.rule("WQ-05")
def test_shutdown_wakes_every_getter(fake_clock: FakeClock, spawn: Spawn) -> None:
    queue = WorkQueue[str](clock=fake_clock)
    results = [spawn(queue.get) for _ in range(3)]
    fake_clock.settle(threads=3)
    queue.shut_down()
    wait_until_all(results)
    assert results == [[None], [None], [None]]


@pytest.mark.rule("WQ-06")
def test_drain_waits_for_open_loans(fake_clock: FakeClock, spawn: Spawn) -> None:
    queue = WorkQueue[str](clock=fake_clock)
    queue.add("a")
    queue.add("b")
    first, second = lend(queue), lend(queue)
    drained = spawn(queue.shut_down_with_drain)
    fake_clock.settle(threads=1)
    first.done()
    fake_clock.settle(threads=1)
    assert drained == []
    second.done()
    wait_until_all([drained])
    assert drained == [True]


@pytest.mark.rule("WQ-06")
def test_drain_waits_for_a_key_that_was_added_while_on_loan(
    fake_clock: FakeClock, spawn: Spawn
) -> None:
    queue, loan = added_while_on_loan(fake_clock)
    drained = spawn(queue.shut_down_with_drain)
    fake_clock.settle(threads=1)
    loan.done()
    fake_clock.settle(threads=1)
    assert drained == []
    with lend(queue) as key:
        assert key == "a"
    wait_until_all([drained])
    assert drained == [True]


@pytest.mark.rule("WQ-06")
def test_a_second_drain_waits_for_what_the_first_is_owed(
    fake_clock: FakeClock, spawn: Spawn
) -> None:
    queue, loan = added_while_on_loan(fake_clock)
    first = spawn(queue.shut_down_with_drain)
    fake_clock.settle(threads=1)
    loan.done()
    second = spawn(queue.shut_down_with_drain)
    fake_clock.settle(threads=2)
    assert (first, second) == ([], [])
    lend(queue).done()
    wait_until_all([first, second])
    assert (first, second) == ([True], [True])


@pytest.mark.rule("WQ-06")
def test_drain_does_not_wait_for_ready_keys() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert queue.shut_down_with_drain()
    assert len(queue) == 1


@pytest.mark.rule("WQ-06")
def test_drain_gives_up_at_its_timeout(fake_clock: FakeClock, spawn: Spawn) -> None:
    queue = WorkQueue[str](clock=fake_clock)
    queue.add("a")
    with lend(queue):
        drained = spawn(lambda: queue.shut_down_with_drain(timeout=30))
        fake_clock.settle(threads=1)
        fake_clock.advance(29)
        assert drained == []
        fake_clock.advance(1)
        wait_until_all([drained])
        assert drained == [False]


@pytest.mark.rule("WQ-07")
def test_a_plain_shutdown_releases_a_drain(fake_clock: FakeClock, spawn: Spawn) -> None:
    queue = WorkQueue[str](clock=fake_clock)
    queue.add("a")
    with lend(queue):
        drained = spawn(queue.shut_down_with_drain)
        fake_clock.settle(threads=1)
        queue.shut_down()
        wait_until_all([drained])
        assert drained == [False]


@pytest.mark.rule("WQ-07")
def test_a_released_drain_says_that_a_key_given_back_dirty_was_still_owed(
    fake_clock: FakeClock, spawn: Spawn
) -> None:
    queue, loan = added_while_on_loan(fake_clock)
    drained = spawn(queue.shut_down_with_drain)
    fake_clock.settle(threads=1)
    loan.done()
    queue.shut_down()
    wait_until_all([drained])
    assert drained == [False]


@pytest.mark.rule("RT-09")
def test_a_worker_cannot_drain_its_own_loan() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    with lend(queue), pytest.raises(SelfJoin):
        queue.shut_down_with_drain()


@pytest.mark.rule("WQ-08")
def test_the_queue_keeps_no_reference_to_a_key_it_gave_out() -> None:
    class Key:
        pass

    queue = WorkQueue[Key]()
    key = Key()
    trace = weakref.ref(key)
    queue.add(key)
    loan = queue.get()
    assert loan is not None
    loan.done()
    del key, loan
    gc.collect()
    assert trace() is None


@pytest.mark.rule("WQ-08")
def test_the_order_of_ready_keys_can_be_chosen() -> None:
    class Lifo(list[str]):
        touched: tuple[str, ...] = ()
        push = list.append

        def touch(self, key: str) -> None:
            self.touched += (key,)

    order = Lifo()
    queue = WorkQueue[str](order=order)
    for key in ("a", "b", "a"):
        queue.add(key)
    assert keys_of(queue) == ["b", "a"]
    assert order.touched == ("a",)


@pytest.mark.rule("WQ-09")
def test_an_unhashable_key_is_refused_where_it_is_added() -> None:
    queue = WorkQueue[list[str]]()
    with pytest.raises(TypeError, match="must be hashable, but list is not"):
        queue.add(["a"])
    assert len(queue) == 0


def test_get_waits_for_a_key(fake_clock: FakeClock, spawn: Spawn) -> None:
    queue = WorkQueue[str](clock=fake_clock)
    got = spawn(lambda: present(queue.get()).key)
    fake_clock.settle(threads=1)
    assert got == []
    queue.add("a")
    wait_until_all([got])
    assert got == ["a"]


def test_get_gives_up_at_its_timeout_and_changes_nothing(
    fake_clock: FakeClock, spawn: Spawn
) -> None:
    queue = WorkQueue[str](name="q", clock=fake_clock)

    def get() -> object:
        try:
            return queue.get(timeout=5)
        except QueueTimeout as error:
            return error

    result = spawn(get)
    fake_clock.settle(threads=1)
    fake_clock.advance(5)
    wait_until_all([result])
    assert isinstance(result[0], QueueTimeout)
    assert (result[0].queue, result[0].timeout) == ("q", 5)
    assert str(result[0]) == "queue q had no key ready within 5 s"
    queue.add("a")
    assert keys_of(queue) == ["a"]


def test_a_loan_is_closed_when_the_work_fails() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    with pytest.raises(ZeroDivisionError), lend(queue):
        raise ZeroDivisionError
    queue.add("a")
    assert keys_of(queue) == ["a"]


def wait_until_all(results: list[list[object]]) -> None:
    """Wait for what `spawn` promised, by joining its threads."""
    for thread in threading.enumerate():
        if thread.name == "nav-test-worker":
            thread.join(10)
    assert all(results)
