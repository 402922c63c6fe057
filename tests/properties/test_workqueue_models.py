"""Queues equal their reference models under any sequence of operations.

The models are written from the rules, without heaps, locks or threads.
"""

import random
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.seeds import runs

from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.threads import ThreadGroup
from navarchos.workqueue import (
    DelayingQueue,
    ItemExponential,
    Loan,
    PriorityQueue,
    QueueTimeout,
    RateLimitingQueue,
)

KEYS = st.sampled_from("abcde")
DELAYS = st.integers(-1, 6)
PRIORITIES = st.sampled_from([-100, 0, 0, 1, 2])

BOUNDS = settings(max_examples=runs(150), stateful_step_count=40)
WALK = 40
ENOUGH = 25
"""Steps before a shutdown is allowed, because little happens after it."""


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
    """The common part of the machines: the queue, open loans, failures and virtual time."""

    queue: DelayingQueue[str] | PriorityQueue[str]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.waiting = Waiting()
        self.loans: dict[str, Loan[str]] = {}
        self.failures: dict[str, int] = {}
        self.down = False
        self.steps = 0

    @invariant()
    def count_steps(self) -> None:
        self.steps += 1

    @rule(seed=st.integers(0, 2**32 - 1))
    def walk(self, seed: int) -> None:
        """Do many steps at once, because rare cases need more steps than examples have."""
        rand = random.Random(seed)
        for _ in range(WALK):
            self.step(rand)
            self.check()

    @abstractmethod
    def step(self, rand: random.Random) -> None:
        """Do a random operation."""

    @abstractmethod
    def check(self) -> None:
        """Compare the queue with its model."""

    def limited(self, key: str) -> int:
        """Return the delay of the limiter: 1 s, doubling, up to 4 s."""
        self.failures[key] = self.failures.get(key, 0) + 1
        return int(min(2 ** (self.failures[key] - 1), 4))

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
    """WQ-01 to WQ-12 and WQ-20, on the queue that has all functions."""

    queue: RateLimitingQueue[str]

    def __init__(self) -> None:
        super().__init__()
        self.queue = RateLimitingQueue[str](clock=self.clock, limiter=ItemExponential(1.0, 4.0))
        self.dirty: set[str] = set()
        self.ready: list[str] = []
        self.owed: set[str] = set()  # added again during their loan while a drain waits
        self.drained: list[bool] | None = None  # the result of a drain, once it has returned
        self.over = False  # whether it should have returned
        self.drain = ThreadGroup("drain", stop=StopToken())

    def teardown(self) -> None:
        super().teardown()
        assert self.drain.join(10)
        self.drain.raise_failure()

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

    @rule(key=KEYS)
    def add_rate_limited(self, key: str) -> None:
        self.queue.add_rate_limited(key)
        delay = self.limited(key)
        if not self.down:
            self.waiting.put(key, delay)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule()
    def get(self) -> None:
        loan = self.take()
        assert (loan.key if loan else None) == (self.ready.pop(0) if self.ready else None)
        if loan:
            self.dirty.remove(loan.key)
            self.owed.discard(loan.key)

    @rule(key=KEYS)
    def done(self, key: str) -> None:
        self.queue.done(key)
        if self.loans.pop(key, None) and key in self.dirty:
            self.ready.append(key)
            if self.drained is not None:
                self.owed.add(key)

    @rule(seconds=st.integers(1, 5))
    def advance(self, seconds: int) -> None:
        for key in self.advance_clock(seconds):
            self.note(key)

    @precondition(lambda self: self.steps > ENOUGH)
    @rule()
    def shut_down(self) -> None:
        self.queue.shut_down()
        self.down = True
        self.waiting.due.clear()
        assert self.drain.join(10)
        if self.drained is not None:
            assert self.drained == [self.over]
            self.drained, self.over = None, False
            self.owed.clear()

    @precondition(lambda self: self.drained is None and self.dirty & self.loans.keys())
    @rule()
    def shut_down_with_drain(self) -> None:
        drained: list[bool] = []
        self.drained = drained
        self.drain.start("drain", lambda: drained.append(self.queue.shut_down_with_drain()))
        self.clock.settle()
        self.down = True
        self.waiting.due.clear()

    def step(self, rand: random.Random) -> None:
        key = rand.choice("abcde")
        steps: list[Callable[[], object]] = [
            lambda: self.add(key),
            lambda: self.add_after(key, rand.randint(-1, 6)),
            lambda: self.add_rate_limited(key),
            lambda: self.forget(key),
            self.get,
            self.get,
            lambda: self.done(key),
            lambda: self.advance(rand.randint(1, 3)),
        ]
        rand.choice(steps)()

        if self.drained is None and self.dirty & self.loans.keys() and rand.random() < 0.1:
            self.shut_down_with_drain()

    def check(self) -> None:
        self.drained_when_nothing_is_owed()
        self.same_length()
        self.same_failures()

    @invariant()
    def drained_when_nothing_is_owed(self) -> None:
        if self.drained is None:
            return
        self.clock.settle()
        # It ends when no loan and no requeued key is left.
        self.over = self.over or not (self.loans or self.owed)
        assert self.drained == ([True] if self.over else [])

    @invariant()
    def same_length(self) -> None:
        assert len(self.queue) == len(self.ready)

    @invariant()
    def same_failures(self) -> None:
        counted = {key: self.queue.num_requeues(key) for key in "abcde"}
        assert counted == {key: self.failures.get(key, 0) for key in "abcde"}


class PriorityQueueMachine(QueueMachine):
    """WQ-21 to WQ-26."""

    queue: PriorityQueue[str]

    def __init__(self) -> None:
        super().__init__()
        self.queue = PriorityQueue[str](clock=self.clock, limiter=ItemExponential(1.0, 4.0))
        self.count = 0
        self.ready: dict[str, tuple[int, int]] = {}  # key to (-priority, count)
        self.delayed: dict[str, int] = {}  # key to priority

    def make_ready(self, key: str, priority: int) -> None:
        self.count += 1
        self.ready[key] = (-priority, self.count)

    @rule(key=KEYS, delay=DELAYS, limited=st.booleans(), priority=PRIORITIES)
    def add(self, key: str, delay: int, limited: bool, priority: int) -> None:
        self.queue.add(key, after=delay, rate_limited=limited, priority=priority)
        if limited:
            answer = self.limited(key)
            delay = min(answer, delay) if delay > 0 else answer
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

    @precondition(lambda self: self.steps > ENOUGH)
    @rule(drain=st.booleans())
    def shut_down(self, drain: bool) -> None:
        if drain:
            assert self.queue.shut_down_with_drain()
        else:
            self.queue.shut_down()
        self.down = True
        for state in (self.waiting.due, self.ready, self.delayed):
            state.clear()

    def step(self, rand: random.Random) -> None:
        key = rand.choice("abcde")
        steps: list[Callable[[], object]] = [
            lambda: self.add(
                key, rand.randint(-1, 6), rand.random() < 0.3, rand.choice([-100, 0, 0, 1, 2])
            ),
            self.get,
            lambda: self.done(key),
            lambda: self.advance(rand.randint(1, 3)),
        ]
        rand.choice(steps)()
        if rand.random() < 0.2:
            self.forget(key)

    def check(self) -> None:
        self.same_length()

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @invariant()
    def same_length(self) -> None:
        assert len(self.queue) == len(self.ready)


TestDelayingQueue = DelayingQueueMachine.TestCase
TestDelayingQueue.settings = BOUNDS
TestPriorityQueue = PriorityQueueMachine.TestCase
TestPriorityQueue.settings = BOUNDS
