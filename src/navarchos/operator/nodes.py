"""The part of a Node that the operator reads."""

from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.client.taints import Taint
from navarchos.meta import Object

__all__ = ["CONTROL_PLANE_LABEL", "NODES", "Node", "NodeCondition", "NodeSpec", "NodeStatus"]

CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"
"""On the nodes that run the control plane, by convention with an empty value."""


class NodeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Whether the node accepts new pods, its taints, and its machine."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    """An entry of `status.conditions`, without its heartbeat time.

    Heartbeats change every few seconds, and no decision depends on them.
    """

    type: str = ""
    status: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    """The conditions of a node."""

    conditions: tuple[NodeCondition, ...] = ()


class Node(Object, frozen=True):
    """A node: identity, labels, cordon, taints and readiness. Read-only."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether its condition `Ready` is `True`."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def is_control_plane(self) -> bool:
        """Whether it has the label of the control plane, with any value."""
        return CONTROL_PLANE_LABEL in self.metadata.labels


NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False, type=Node)
