"""The cloud: terminates machines and boots their replacements.

The machine of a node with the terminate label is terminated after some time, and the node
is deleted. After the time of a boot, a replacement registers with the same role, zone and
taints and the next generation of the name: `node-1`, `node-1-r1`, `node-1-r2`. Only the
cloud knows its machines, so they are kept in memory and not read from the API. A node that
another client deletes is not replaced.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from navarchos.client import Conflict, NotFound, ignore_already_exists
from navarchos.logs import get_logger
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster import kinds, nodes
from navarchos.testing.cluster.context import SimulatorContext
from navarchos.testing.cluster.options import Agent

__all__ = ["Cloud", "install"]

_log = get_logger(__name__)


@dataclass(slots=True)
class _MachineSlot:
    """The slot of one machine, which runs or whose replacement boots.

    `generation` counts the machines of this slot. `due` is the end of the current
    termination or boot, otherwise `None`.
    """

    machine: nodes.Machine
    generation: int = 0
    due: float | None = None
    is_gone: bool = False


class Cloud(Reconciler):
    """Terminates and boots machines.

    Threads: one worker, which alone changes the places. The lock guards the count that
    other threads read.
    """

    def __init__(self, context: SimulatorContext, machines: Sequence[nodes.Machine]) -> None:
        self._context = context
        self._nodes = context.writer(Agent.CLOUD, kinds.NODES)
        self._places = {m.name: _MachineSlot(m) for m in machines}
        self._last_number = max((m.number for m in machines), default=0)
        self._replaced_lock = threading.Lock()
        self._replaced = 0  # guarded by _replaced_lock

    @property
    def replaced(self) -> int:
        """The number of replaced machines."""
        with self._replaced_lock:
            return self._replaced

    def reconcile(self, request: Request) -> Result:
        """Continue the termination or the boot of one machine."""
        place = self._places.get(request.name)
        if place is None:
            return DONE
        if place.is_gone:
            return self._boot(request.name, place)
        node = self._context.nodes.lister.find(request.name)
        if node is None or self._context.options.terminate_label not in node.metadata.labels:
            place.due = None
            return DONE
        return self._terminate(node, place)

    def _terminate(self, node: kinds.Node, place: _MachineSlot) -> Result:
        left = self._left(place, "terminate")
        if left > 0:
            return Result(requeue_after=left)
        name = node.metadata.name
        try:
            self._nodes.delete(name, uid=node.metadata.uid)
        except (NotFound, Conflict):
            _log.info("machine_without_node", node=name)
        place.is_gone, place.due = True, None
        return Result(requeue_after=self._left(place, "boot"))

    def _boot(self, name: str, place: _MachineSlot) -> Result:
        left = self._left(place, "boot")
        if left > 0:
            return Result(requeue_after=left)
        generation = place.generation + 1
        machine = nodes.successor(place.machine, generation, self._last_number + 1)
        manifest = nodes.node_manifest(machine, at=self._context.clock.now())
        with ignore_already_exists():
            self._context.nodes.observe_write(self._nodes.create(manifest))
        del self._places[name]
        self._places[machine.name] = _MachineSlot(machine, generation)
        self._last_number = machine.number
        with self._replaced_lock:
            self._replaced += 1
        return DONE

    def _left(self, place: _MachineSlot, stage: str) -> float:
        """Return the seconds until the stage ends; the first call starts the stage."""
        options, now = self._context.options, self._context.clock.monotonic()
        if place.due is None:
            span = options.machine_boot if stage == "boot" else options.machine_termination
            key = f"{stage}/{place.machine.name}"
            place.due = now + self._context.durations.draw(span, key)
        return max(0.0, place.due - now)


def install(context: SimulatorContext, machines: Sequence[nodes.Machine]) -> Cloud:
    """Add the controller to the manager."""
    cloud = Cloud(context, machines)
    if context.options.terminate_label:
        Builder(context.manager, "cloud").for_(kinds.NODES).build(cloud)
    return cloud
