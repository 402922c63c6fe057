"""The part of a Node that the operator reads."""

from datetime import datetime
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.client.taints import Taint
from navarchos.meta import Object

__all__ = [
    "CONTROL_PLANE_LABEL",
    "NODES",
    "Node",
    "NodeCondition",
    "NodeInfo",
    "NodeSpec",
    "NodeStatus",
]

CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"
"""On the nodes that run the control plane, by convention with an empty value."""


class NodeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Whether the node accepts new pods, its taints, and its machine."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeCondition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An entry of `status.conditions`, without its heartbeat time.

    Heartbeats change every few seconds, and no decision depends on them. Caches keep the time of
    the last transition for the condition `Ready` only.
    """

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class NodeInfo(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What the kubelet reports about its machine: its own version, and the id of the boot."""

    kubelet_version: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")


class NodeStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The conditions of a node, and the report of its kubelet."""

    conditions: tuple[NodeCondition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(Object, frozen=True):
    """A node: identity, labels, cordon, taints and readiness. Read-only."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether its condition `Ready` is `True`."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def ready_since(self) -> datetime | None:
        """The time at which the node last became Ready.

        `None` if it is not Ready, or if its kubelet has reported no time.
        """
        ready = (c for c in self.status.conditions if c.type == "Ready" and c.status == "True")
        return next((condition.last_transition_time for condition in ready), None)

    @property
    def is_control_plane(self) -> bool:
        """Whether it has the label of the control plane, with any value."""
        return CONTROL_PLANE_LABEL in self.metadata.labels


NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False, type=Node)
