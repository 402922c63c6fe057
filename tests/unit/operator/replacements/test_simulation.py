"""Admission under lag, crashes and changes of leader: many seeded runs of a model.

The server stores objects with versions. A leader reads each object in its current state, or in
its state before the last change of another client, but never older than the leader's last write.
Its writes fail if it read an older version. The caches, which contain own writes, and the
precondition on every status write provide the same. Between two runs of admission nodes are
drained, fail, become stalled and vanish, and users pause, resume and add rollouts.

`tests/seeds.py` sets the number of runs; a failure names its seed.
"""

import random
from dataclasses import dataclass, field

import msgspec
import pytest
from tests.seeds import runs
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import NodeReplacement, Step
from navarchos.operator.replacements.admission import admit
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.operator.replacements.status import (
    advanced_status,
    drained_status,
    failed_attempt_status,
    node_gone_status,
    released_status,
    reserved_status,
    stalled_status,
)

SEEDS = runs(300)
STEPS = 60
LIMITS = {"r0": 1, "r1": 3, "r2": 2}
ON_HOLD = [{"type": "NodeDrained", "status": "False", "reason": "TimeoutHold"}]


@dataclass
class Server:
    """Objects with versions, and the state of each before the last change of another client."""

    now: dict[str, NodeReplacement] = field(default_factory=dict)
    before: dict[str, NodeReplacement | None] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)

    def change(self, name: str, obj: NodeReplacement, *, own: bool) -> None:
        self.before[name] = obj if own else self.now.get(name)
        self.now[name] = obj
        self.versions[name] = self.versions.get(name, 0) + 1


class Run:
    """One seeded run."""

    def __init__(self, make: Make, seed: int) -> None:
        self.make = make
        self.rand = random.Random(seed)
        self.server = Server()
        self.clock = 0.0
        self.rollouts = [make.rollout(name, strategy={"maxFailures": 99}) for name in LIMITS]
        self.held: set[str] = set()  # names of replacements whose drain is on hold
        for _ in range(self.rand.randint(2, 6)):
            self.add()

    def add(self) -> None:
        rollout = self.rand.choice(list(LIMITS))
        node = f"n{self.rand.randrange(8)}"
        obj = self.make.replacement(
            node,
            rollout=rollout,
            replacement={"priority": self.rand.randrange(2)},
            strategy={"maxConcurrent": LIMITS[rollout], "retries": 1},
        )
        if obj.metadata.name not in self.server.now:
            self.server.change(obj.metadata.name, obj, own=False)

    def look(self) -> dict[str, tuple[NodeReplacement, int]]:
        """Read the cache: each object may lack the last change of another client."""
        seen = {}
        for name, obj in self.server.now.items():
            version = self.server.versions[name]
            old = self.server.before[name]
            if old is obj or self.rand.random() < 0.6:
                seen[name] = (obj, version)
            elif old is not None:
                seen[name] = (old, version - 1)
        return seen

    def admit(self) -> None:
        """Run admission once; the process may be killed between two writes."""
        seen = self.look()
        nodes = [self.make.node(f"n{i}") for i in range(8) if i != 7]
        world = ClusterSnapshot(
            [obj for obj, _ in seen.values()],
            {rollout.metadata.uid: rollout for rollout in self.rollouts},
            {node.metadata.name: node for node in nodes},
            drains={
                name: self.make.drain(obj, status={"conditions": ON_HOLD})
                for name, (obj, _) in seen.items()
                if name in self.held and obj.status.current is Step.DRAINING
            },
        )
        decisions = admit(world, self.make.at(self.clock))
        for name in decisions.start:
            if self.rand.random() < 0.1:
                return  # killed
            obj, version = seen[name]
            if version == self.server.versions[name]:
                self.check_start(obj)
                status = reserved_status(obj, self.make.at(self.clock))
                self.server.change(name, msgspec.structs.replace(obj, status=status), own=True)
        for name in decisions.stalled:
            if self.rand.random() < 0.1:
                return  # killed
            obj, version = seen[name]
            if version == self.server.versions[name]:
                status = stalled_status(obj, self.make.at(self.clock))
                self.server.change(name, msgspec.structs.replace(obj, status=status), own=True)

    def check_start(self, obj: NodeReplacement) -> None:
        """Check the promises at the time of a start, on the state of the server."""
        others = self.server.now.values()
        closed = {r.spec.node_name for r in others if r.status.current.in_flight}
        assert obj.spec.node_name not in closed, "two replacements of one node at once"
        busy = {r.spec.node_name for r in others if r.status.occupies_slot}
        limit = obj.spec.strategy.max_concurrent
        assert isinstance(limit, int)
        assert len(busy) < limit, "more in flight than the limit"
        # The cache may lack changes of other clients, but not the starts of this leader.
        higher = [
            r
            for r in others
            if r.spec.replacement.priority > obj.spec.replacement.priority
            and r.status.current.in_flight
            and not r.spec.paused
        ]
        unseen = [r for r in higher if self.server.before[r.metadata.name] is not r]
        assert len(higher) == len(unseen), "a node of a higher priority is in flight"

    def progress(self) -> None:
        """Advance a started node."""
        started = [r for r in self.server.now.values() if r.status.current.in_flight]
        if not started:
            return
        obj = self.rand.choice(started)
        now = self.make.at(self.clock)
        match obj.status.current, self.rand.random():
            case Step.RELEASING, _:
                status = released_status(obj, now)
            case Step.RESERVED, chance if chance < 0.3:
                status = advanced_status(obj, Step.DRAINING, now)
                if self.rand.random() < 0.5:
                    self.held.add(obj.metadata.name)
            case _, chance if chance < 0.2:
                status = failed_attempt_status(obj, "Timeout", "", now)
            case _, chance if chance < 0.3:
                status = node_gone_status(obj, now)
            case _:
                status = drained_status(obj, now)
        moved = msgspec.structs.replace(obj, status=status)
        self.server.change(obj.metadata.name, moved, own=True)

    def meddle(self) -> None:
        """Pause or resume a rollout or a replacement, as a user does."""
        obj = self.rand.choice(list(self.server.now.values()))
        spec = msgspec.structs.replace(obj.spec, paused=not obj.spec.paused)
        changed = msgspec.structs.replace(obj, spec=spec)
        self.server.change(obj.metadata.name, changed, own=False)

    def finish(self) -> None:
        """Finish all nodes, without further changes by users."""
        for obj in list(self.server.now.values()):
            spec = msgspec.structs.replace(obj.spec, paused=False)
            clear = msgspec.structs.replace(obj, spec=spec)
            self.server.change(obj.metadata.name, clear, own=True)
        ends = {Step.DONE, Step.FAILED}
        for _ in range(2000):
            if all(r.status.current in ends for r in self.server.now.values()):
                return
            self.clock += 1
            self.admit()
            self.progress()
        raise AssertionError("some nodes never start")


@pytest.mark.rule("OP-22")
@pytest.mark.rule("OP-05")
def test_limits_and_priorities_hold_under_lag_crashes_and_changes_of_leader(make: Make) -> None:
    for seed in range(SEEDS):
        run = Run(make, seed)
        try:
            for _ in range(STEPS):
                run.clock += 1
                run.rand.choice([run.admit, run.admit, run.progress, run.meddle, run.add])()
            run.finish()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
