"""Who has closed a node, as the server itself keeps book of it.

An annotation says whose a cordon is, and outlives it: somebody may open the node and
close it again while no manager looks. Then `managedFields` still tell who did that:
an update makes its writer the only owner of the fields that it changes, and of no
others (KEP-555; structured-merge-diff `merge/update.go`).
"""

from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.meta import ObjectMeta
from navarchos.operator.names import FIELD_MANAGER
from navarchos.operator.nodes import Node
from navarchos.structs import prepare_decoding

__all__ = ["CLAIMED_NODES", "ClaimedNode", "is_closed_by_others"]

_NOBODY: Final = "before-first-apply"
"""Whom servers take as the owner of everything that had none before the first apply."""


class Claim(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `metadata.managedFields`."""

    manager: str = ""
    fields_v1: dict[str, object] = msgspec.field(default_factory=dict, name="fieldsV1")

    @property
    def has_cordon(self) -> bool:
        """Whether `spec.unschedulable` is among the fields."""
        spec = self.fields_v1.get("f:spec")
        return isinstance(spec, dict) and "f:unschedulable" in spec


class ClaimedMeta(ObjectMeta, frozen=True):
    """Metadata with `managedFields`: too much for a cache, right for one node."""

    managed_fields: tuple[Claim, ...] = ()


@prepare_decoding
class ClaimedNode(Node, frozen=True):
    """A node, and who has set which of its fields."""

    metadata: ClaimedMeta = ClaimedMeta()


CLAIMED_NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False, type=ClaimedNode)


def is_closed_by_others(node: ClaimedNode) -> bool:
    """Tell whether somebody else has cordoned this node, or has a part in it.

    Without a record of it nobody has: then the annotation decides.
    """
    managers = {claim.manager for claim in node.metadata.managed_fields if claim.has_cordon}
    return bool(managers - {FIELD_MANAGER, _NOBODY})
