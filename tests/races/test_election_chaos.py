"""Three candidates, one lease, and everything that can happen to a process.

They are stopped and continued, killed, told to go, cut off from the server in one
direction or both, and their dates step. The server judges each write:

1. nobody writes but the holder that the Lease names at that moment, and under the
   transition count by which it became the holder;
2. while somebody could take the lease, it is renewed or taken within its duration and a
   (jittered) retry period, by a clock that leaves out what the machine was late.

Sixty seconds; `NAVARCHOS_CHAOS_SECONDS` asks for another time. The seed is printed, and
`NAVARCHOS_CHAOS_SEED` sets it; what processes make of it is up to the machine.

At first, and every quarter of a minute, the leader is ambushed: stopped between its last
look at its own state and its request, until another leads. Nothing but the fence holds
that write back, so a fence that does not cannot pass by luck.

A write that has been handed to the network cannot be called back. So partitions lose
bytes and do not keep them for later, and a process that is stopped between the fence's
answer and `send`, some microseconds, would be found here: no client can close that gap.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.races.election_member import (
    AMBUSH,
    BOOK,
    LEASE,
    LEASE_DURATION,
    LOST,
    RETRY_PERIOD,
)

from navarchos.leaderelection.lease import JITTER
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.faultproxy import Direction, FaultProxy, WireFault, WireFaultKind
from navarchos.threads import ThreadGroup

SECONDS: Final = float(os.environ.get("NAVARCHOS_CHAOS_SECONDS", "60"))
LATE: Final = 60.0

TAKEN_WITHIN: Final = LEASE_DURATION + (1 + JITTER) * RETRY_PERIOD
ROOM: Final = 2.5
"""Seconds to notice dead connections."""

TICK: Final = 0.1
"""Seconds between two looks at the lease; what a look is late, the members may be too."""

AMBUSH_EVERY: Final = 15.0


class Member:
    """One candidate, behind a network of its own."""

    def __init__(self, name: str, server: ApiServer, directory: Path, judge: "Judge") -> None:
        self.name = name
        self.lost = 0
        self._judge = judge
        self._log = directory / f"{name}.log"
        self._threads = ThreadGroup(f"chaos-{name}", stop=StopToken())
        self._process: subprocess.Popen[str] | None = None
        self._lives = 0
        self.proxy = FaultProxy(server.url)

    @property
    def identity(self) -> str:
        """Of this life; who is started again is somebody else."""
        return f"{self.name}-{self._lives}"

    def start(self) -> None:
        """Begin another life, and wait until it competes."""
        self._lives += 1
        with self._log.open("a") as log:
            self._process = process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.races.election_member",
                    self.proxy.url,
                    self.identity,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        ready = threading.Event()

        def follow() -> None:
            assert process.stdout is not None
            with process.stdout as said:
                for _ in said:
                    self._judge.well(self.name)
                    ready.set()
            self._judge.ill(self.name)
            ready.set()

        self._threads.start("follow", follow)
        assert ready.wait(LATE), self.log()
        assert process.poll() is None, self.log()

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if there still is one."""
        assert self._process is not None
        self._process.send_signal(number)

    def tell(self, line: str) -> None:
        """Write to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has just ended; `revive` finds out how
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def has_stopped(self) -> bool:
        """Tell, once for each time, whether it has stopped itself."""
        assert self._process is not None
        try:
            found = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return False  # it has ended; `revive` finds out how
        return found is not None

    def end_of_life(self, timeout: float) -> int | None:
        """Return how it ended; `None` while it lives."""
        assert self._process is not None
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a step that was never read
            self._process.stdin.close()
        return status

    def revive(self) -> None:
        """Begin another life if the last one is over, which may be for good reasons only."""
        status = self.end_of_life(0)
        if status is None:
            return
        assert status in {0, LOST, -signal.SIGKILL}, f"{self.name}: {status}\n{self.log()}"
        self.lost += status == LOST
        self.start()

    def stop(self) -> None:
        """End it however it stands."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self.end_of_life(LATE)
        assert self._threads.join(LATE)

    def log(self) -> str:
        """Return what it said."""
        return self._log.read_text(encoding="utf-8")[-8000:]


