"""The reconciler of readiness gates: conditions of the pods of a node, and answers to drains."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from navarchos.client import PatchType
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.drain import BUDGETS, Budget
from navarchos.informers.source import informer_rbac
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import OperatorClients
from navarchos.operator.names import HOOK_ANSWER_PREFIX, READINESS_HOOK
from navarchos.operator.nodes import Node
from navarchos.operator.readiness_gates.decide import (
    GATED_PODS,
    GatedPod,
    changes_of,
    gates_of,
    unready_gates,
    unready_since,
)
from navarchos.runtime import DONE, OUTDATED_READ, CachedClient, Reconciler, Request, Result

__all__ = ["NODE_INDEX", "RBAC", "ReadinessReconciler", "index_by_node"]

NODE_INDEX: Final = "gated-node"
"""The index of pods with a readiness gate of Navarchos by the name of their node."""

RBAC: Final = (
    *informer_rbac(GATED_PODS, BUDGETS),
    PolicyRule(GATED_PODS, ("patch",), subresource="status"),
    PolicyRule(api.NODE_DRAINS, ("patch",)),
)
"""Permissions of the reconciler and its caches, besides those of drains."""

_ANSWER: Final = f"{HOOK_ANSWER_PREFIX}{READINESS_HOOK}"


class ReadinessReconciler(Reconciler):
    """Makes the readiness gates of pods follow their nodes. A request is the name of a node.

    Promises: a condition whose type does not belong to Navarchos is never written, and neither is
    any other condition of a pod. A drain is answered only after the API server has stored that all
    pods of its gate are unready.

    Threads: safe from any thread, for different nodes.
    """

    def __init__(
        self,
        clients: OperatorClients,
        pods: CachedClient[GatedPod],
        budgets: CachedClient[Budget],
        clock: Clock,
    ) -> None:
        self._clients = clients
        self._pods = pods
        self._budgets = budgets
        self._clock = clock

    def reconcile(self, request: Request) -> Result:
        """Write the conditions that differ, then answer the drains that wait for them."""
        node = self._clients.nodes.find(request.name)
        if node is None:
            return DONE
        unready = unready_gates(node)
        pods = self._pods.by_index(NODE_INDEX, request.name)
        now = self._clock.now()
        for pod in pods:
            budgets = self._budgets.list(namespace=pod.metadata.namespace) if unready else ()
            for change in changes_of(pod, unready, budgets):
                if not self._write(pod, change.patch(now)):
                    break
        return self._answer(node, unready)

    def _write(self, pod: GatedPod, body: dict[str, object]) -> bool:
        """Patch the status of a pod; return whether it still exists."""
        meta = pod.metadata
        try:
            written = self._pods.client.patch(
                meta.name,
                body,
                meta.namespace,
                type=PatchType.STRATEGIC,
                subresource="status",
                uid=meta.uid,
            )
        except OUTDATED_READ:
            return False  # gone, or another pod has its name: its event comes
        self._pods.observe(written)
        return True

    def _answer(self, node: Node, unready: frozenset[str]) -> Result:
        """Answer the drains of a node whose gate is done."""
        waits = []
        for drain in self._clients.drains.list():
            spec = drain.spec.prepare
            if drain.spec.node_name != node.metadata.name or spec is None:
                continue
            if not _is_waiting(drain) or spec.readiness_gate not in unready:
                continue
            since = unready_since(self._all_of(node, spec.readiness_gate), spec.readiness_gate)
            left = since + timedelta(seconds=spec.settle_seconds) - self._clock.now()
            if left > timedelta():  # mutant: pods-not-settled
                waits.append(left.total_seconds())
                continue
            body = {"metadata": {"annotations": {_ANSWER: "Done"}}}
            self._clients.drains.patch_any_version(drain, body)
        return Result(requeue_after=min(waits)) if waits else DONE

    def _all_of(self, node: Node, gate: str) -> Sequence[GatedPod]:
        pods = self._pods.by_index(NODE_INDEX, node.metadata.name)
        return [pod for pod in pods if gate in gates_of(pod) and not pod.is_terminating]


def _is_waiting(drain: api.NodeDrain) -> bool:
    """Return whether a drain prepares its node and has not been answered."""
    return (
        drain.status.phase is api.DrainPhase.PREPARING
        and drain.metadata.deletion_timestamp is None
        and drain.metadata.annotations.get(_ANSWER, "") != "Done"
    )


def index_by_node(pod: GatedPod) -> tuple[str, ...]:
    """Return the node of a pod that has a readiness gate of Navarchos."""
    return (pod.spec.node_name,) if pod.spec.node_name and gates_of(pod) else ()
