"""Which readiness gates of a pod are true, and when the pods of a node are all unready. Pure.

The mark on the node is the only state: a manager that starts computes the same conditions again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.drain import Budget, Pod, budgets_of
from navarchos.drain.pods import PodSpec
from navarchos.meta import EPOCH, format_time
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import UNREADY_PREFIX
from navarchos.operator.nodes import Node
from navarchos.structs import prepare_decoding

__all__ = [
    "GATED_PODS",
    "GateChange",
    "GatedPod",
    "ReadinessReason",
    "changes_of",
    "gates_of",
    "trim_pod",
    "unready_gates",
    "unready_since",
]

_PREFIX: Final = f"{api.GROUP}/"


class ReadinessReason(StrEnum):
    """Why a readiness gate of a pod is true or false."""

    IN_SERVICE = "InService"
    NODE_PREPARED = "NodePrepared"


class ReadinessGate(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An entry of `spec.readinessGates`."""

    condition_type: str = ""


class GatedPodSpec(PodSpec, frozen=True, gc=False):
    """The fields of a pod's spec that a drain needs, and its readiness gates."""

    readiness_gates: tuple[ReadinessGate, ...] = ()


class GateCondition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An entry of `status.conditions`, with the time of its last change."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class GatedPodStatus(msgspec.Struct, frozen=True, gc=False):
    """The phase and conditions of a pod."""

    phase: str = ""
    conditions: tuple[GateCondition, ...] = ()


@prepare_decoding
class GatedPod(Pod, frozen=True):
    """A pod with its readiness gates. Read-only."""

    spec: GatedPodSpec = GatedPodSpec()
    status: GatedPodStatus = GatedPodStatus()  # type: ignore[assignment]


GATED_PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=GatedPod)


@dataclass(frozen=True, slots=True)
class GateChange:
    """A condition that has to be written.

    Attributes:
        type: The condition's type, which is the pod's readiness gate.
        is_true: Its status.
    """

    type: str
    is_true: bool

    def patch(self, now: datetime) -> dict[str, object]:
        """Return the strategic merge patch of the pod's status; it changes no other condition."""
        reason = ReadinessReason.IN_SERVICE if self.is_true else ReadinessReason.NODE_PREPARED
        message = "" if self.is_true else "the node is prepared for a drain"
        condition = {
            "type": self.type,
            "status": str(self.is_true),
            "reason": reason.value,
            "message": message,
            "lastTransitionTime": format_time(now),
        }
        return {"status": {"conditions": [condition]}}


def gates_of(pod: GatedPod) -> tuple[str, ...]:
    """Return the readiness gates of a pod that belong to Navarchos."""
    types = (gate.condition_type for gate in pod.spec.readiness_gates)
    return tuple(type_ for type_ in types if type_.startswith(_PREFIX))


def trim_pod(pod: GatedPod) -> GatedPod:
    """Return a pod as caches keep it: only its identity, unless it has gates of Navarchos."""
    if gates_of(pod):
        spec = GatedPodSpec(node_name=pod.spec.node_name, readiness_gates=pod.spec.readiness_gates)
        return msgspec.structs.replace(pod, spec=spec)
    meta = pod.metadata
    return GatedPod(
        metadata=type(meta)(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
    )


def unready_gates(node: Node) -> frozenset[str]:
    """Return the gates whose pods must be unready on a node."""
    keys = (key for key, value in node.metadata.annotations.items() if value == "true")
    names = (key.removeprefix(UNREADY_PREFIX) for key in keys if key.startswith(UNREADY_PREFIX))
    return frozenset(f"{_PREFIX}{name}" for name in names)


def changes_of(
    pod: GatedPod, unready: frozenset[str], budgets: Iterable[Budget]
) -> Iterator[GateChange]:
    """Yield the conditions of a pod that have to change.

    A pod under a PodDisruptionBudget stays ready: unready, it would count against the budget, and
    no eviction has asked that budget. A pod that has ended or is being deleted stays as it is.

    Args:
        pod: The pod.
        unready: The gates whose pods must be unready on its node.
        budgets: The budgets of its namespace.
    """
    if pod.is_finished or pod.is_terminating:
        return
    affected = [type_ for type_ in gates_of(pod) if type_ in unready]
    is_kept = bool(affected) and bool(budgets_of(pod, budgets))  # mutant: budgets-not-asked
    for type_ in gates_of(pod):
        is_true = is_kept or type_ not in unready
        found = _condition(pod, type_)
        if found is None or found.status != str(is_true):
            yield GateChange(type_, is_true)


def unready_since(pods: Iterable[GatedPod], gate: str) -> datetime:
    """Return when the last pod of a gate became unready; `EPOCH` without any unready pod."""
    found = [_condition(pod, gate) for pod in pods if gate in gates_of(pod)]
    times = [each.last_transition_time for each in found if each and each.status == "False"]
    return max((at for at in times if at is not None), default=EPOCH)


def _condition(pod: GatedPod, type_: str) -> GateCondition | None:
    return next((each for each in pod.status.conditions if each.type == type_), None)
