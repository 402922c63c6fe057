"""Three candidates and one lease under process, network and clock faults.

The candidates are stopped and continued, killed, terminated, cut off from the server in one
direction or both, and their dates change. The server checks each write:

1. only the holder that the Lease names at that moment writes, with the transition count by
   which it became the holder;
2. while a candidate could take the lease, it is renewed or taken within its duration and a
   (jittered) retry period, by a clock without the delays of the machine.

The test runs for sixty seconds; `NAVARCHOS_CHAOS_SECONDS` sets another time. The seed is
printed, and `NAVARCHOS_CHAOS_SEED` sets it; the timing of processes still differs.

At first, and every quarter of a minute, the leader is ambushed: stopped between its last
state check and its request, until another one leads. Only the fence can hold
that write back, so a broken fence cannot pass by luck.

A write that has been given to the network cannot be recalled. Partitions therefore lose
bytes instead of delaying them. A process that is stopped between the answer of the fence
and `send`, some microseconds, would fail here; no client can close that gap.
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
"""Seconds between two checks of the lease. Members may be as late as such a check is."""

AMBUSH_EVERY: Final = 15.0


class Member:
    """One candidate behind a separate network."""

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
        """The identity of the present process; a restarted one has another identity."""
        return f"{self.name}-{self._lives}"

    def start(self) -> None:
        """Start a process and wait until it competes."""
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
        """Send the process a signal if it still runs."""
        assert self._process is not None
        self._process.send_signal(number)

    def tell(self, line: str) -> None:
        """Write to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has just ended; `revive` checks how
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def has_stopped(self) -> bool:
        """Return, once per ambush, whether it has stopped itself."""
        assert self._process is not None
        try:
            found = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return False  # it has ended; `revive` checks how
        return found is not None

    def end_of_life(self, timeout: float) -> int | None:
        """Return its exit status; `None` while it runs."""
        assert self._process is not None
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a step that was not read
            self._process.stdin.close()
        return status

    def revive(self) -> None:
        """Start another process if the last one has ended, which must have an accepted reason."""
        status = self.end_of_life(0)
        if status is None:
            return
        assert status in {0, LOST, -signal.SIGKILL}, f"{self.name}: {status}\n{self.log()}"
        self.lost += status == LOST
        self.start()

    def stop(self) -> None:
        """End the process in any state."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self.end_of_life(LATE)
        assert self._threads.join(LATE)

    def log(self) -> str:
        """Return its output."""
        return self._log.read_text(encoding="utf-8")[-8000:]


class Judge:
    """Checks each write in the order in which the server accepts them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.faults: list[str] = []  # guarded by _lock
        self.writes: Counter[str] = Counter()  # guarded by _lock
        self._spec: dict[str, Any] = {}  # guarded by _lock
        self._renewed = time.monotonic()  # guarded by _lock
        self._stalled = 0.0  # guarded by _lock; delays of the machine since then, in seconds
        self._well: dict[str, float] = {}  # guarded by _lock; since when

    def well(self, name: str) -> None:
        """Record that this member can take the lease from now on."""
        with self._lock:
            self._well[name] = time.monotonic()

    def ill(self, name: str) -> None:
        """Record that it may not be able to from now on."""
        with self._lock:
            self._well.pop(name, None)

    def look(self, change: Any) -> None:
        """Check a write."""
        metadata = change.object["metadata"]
        where = (metadata["name"], metadata.get("namespace", ""))
        with self._lock:
            if change.object["kind"] == "Lease" and where == LEASE:
                self._spec = dict(change.object["spec"])
                self._renewed_locked()
            elif change.object["kind"] == "ConfigMap" and where == BOOK and change.previous:
                self._check_writer_locked(change.object["data"])

    def watch(self, stop: StopToken) -> None:
        """Check repeatedly that a free lease is taken in time."""
        while True:
            due = time.monotonic() + TICK
            if stop.wait(TICK):
                return
            with self._lock:
                self._stalled += time.monotonic() - due
                self._check_time_locked()

    def transitions(self) -> int:
        """The number of changes of the holder."""
        with self._lock:
            return int(self._spec.get("leaseTransitions", 0))

    def holder(self) -> str:
        """The holder that the Lease names."""
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
            self._renewed_locked()  # reported once

    def _renewed_locked(self) -> None:
        self._renewed, self._stalled = time.monotonic(), 0.0


class Chaos:
    """Chooses the next fault and its member. At least one member has no fault at any time."""

    def __init__(self, members: list[Member], judge: Judge, rand: random.Random) -> None:
        self._members = members
        self._judge = judge
        self._rand = rand
        self._pause = StopToken()
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Apply faults for this time."""
        ambush_at = time.monotonic()
        others = (self._kill, self._terminate, self._cut_off, self._step)
        # The fault that only the fence detects in time is as frequent as all others.
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
        """Stop the leader just before a write until another one leads; False if none does."""
        holder = self._judge.holder()
        leader = next((each for each in self._members if each.identity == holder), None)
        if leader is None:
            return False
        leader.has_stopped()  # an ambush that was set before is cleared
        self._judge.ill(leader.name)
        leader.tell(AMBUSH)
        caught = self._wait_until(leader.has_stopped, LEASE_DURATION)
        if caught:
            self._wait_until(lambda: self._judge.holder() not in {holder, ""}, 2 * TAKEN_WITHIN)
            self.done["_ambush"] += 1
            leader.send(signal.SIGCONT)
            self._judge.well(leader.name)
            self._wait(RETRY_PERIOD)  # it writes or not, and ends
        else:
            # The ambush is set. It would take effect during another fault: a member that should
            # end would be stopped, and a healthy one would seem to be faulty.
            leader.send(signal.SIGKILL)
            assert leader.end_of_life(LATE) is not None
        self._revive()
        return caught

    def _victims(self) -> list[Member]:
        """Return the leader most of the time, because faults have little effect on the others."""
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
    """A server with a judge, and three competing members."""
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
    # There were writes to check.
    assert judge.transitions() >= SECONDS / 20
    assert len(judge.writes) >= SECONDS / 20
    assert chaos.done["_ambush"] >= SECONDS / 60
