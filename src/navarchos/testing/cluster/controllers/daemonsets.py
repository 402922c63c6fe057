"""DaemonSets: one pod on every node, cordoned or not.

Their pods are created with `spec.nodeName`, as upstream did before its scheduler
took them over: a request less per pod, and nothing else differs.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from navarchos.client.taints import Toleration
from navarchos.placement.node_rules import NodeAffinityRule, untolerated_taints
from navarchos.runtime import Builder, Request
from navarchos.testing.cluster import kinds
from navarchos.testing.cluster.context import SimulatorContext, status_patch
from navarchos.testing.cluster.controllers.workload_reconciler import WorkloadReconciler
from navarchos.testing.cluster.pods import DAEMON_TOLERATIONS, from_template

__all__ = ["DaemonSetPlan", "DaemonSets", "install", "plan", "tolerations_of"]


@dataclass(frozen=True, slots=True)
class DaemonSetPlan:
    """The nodes without a pod, the surplus pods, and the new status."""

    create: tuple[str, ...]
    delete: tuple[kinds.Pod, ...]
    status: kinds.DaemonSetStatus


def plan(
    template: kinds.Template,
    nodes: Iterable[kinds.Node],
    pods: Iterable[kinds.Pod],
    *,
    generation: int = 0,
) -> DaemonSetPlan:
    """Return the missing and the surplus pods of a DaemonSet.

    Every matching node whose taints are tolerated gets one pod, also a cordoned node
    (upstream adds a toleration of the cordon's taint). A terminating pod occupies its node
    until it is removed. Pods of missing nodes are left to the garbage collector.
    """
    tolerations = tolerations_of(template)
    spec = msgspec.convert(template.get("spec") or {}, kinds.PodSpec)
    wanted_nodes = NodeAffinityRule(spec.node_selector, spec.affinity)
    by_node: dict[str, list[kinds.Pod]] = defaultdict(list)
    for pod in pods:
        by_node[pod.spec.node_name].append(pod)
    create: list[str] = []
    delete: list[kinds.Pod] = []
    ready = scheduled = wanted = 0
    for node in nodes:
        held = by_node.get(node.metadata.name, [])
        if not _belongs(wanted_nodes, node, tolerations):
            delete += [pod for pod in held if not pod.is_terminating]
            continue
        wanted += 1
        scheduled += bool(held)
        ready += any(pod.is_ready and pod.is_active for pod in held)
        if not held:
            create.append(node.metadata.name)
        delete += _surplus(held)
    status = kinds.DaemonSetStatus(
        observed_generation=generation,
        current_number_scheduled=scheduled,
        desired_number_scheduled=wanted,
        number_ready=ready,
    )
    return DaemonSetPlan(tuple(create), tuple(delete), status)


def tolerations_of(template: kinds.Template) -> tuple[Toleration, ...]:
    """Return the tolerations of a template's pods, including the ones added by default."""
    spec = template.get("spec")
    own = spec.get("tolerations") if isinstance(spec, Mapping) else None
    return msgspec.convert([*(own or ()), *DAEMON_TOLERATIONS], tuple[Toleration, ...])


def _belongs(
    wanted: NodeAffinityRule, node: kinds.Node, tolerations: tuple[Toleration, ...]
) -> bool:
    return not wanted.why_not(node) and not any(untolerated_taints(node.spec.taints, tolerations))


def _surplus(held: list[kinds.Pod]) -> list[kinds.Pod]:
    """Return finished pods, and all but one of the active ones."""
    finished = [pod for pod in held if pod.is_finished and not pod.is_terminating]
    active = [pod for pod in held if pod.is_active]
    return finished + sorted(active, key=lambda pod: (not pod.is_ready, pod.metadata.name))[1:]


class DaemonSets(WorkloadReconciler[kinds.DaemonSet]):
    """Creates one pod for each matching node."""

    def __init__(self, context: SimulatorContext) -> None:
        super().__init__(context, kinds.DAEMON_SETS, context.daemon_sets)

    def sync(self, found: kinds.DaemonSet) -> None:
        """Create the missing pods and delete the surplus pods."""
        step = self._plan(found)
        template, namespace = found.spec.template, found.metadata.namespace
        for node in step.create:
            tolerations = msgspec.to_builtins(tolerations_of(template))
            spec = {"nodeName": node, "tolerations": tolerations}
            self.pods.create(from_template(template, self.owner(found), namespace, spec=spec))
        for pod in step.delete:
            self.pods.delete(pod)

    def status_of(self, found: kinds.DaemonSet) -> Mapping[str, object] | None:
        """Count nodes and pods."""
        status = self._plan(found).status
        if status == found.status:
            return None
        return status_patch(
            status,
            numberMisscheduled=0,
            numberAvailable=status.number_ready,
            numberUnavailable=status.desired_number_scheduled - status.number_ready,
            updatedNumberScheduled=status.current_number_scheduled,
        )

    def requests_for(self, node: kinds.Node) -> Iterable[Request]:
        """Map a changed node to every DaemonSet."""
        del node
        for each in self.context.daemon_sets.lister.list():
            yield Request(each.metadata.namespace, each.metadata.name)

    def _plan(self, found: kinds.DaemonSet) -> DaemonSetPlan:
        metadata = found.metadata
        return plan(
            found.spec.template,
            self.context.nodes.lister.list(),
            self.context.pods_of(metadata.uid),
            generation=metadata.generation,
        )


def install(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    reconciler = DaemonSets(context)
    (
        Builder(context.manager, "daemonset")
        .for_(kinds.DAEMON_SETS)
        .owns(kinds.PODS)
        .watches(kinds.NODES, map=reconciler.requests_for)
        .build(reconciler)
    )
