"""The nodes of a simulated cluster: names, roles, zones and capacity."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from navarchos.client.taints import Taint
from navarchos.meta import format_time
from navarchos.testing.cluster.kinds import Node

__all__ = [
    "CORDON_TAINT",
    "HOSTNAME_LABEL",
    "IMPORTANT_NODE",
    "KUBELET_VERSION",
    "MASTER_TAINT",
    "ROLE_LABEL",
    "ZONES",
    "ZONE_LABEL",
    "Machine",
    "machines",
    "node_manifest",
    "registered_at",
    "replacement_name",
    "role_counts",
    "successor",
    "taints_of",
]

JsonObject = dict[str, Any]

IMPORTANT_NODE: Final = "important-node"
ROLE_LABEL: Final = "kubernetes.io/role"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONES: Final = ("zone-a", "zone-b", "zone-c")
CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
_NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
KUBELET_VERSION: Final = "v1.34.0"
MASTER_TAINT: Final[Mapping[str, str]] = {
    "key": "node-role.kubernetes.io/control-plane",
    "effect": "NoSchedule",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the cloud that registers itself as a node.

    Attributes:
        name: The node's name.
        role: The value of the role label.
        zone: The value of the zone label.
        number: Unique in the cluster; the address and the provider id are derived from it.
        labels: Additional labels of the node.
        taints: The taints that the node registers with.
        pods: The maximum number of pods.
        cpu: The number of processors.
        annotations: Additional annotations of the node.
    """

    name: str
    role: str
    zone: str
    number: int
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    pods: int
    cpu: int
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The internal address."""
        return f"10.{self.number >> 16 & 255}.{self.number >> 8 & 255}.{self.number & 255}"

    @property
    def provider_id(self) -> str:
        """The `providerID` of the node."""
        return f"simulated:///{self.zone}/i-{self.number:08x}"


def role_counts(others: int) -> dict[str, int]:
    """Return the number of nodes of each role, without the important node.

    All four roles exist from five nodes on. A fifth of the nodes are support nodes and a
    third of the rest spot workers; from 15 nodes on there are three masters.
    """
    if others < 4:
        order = ("worker", "spot-worker", "support")[:others]
        return dict.fromkeys(order, 1)
    masters = 3 if others >= 15 else 1
    support = max(1, others // 5)
    spot = max(1, (others - masters - support) // 3)
    worker = others - masters - support - spot
    return {"master": masters, "support": support, "worker": worker, "spot-worker": spot}


def machines(count: int, pods_per_node: int) -> list[Machine]:
    """Return the machines of a new cluster, `important-node` first.

    The important node is a support node, so that it can be selected by name and by role.
    """
    roles = ["support"]
    for role, number in role_counts(count - 1).items():
        roles += [role] * number
    # Capacity for twice the mean: some of the nodes may be missing at any time.
    pods = max(110, 2 * pods_per_node)
    cpu = max(8, math.ceil(pods_per_node / 4))
    return [
        Machine(
            name=f"node-{index}" if index else IMPORTANT_NODE,
            role=role,
            zone=ZONES[index % len(ZONES)],
            number=index + 1,
            labels={},
            taints=(MASTER_TAINT,) if role == "master" else (),
            pods=pods,
            cpu=cpu,
        )
        for index, role in enumerate(roles)
    ]


def replacement_name(name: str, generation: int) -> str:
    """Return the name of a machine's successor: `node-1`, `node-1-r1`, `node-1-r2`."""
    base, marker, number = name.rpartition("-r")
    origin = base if marker and number.isdigit() else name
    return f"{origin}-r{generation}"


def successor(machine: Machine, generation: int, number: int) -> Machine:
    """Return the machine that replaces this one: the same zone and role, another name."""
    return replace(machine, name=replacement_name(machine.name, generation), number=number)


def node_manifest(machine: Machine, *, at: datetime, uid: str = "") -> JsonObject:
    """Return the Ready node that a machine registers.

    Args:
        machine: The machine.
        at: The time of the registration.
        uid: The uid of an installed node; empty if the server assigns one.
    """
    metadata: JsonObject = {
        "name": machine.name,
        "labels": {
            **machine.labels,
            HOSTNAME_LABEL: machine.name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            ROLE_LABEL: machine.role,
            ZONE_LABEL: machine.zone,
        },
    }
    if machine.annotations:
        metadata["annotations"] = dict(machine.annotations)
    if uid:
        metadata |= {"uid": uid, "creationTimestamp": format_time(at)}
    spec: JsonObject = {"providerID": machine.provider_id}
    if machine.taints:
        spec["taints"] = [dict(taint) for taint in machine.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": _status(machine, at),
    }


def _status(machine: Machine, at: datetime) -> JsonObject:
    room = {"cpu": str(machine.cpu), "memory": f"{machine.cpu * 4}Gi", "pods": str(machine.pods)}
    identity = f"{machine.number:032x}"
    return {
        "capacity": room,
        "allocatable": room,
        "conditions": _conditions(at),
        "addresses": [
            {"type": "InternalIP", "address": machine.address},
            {"type": "Hostname", "address": machine.name},
        ],
        "nodeInfo": {
            "machineID": identity,
            "systemUUID": identity,
            "bootID": identity,
            "kernelVersion": "6.12.0",
            "osImage": "Simulated Linux",
            "containerRuntimeVersion": "simulated://1.0",
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": KUBELET_VERSION,
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


def _conditions(at: datetime) -> Sequence[JsonObject]:
    when = format_time(at)
    times = {"lastHeartbeatTime": when, "lastTransitionTime": when}
    pressures = [
        {"type": kind, "status": "False", "reason": f"KubeletHasNo{kind}", **times}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        **times,
    }
    return [*pressures, ready]


def registered_at(position: int, now: datetime) -> datetime:
    """Return the registration time of the node at `position`.

    The first node registered thirty days ago, the others seven minutes apart.
    """
    return now - timedelta(days=30) + timedelta(minutes=7 * position)


def taints_of(node: Node, now: datetime) -> tuple[Taint, ...]:
    """Return the desired taints of a node: the taint of a cordon and the other taints.

    A real server registers nodes with a not-ready taint. It is removed when the node is
    Ready, as upstream's node lifecycle controller does.
    """
    kept = tuple(taint for taint in node.spec.taints if not _is_outlived(taint, node))
    if node.spec.unschedulable and all(taint.key != CORDON_TAINT for taint in kept):
        return (*kept, Taint(CORDON_TAINT, effect="NoSchedule", time_added=now))
    return kept


def _is_outlived(taint: Taint, node: Node) -> bool:
    if taint.key == _NOT_READY_TAINT:
        return taint.effect == "NoSchedule" and node.is_ready
    return taint.key == CORDON_TAINT and not node.spec.unschedulable
