"""A lease in memory, and locks on it that a test can break."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from navarchos.client import AlreadyExists, Conflict, NotFound, RequestTimeout, Status
from navarchos.instrument import Instruments
from navarchos.leaderelection import ElectorOptions, LeaderCallbacks, LeaderElector, LeaseRecord
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.threads import ThreadGroup


@dataclass
class Lease:
    """The record on the server, and its version."""

    stored: LeaseRecord | None = None
    version: int = 0

    @property
    def record(self) -> LeaseRecord:
        """The stored record, which must exist."""
        assert self.stored is not None
        return self.stored

    def write(self, record: LeaseRecord) -> int:
        self.stored = record
        self.version += 1
        return self.version


class FakeLock:
    """A lock with compare-and-swap, whose calls can be made to fail or hang."""

    def __init__(self, lease: Lease, identity: str, clock: FakeClock) -> None:
        self.identity = identity
        self.lease = lease
        self.calls: list[str] = []
        self.timeouts: list[float] = []
        self.events: list[str] = []
        self.before: Callable[[str], object] | None = None
        self.after: Callable[[str], object] | None = None
        self.hangs = False
        self._clock = clock
        self._seen = 0
        self._never = threading.Condition()

    def describe(self) -> str:
        return "ns/lease"

    def get(self, *, timeout: float) -> LeaseRecord:
        self._called("get", timeout)
        if self.lease.stored is None:
            raise NotFound(Status(code=404))
        self._seen = self.lease.version
        return self.lease.record

    def create(self, record: LeaseRecord, *, timeout: float) -> None:
        self._called("create", timeout)
        if self.lease.stored is not None:
            raise AlreadyExists(Status(code=409))
        self._seen = self.lease.write(record)

    def update(self, record: LeaseRecord, *, timeout: float) -> None:
        self._called("update", timeout)
        if self._seen != self.lease.version:
            raise Conflict(Status(code=409))
        self._seen = self.lease.write(record)
        if self.after is not None:
            self.after("update")

    def record_event(self, message: str) -> None:
        self.events.append(message)

    def _called(self, verb: str, timeout: float) -> None:
        self.calls.append(verb)
        self.timeouts.append(timeout)
        if self.before is not None:
            self.before(verb)
        if self.hangs:
            with self._never:
                self._clock.wait(self._never, timeout)
            raise RequestTimeout("no answer in time", sent=True)


@dataclass
class Candidate:
    """An elector on a thread, and its callbacks."""

    lock: FakeLock
    clock: FakeClock
    release: bool = True
    work_timeout: float | None = 30.0
    work: Callable[[StopToken], None] | None = None
    on_new_leader: Callable[[str], None] | None = None
    reports: bool = True
    instruments: Instruments = field(default_factory=Instruments)
    log: list[str] = field(default_factory=list)
    leaders: list[str] = field(default_factory=list)
    outcome: BaseException | None = None

    def __post_init__(self) -> None:
        self.stop = StopToken(clock=self.clock)
        self.token: StopToken | None = None
        self.elector = LeaderElector(
            self.lock,
            LeaderCallbacks(
                on_started_leading=self._started,
                on_stopped_leading=lambda: self.log.append("stopped"),
                on_new_leader=self.on_new_leader or (self.leaders.append if self.reports else None),
            ),
            options=ElectorOptions(
                release_on_cancel=self.release, work_timeout=self.work_timeout, name="test"
            ),
            clock=self.clock,
            rand=lambda: 0.5,
            instruments=self.instruments,
        )
        self._threads = ThreadGroup("cand", stop=StopToken(clock=self.clock), clock=self.clock)

    def start(self) -> None:
        self._threads.start(self.lock.identity, self._run)
        self.clock.settle()

    def halt(self) -> None:
        self.stop.stop("test asked")
        self.clock.settle()

    def finish(self) -> None:
        """End it however it stands; for the end of a test."""
        self.lock.hangs = False
        self.lock.before = self.lock.after = None
        self.stop.stop("test over")
        if self.token is not None:
            self.token.stop("test over")
        while not (self._threads.join(0) and self.elector.join(0)):
            self.clock.settle()
            self.clock.advance(1.0)

    def metric(self, name: str) -> float | None:
        return self.instruments.registry.get_sample_value(name, {"name": "test"})

    @property
    def leads(self) -> bool:
        """Whether its work may go on."""
        return self.token is not None and not self.token.is_set()

    def _run(self) -> None:
        try:
            self.elector.run(self.stop)
        except BaseException as error:  # noqa: BLE001 - kept for the test
            self.outcome = error
        self.log.append("ended")

    def _started(self, stop: StopToken) -> None:
        self.token = stop
        self.log.append("started")
        (self.work or StopToken.wait)(stop)
        self.log.append("worked")


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.fixture
def candidate(lease: Lease, fake_clock: FakeClock) -> Iterator[Callable[..., Candidate]]:
    """Makes candidates for the lease and ends them after the test."""
    made: list[Candidate] = []

    def make(identity: str = "a", **options: object) -> Candidate:
        lock = FakeLock(lease, identity, fake_clock)
        made.append(Candidate(lock, fake_clock, **options))  # type: ignore[arg-type]  # a test's options
        return made[-1]

    yield make
    for each in made:
        each.finish()