class Judge:
    """Looks at each write in the order in which the server takes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.faults: list[str] = []  # guarded by _lock
        self.writes: Counter[str] = Counter()  # guarded by _lock
        self._spec: dict[str, Any] = {}  # guarded by _lock
        self._renewed = time.monotonic()  # guarded by _lock
        self._stalled = 0.0  # guarded by _lock; seconds since then that the machine was late
        self._well: dict[str, float] = {}  # guarded by _lock; since when

    def well(self, name: str) -> None:
        """From now on this member could take the lease."""
        with self._lock:
            self._well[name] = time.monotonic()

    def ill(self, name: str) -> None:
        """From now on it may not be able to."""
        with self._lock:
            self._well.pop(name, None)

    def look(self, change: Any) -> None:
        """Take in a write."""
        metadata = change.object["metadata"]
        where = (metadata["name"], metadata.get("namespace", ""))
        with self._lock:
            if change.object["kind"] == "Lease" and where == LEASE:
                self._spec = dict(change.object["spec"])
                self._renewed_locked()
            elif change.object["kind"] == "ConfigMap" and where == BOOK and change.previous:
                self._check_writer_locked(change.object["data"])

    def watch(self, stop: StopToken) -> None:
        """Look again and again whether nobody has taken a lease that is free."""
        while True:
            due = time.monotonic() + TICK
            if stop.wait(TICK):
                return
            with self._lock:
                self._stalled += time.monotonic() - due
                self._check_time_locked()

    def transitions(self) -> int:
        """How often the holder has changed."""
        with self._lock:
            return int(self._spec.get("leaseTransitions", 0))

    def holder(self) -> str:
        """Whom the Lease names."""
        with self._lock:
            return str(self._spec.get("holderIdentity", ""))

    def _check_writer_locked(self, data: dict[str, str]) -> None:
        self.writes[data["holder"]] += 1
        holder = self._spec.get("holderIdentity", "")
        transitions = str(self._spec.get("leaseTransitions"))
        if (data["holder"], data["transitions"]) != (holder, transitions):
            self.faults.append(f"{data} was written while {holder!r} led, {transitions}")

    def _check_time_locked(self) -> None:
        able = min(self._well.values(), default=None)
        if able is None:
            return
        free = time.monotonic() - max(able, self._renewed) - self._stalled
        if free > TAKEN_WITHIN + ROOM:
            late = free - TAKEN_WITHIN
            self.faults.append(f"free for {late:.1f} s longer than it may; well: {self._well}")
            self._renewed_locked()  # told once

    def _renewed_locked(self) -> None:
        self._renewed, self._stalled = time.monotonic(), 0.0


class Chaos:
    """Picks what happens next, and to whom; one member at least is always left in peace."""

    def __init__(self, members: list[Member], judge: Judge, rand: random.Random) -> None:
        self._members = members
        self._judge = judge
        self._rand = rand
        self._pause = StopToken()
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Make trouble for so long."""
        ambush_at = time.monotonic()
        others = (self._kill, self._terminate, self._cut_off, self._step)
        # What nothing but the fence notices in time comes as often as all else.
        troubles = (*others, *[self._freeze] * len(others))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if time.monotonic() >= ambush_at and self._ambush():
                ambush_at = time.monotonic() + AMBUSH_EVERY
            trouble = self._rand.choice(troubles)
            victims = self._victims()
            self.done[trouble.__name__] += 1
            with ExitStack() as stack:
                for victim in victims:
                    stack.enter_context(trouble(victim))
                self._wait(self._rand.uniform(0.1, 2.5 * LEASE_DURATION))
            self._revive()
            self._wait(self._rand.uniform(0, 0.4 * LEASE_DURATION))

    def _revive(self) -> None:
        for member in self._members:
            member.revive()

    def _ambush(self) -> bool:
        """Stop the leader just before a write until another leads; False if nobody does."""
        holder = self._judge.holder()
        leader = next((each for each in self._members if each.identity == holder), None)
        if leader is None:
            return False
        leader.has_stopped()  # one that was told before is forgotten
        self._judge.ill(leader.name)
        leader.tell(AMBUSH)
        caught = self._wait_until(leader.has_stopped, LEASE_DURATION)
        if caught:
            self._wait_until(lambda: self._judge.holder() not in {holder, ""}, 2 * TAKEN_WITHIN)
            self.done["_ambush"] += 1
            leader.send(signal.SIGCONT)
            self._judge.well(leader.name)
            self._wait(RETRY_PERIOD)  # it writes, or not, and ends
        else:
            # The trap is laid. It would go off when something else is done to the member: one
            # that is asked to end would stand still, one that is well would seem to be ill.
            leader.send(signal.SIGKILL)
            assert leader.end_of_life(LATE) is not None
        self._revive()
        return caught

    def _victims(self) -> list[Member]:
        """The leader most of the time: to the others little can happen."""
        others = list(self._members)
        self._rand.shuffle(others)
        if self._rand.random() < 0.8:
            others.sort(key=lambda member: member.identity != self._judge.holder())
        return others[: self._rand.choice((1, 1, 2))]

    def _wait(self, seconds: float) -> None:
        self._pause.wait(seconds)

    def _wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not (held := holds()) and time.monotonic() < end:
            self._pause.wait(0.02)
        return held

    @contextmanager
    def _freeze(self, victim: Member) -> Iterator[None]:
        self._judge.ill(victim.name)
        victim.send(signal.SIGSTOP)
        yield
        victim.send(signal.SIGCONT)
        self._judge.well(victim.name)

    @contextmanager
    def _kill(self, victim: Member) -> Iterator[None]:
        self._judge.ill(victim.name)
        victim.send(signal.SIGKILL)
        assert victim.end_of_life(LATE) is not None
        yield

    @contextmanager
    def _terminate(self, victim: Member) -> Iterator[None]:
        self._judge.ill(victim.name)
        victim.send(signal.SIGTERM)
        yield
        assert victim.end_of_life(LATE) in {0, LOST}, victim.log()

    @contextmanager
    def _cut_off(self, victim: Member) -> Iterator[None]:
        self._judge.ill(victim.name)
        for direction in self._rand.choice(([*Direction], [Direction.TO_CLIENT])):
            lost = WireFault(WireFaultKind.DROP, direction)
            victim.proxy.strike_new(lost)
            victim.proxy.strike(lost)
        yield
        victim.proxy.heal()
        self._judge.well(victim.name)

    @contextmanager
    def _step(self, victim: Member) -> Iterator[None]:
        seconds = self._rand.choice((-1, 1)) * self._rand.choice((1.0, 60.0, 86_400.0))
        victim.tell(str(seconds))
        yield


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[tuple[Judge, list[Member]]]:
    """A server, a judge in it, and three members who compete."""
    judge = Judge()
    with ExitStack() as stack:
        server = stack.enter_context(ApiServer())
        server.install(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": dict(zip(("name", "namespace"), BOOK, strict=True)),
            }
        )
        stack.callback(server.subscribe(judge.look))
        members = []
        for name in ("one", "two", "three"):
            member = Member(name, server, tmp_path, judge)
            stack.enter_context(member.proxy)
            stack.callback(member.stop)
            members.append(member)
        for member in members:
            member.start()
        looks = ThreadGroup("chaos-judge", stop=StopToken())
        looks.start("", lambda: judge.watch(looks.stop))
        stack.callback(looks.join, LATE)
        stack.callback(looks.stop.stop)
        yield judge, members


@pytest.mark.rule("LE-07", "LE-12", "LE-13")
@pytest.mark.rule("RT-20", "RT-22")
@pytest.mark.timeout(SECONDS + 120)
def test_never_two_writers_and_always_a_leader(arena: tuple[Judge, list[Member]]) -> None:
    judge, members = arena
    seed = int(os.environ.get("NAVARCHOS_CHAOS_SEED", random.SystemRandom().getrandbits(32)))
    sys.stdout.write(f"NAVARCHOS_CHAOS_SEED={seed}\n")
    chaos = Chaos(members, judge, random.Random(seed))
    chaos.run(SECONDS)
    sys.stdout.write(
        f"{dict(chaos.done)}, {judge.transitions()} transitions, "
        f"{sum(judge.writes.values())} writes, {sum(m.lost for m in members)} leases lost\n"
    )
    assert not judge.faults, "\n".join([*judge.faults, *(member.log() for member in members)])
    # There was something to judge.
    assert judge.transitions() >= SECONDS / 20
    assert len(judge.writes) >= SECONDS / 20
    assert chaos.done["_ambush"] >= SECONDS / 60
