"""The state of the simulated cluster, as the API server commits it.

The observer receives every committed change in commit order. So its counts (nodes in
flight, their order) are exact and do not depend on the manager.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.meta import Object, controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.reasons import Reason
from navarchos.structs import prepare_decoding
from navarchos.testing.apiserver import Change

__all__ = ["LogLine", "NodeView", "Observer", "Snapshot"]

ROLE_LABEL: Final = "kubernetes.io/role"


class _ObservedPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


@prepare_decoding
class _Pod(Object, frozen=True):
    spec: _ObservedPodSpec = _ObservedPodSpec()


class _ObservedNodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


@prepare_decoding
class _Node(Object, frozen=True):
    spec: _ObservedNodeSpec = _ObservedNodeSpec()


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the live view shows it."""

    name: str
    role: str
    step: api.Step | None
    priority: int | None
    pods: int
    cordoned: bool
    present: bool
    joined: bool = False


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line about a change, for output without a terminal."""

    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent copy of everything that the view shows."""

    nodes: tuple[NodeView, ...]
    rollouts: tuple[api.NodeRollout, ...]
    replacements: tuple[api.NodeReplacement, ...]
    order: tuple[str, ...]
    max_in_flight: int
    log_lines: tuple[LogLine, ...]


@dataclass(slots=True)
class _ClusterTables:
    nodes: dict[str, _Node] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)  # nodes that joined during the run
    roles: dict[str, str] = field(default_factory=dict)
    pods: dict[str, str] = field(
        default_factory=dict
    )  # the node of a pod, by uid; without DaemonSet pods
    load: Counter[str] = field(default_factory=Counter)  # number of such pods by node
    replacements: dict[str, api.NodeReplacement] = field(default_factory=dict)
    rollouts: dict[str, api.NodeRollout] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    max_in_flight: int = 0


class Observer:
    """Follows nodes, pods, replacements and rollouts.

    Threads: `on_change` runs under the lock of the server, so it only updates tables. All
    other methods are safe from any thread.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._world = _ClusterTables()  # guarded by _changed
        self._version = 0  # guarded by _changed
        self._notices: deque[LogLine] = deque()  # guarded by _changed
        self._readers: Final = {
            ("nodes", ""): self._on_node,
            ("pods", ""): self._on_pod,
            ("nodereplacements", api.GROUP): self._on_replacement,
            ("noderollouts", api.GROUP): self._on_rollout,
        }

    def on_change(self, change: Change) -> None:
        """Record one committed change."""
        reader = self._readers.get((change.resource.plural, change.resource.group))
        if reader is None:
            return
        with self._changed:
            reader(change.object, gone=change.type == "DELETED")
            self._version += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout: float) -> int:
        """Wait for a change after version `seen`, and return the current version."""
        with self._changed:
            if self._version == seen:
                self._clock.wait(self._changed, timeout)
            return self._version

    def snapshot(self) -> Snapshot:
        """Return the current state, and the lines since the previous snapshot."""
        with self._changed:
            world = self._world
            log_lines = tuple(self._notices)
            self._notices.clear()
            return Snapshot(
                nodes=tuple(self._node_views_locked()),
                rollouts=tuple(world.rollouts.values()),
                replacements=tuple(world.replacements.values()),
                order=tuple(world.order),
                max_in_flight=world.max_in_flight,
                log_lines=log_lines,
            )

    def _node_views_locked(self) -> list[NodeView]:
        world = self._world
        by_node = {r.spec.node_name: r for r in world.replacements.values()}
        views = []
        for name in dict.fromkeys([*by_node, *world.nodes]):
            node, replacement = world.nodes.get(name), by_node.get(name)
            views.append(
                NodeView(
                    name=name,
                    role=world.roles.get(name, ""),
                    step=replacement.status.current if replacement else None,
                    priority=replacement.spec.replacement.priority if replacement else None,
                    pods=world.load[name],
                    cordoned=node is not None and node.spec.unschedulable,
                    present=node is not None,
                    joined=name in world.joined,
                )
            )
        return views

    def _in_flight_locked(self) -> int:
        return sum(r.status.occupies_slot for r in self._world.replacements.values())

    def _on_node(self, obj: Mapping[str, object], *, gone: bool) -> None:
        node = msgspec.convert(obj, _Node)
        name = node.metadata.name
        self._world.roles[name] = node.metadata.labels.get(ROLE_LABEL, "")
        if gone:
            self._world.nodes.pop(name, None)
            self._say(f"{name}: machine is removed")
            return
        known = name in self._world.nodes
        self._world.nodes[name] = node
        if not known and self._world.replacements:
            self._world.joined.add(name)
            self._say(f"{name}: new machine has joined")

    def _on_pod(self, obj: Mapping[str, object], *, gone: bool) -> None:
        pod = msgspec.convert(obj, _Pod)
        world, uid = self._world, pod.metadata.uid
        owner = controller_of(pod.metadata)
        before = world.pods.pop(uid, None)
        if before is not None:
            world.load[before] -= 1
        stays = owner is not None and owner.kind == "DaemonSet"
        if not gone and not stays and pod.spec.node_name:
            world.pods[uid] = pod.spec.node_name
            world.load[pod.spec.node_name] += 1

    def _on_replacement(self, obj: Mapping[str, object], *, gone: bool) -> None:
        replacement = msgspec.convert(obj, api.NodeReplacement)
        world, name = self._world, replacement.metadata.name
        before = world.replacements.get(name)
        if gone:
            world.replacements.pop(name, None)
            return
        world.replacements[name] = replacement
        was = before.status.current if before is not None else api.Step.WAITING
        now = replacement.status.current
        if was is now:
            return
        if now.in_flight and not was.in_flight:
            world.order.append(replacement.spec.node_name)
            world.max_in_flight = max(world.max_in_flight, self._in_flight_locked())
        self._say(_describe(replacement, now))

    def _on_rollout(self, obj: Mapping[str, object], *, gone: bool) -> None:
        rollout = msgspec.convert(obj, api.NodeRollout)
        name = rollout.metadata.name
        before = self._world.rollouts.get(name)
        if gone:
            self._world.rollouts.pop(name, None)
            self._say(f"{name}: deleted")
            return
        self._world.rollouts[name] = rollout
        phase = rollout.status.phase or api.RolloutPhase.NEW
        if before is None or (before.status.phase or api.RolloutPhase.NEW) is not phase:
            self._say(f"{name}: {phase}")
        wave = rollout.status.wave
        was = before.status.wave if before is not None else None
        if wave is not None and (
            was is None or (was.number, was.state) != (wave.number, wave.state)
        ):
            self._say(f"{name}: wave {wave.number} of {wave.of}: {wave.state}")

    def _say(self, text: str) -> None:
        self._notices.append(LogLine(text))


def _describe(replacement: api.NodeReplacement, step: api.Step) -> str:
    node, status = replacement.spec.node_name, replacement.status
    if step is api.Step.DONE:
        is_back = status.step is not None and status.step.reason == Reason.RETURNED
        how = "in service" if is_back else "drained"
        return f"{node}: {how}, {status.evicted_pods_count} pods moved"
    if status.phase is api.ReplacementPhase.FAILED or step is api.Step.RELEASING:
        reason = status.step.reason if status.step else ""
        return f"{node}: {step} {reason}".rstrip()
    return f"{node}: {step}"
