"""Count the calls that one pass of admission takes, with gates and systems that share the slots.

python -m benchmarks.subjects.counting_admission NODES
"""

import sys
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec

from benchmarks.subjects.reporting import Reporter
from navarchos.clock import SYSTEM_CLOCK
from navarchos.operator.api.v1alpha1 import NodeDrain, NodeReplacement, NodeRollout
from navarchos.operator.gates import GateMonitor, Records
from navarchos.operator.gates.decide import (
    GateObservation,
    GateRecord,
    ObservedObject,
    follow,
    judge,
)
from navarchos.operator.gates.expressions import Outcome
from navarchos.operator.nodes import Node
from navarchos.operator.replacements.admission import admit
from navarchos.operator.replacements.snapshot import ClusterReader
from navarchos.operator.slots import DRAINS, ROLLOUTS, Holder, Slots, drain_holders

_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_HELD: Final = 3
_NEEDED: Final = 10
"""Every tenth node is needed by another system."""

_GATES: Final = (
    {"name": "nodes", "nodes": {"maxUnready": 1}},
    {
        "name": "store",
        "object": {"apiVersion": "v1", "kind": "Store", "name": "a"},
        "for": "condition=Ready",
    },
)


class _OpenGates:
    """Judges the gates of each rollout in each pass, as the monitor of gates does."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._records: dict[str, GateRecord] = {}

    def observe(
        self, rollouts: Iterable[NodeRollout], in_flight: Collection[str]
    ) -> Mapping[str, Records]:
        found = {}
        objects = [ObservedObject("a", Outcome(True, "x"))]
        seen = GateObservation(objects=objects, nodes=self._nodes, in_flight=in_flight)
        for rollout in rollouts:
            for gate in rollout.spec.gates:
                before = self._records.get(gate.name, GateRecord(gate.name))
                self._records[gate.name] = follow(before, judge(gate, seen, _NOW), _NOW)
            found[rollout.metadata.uid] = dict(self._records)
        return found


def reader(nodes: int) -> ClusterReader:
    """Return a reader of a rollout of this many waiting nodes, beside two other systems."""
    names = [f"n{number:05}" for number in range(nodes)]
    owner = {"apiVersion": "navarchos.pusher.com/v1alpha1", "kind": "NodeRollout", "name": "roll"}
    references = [{**owner, "uid": "roll", "controller": True}]
    rollout = {
        "metadata": {"name": "roll", "uid": "roll"},
        "spec": {"gates": _GATES},
        "status": {"phase": "InProgress"},
    }
    replacements = [
        {
            "metadata": {"name": f"roll-{name}", "uid": name, "ownerReferences": references},
            "spec": {"nodeName": name, "nodeUID": name, "strategy": {"maxConcurrent": 5}},
        }
        for name in names
    ]
    drains = [
        {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": name, "paused": True}}
        for name in names[:_HELD]
    ]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    stored = [{"metadata": {"name": name, "uid": name}, "status": ready} for name in names]
    caches: dict[str, Any] = {
        "rollouts": msgspec.convert([rollout], list[NodeRollout]),
        "replacements": msgspec.convert(replacements, list[NodeReplacement]),
        "drains": msgspec.convert(drains, list[NodeDrain]),
        "nodes": msgspec.convert(stored, list[Node]),
    }
    slots = Slots(SYSTEM_CLOCK)
    by_name = {node.metadata.name: node for node in caches["nodes"]}
    slots.add_source(ROLLOUTS, dict)
    slots.add_source(DRAINS, lambda: drain_holders(caches["drains"], by_name))
    slots.add_source("plans", lambda: {names[-1]: Holder("Plan", "os")})
    needed = frozenset(names[::_NEEDED])
    slots.add_objection("groups", lambda name: "needed" if name in needed else None)
    slots.add_objection("machines", lambda _: None)
    clients = {
        kind: SimpleNamespace(list=lambda objects=objects: objects, find=lambda _: None)
        for kind, objects in caches.items()
    }
    gates = cast("GateMonitor", _OpenGates(caches["nodes"]))
    return ClusterReader(cast("Any", SimpleNamespace(**clients)), list, slots, gates=gates)


def main() -> None:
    """Report the stage `counted`."""
    nodes = int(sys.argv[1])
    reporter, cluster = Reporter(), reader(nodes)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    began = SYSTEM_CLOCK.monotonic()
    admit(cluster.snapshot(), _NOW)
    seconds = SYSTEM_CLOCK.monotonic() - began
    sys.setprofile(count)
    decisions = admit(cluster.snapshot(), _NOW)
    sys.setprofile(None)
    reporter.end(
        "counted",
        decided=len(decisions.start) + len(decisions.waiting),
        started=len(decisions.start),
        calls_per_node=calls / nodes,
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
