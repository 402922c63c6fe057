"""Queues equal their reference models under any sequence of operations.

The models are written from the rules, without heaps, locks or threads.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from navarchos.testing import FakeClock
from navarchos.workqueue import DelayingQueue, Loan, PriorityQueue, QueueTimeout

KEYS = st.sampled_from("abcde")
DELAYS = st.integers(-1, 6)
PRIORITIES = st.sampled_from([-100, 0, 0, 1, 2])

BOUNDS = settings(max_examples=80, stateful_step_count=40)


@dataclass
class Waiting:
    """Keys that wait for their time: key to (due, order of asking)."""

    now: int = 0
    asked: int = 0
    due: dict[str, tuple[int, int]] = field(default_factory=dict)

    def put(self, key: str, delay: int) -> None:
        due = self.now + delay
        if key not in self.due or due < self.due[key][0]:
            self.asked += 1
            self.due[key] = (due, self.asked)

    def advance(self, seconds: int) -> list[str]:
        self.now += seconds
        ripe = sorted((at, key) for key, at in self.due.items() if at[0] <= self.now)
        for _, key in ripe:
            del self.due[key]
        return [key for _, key in ripe]


class QueueMachine(RuleBasedStateMachine):
    """What both machines share: the queue, open loans and virtual time."""

    queue: DelayingQueue[str] | PriorityQueue[str]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.waiting = Waiting()
        self.loans: dict[str, Loan[str]] = {}
        self.down = False

    def teardown(self) -> None:
        self.queue.shut_down()

    def take(self) -> Loan[str] | None:
        try:
            loan = self.queue.get(timeout=0)
        except QueueTimeout:
            return None
        assert (loan is not None) or self.down
        if loan is not None:
            assert loan.key not in self.loans, "on loan twice"
            self.loans[loan.key] = loan
        return loan

    def advance_clock(self, seconds: int) -> list[str]:
        self.clock.settle()
        self.clock.advance(seconds)
        return self.waiting.advance(seconds)


class DelayingQueueMachine(QueueMachine):
    """WQ-01 to WQ-12."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = DelayingQueue[str](clock=self.clock)
        self.dirty: set[str] = set()
        self.ready: list[str] = []

    def note(self, key: str) -> None:
        if self.down or key in self.dirty:
            return
        self.dirty.add(key)
        if key not in self.loans:
            self.ready.append(key)

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.note(key)

    @rule(key=KEYS, delay=DELAYS)
    def add_after(self, key: str, delay: int) -> None:
        self.queue.add_after(key, delay)
        if self.down:
            return
        if delay <= 0:
            self.note(key)
        else:
            self.waiting.put(key, delay)

    @rule()
    def get(self) -> None:
        loan = self.take()
        assert (loan.key if loan else None) == (self.ready.pop(0) if self.ready else None)
        if loan:
            self.dirty.remove(loan.key)

    @rule(key=KEYS)
    def done(self, key: str) -> None:
        self.queue.done(key)
        if self.loans.pop(key, None) and key in self.dirty:
            self.ready.append(key)

    @rule(seconds=st.integers(1, 5))
    def advance(self, seconds: int) -> None:
        for key in self.advance_clock(seconds):
            self.note(key)

    @precondition(lambda self: self.waiting.asked > 3)
    @rule()
    def shut_down(self) -> None:
        self.queue.shut_down()
        self.down = True
        self.waiting.due.clear()

    @invariant()
    def same_length(self) -> None:
        assert len(self.queue) == len(self.ready)


class PriorityQueueMachine(QueueMachine):
    """WQ-21 to WQ-26."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = PriorityQueue[str](clock=self.clock)
        self.count = 0
        self.ready: dict[str, tuple[int, int]] = {}  # key to (-priority, count)
        self.delayed: dict[str, int] = {}  # key to priority

    def make_ready(self, key: str, priority: int) -> None:
        self.count += 1
        self.ready[key] = (-priority, self.count)

    @rule(key=KEYS, delay=DELAYS, priority=PRIORITIES)
    def add(self, key: str, delay: int, priority: int) -> None:
        self.queue.add(key, after=delay, priority=priority)
        if self.down:
            return
        if key in self.ready:
            if priority > -self.ready[key][0]:
                self.make_ready(key, priority)
        elif delay > 0:
            self.delayed[key] = max(priority, self.delayed.get(key, priority))
            self.waiting.put(key, delay)
        else:
            self.waiting.due.pop(key, None)
            self.make_ready(key, max(priority, self.delayed.pop(key, priority)))

    @rule()
    def get(self) -> None:
        free = [(order, key) for key, order in self.ready.items() if key not in self.loans]
        loan = self.take()
        if not free:
            assert loan is None
            return
        order, key = min(free)
        assert loan is not None
        assert (loan.key, loan.priority) == (key, -order[0])
        del self.ready[key]

    @rule(key=KEYS)
    def done(self, key: str) -> None:
        self.queue.done(key)
        self.loans.pop(key, None)

    @rule(seconds=st.integers(1, 5))
    def advance(self, seconds: int) -> None:
        for key in self.advance_clock(seconds):
            self.make_ready(key, self.delayed.pop(key))

    @precondition(lambda self: self.count > 6)
    @rule()
    def shut_down(self) -> None:
        self.queue.shut_down()
        self.down = True
        for state in (self.waiting.due, self.ready, self.delayed):
            state.clear()

    @invariant()
    def same_length(self) -> None:
        assert len(self.queue) == len(self.ready)


TestDelayingQueue = DelayingQueueMachine.TestCase
TestDelayingQueue.settings = BOUNDS
TestPriorityQueue = PriorityQueueMachine.TestCase
TestPriorityQueue.settings = BOUNDS
