"""The cordon of a node under drain: what to do about it, who owns it, and the patches.

An annotation on the node says that a drain owns the cordon. The annotation can outlive that
cordon: a user may uncordon the node and cordon it again while no manager reconciles. Then the
node's `managedFields` still show who set `spec.unschedulable`: an update makes its writer the
only owner of the fields that it changes, and of no other fields (KEP-555; structured-merge-diff
`merge/update.go`).
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, assert_never

import msgspec

from navarchos.client import Client, NotFound, Resource
from navarchos.client.rbac import PolicyRule
from navarchos.drain import CordonState, cordon_patch, cordon_state, uncordon_patch
from navarchos.informers import SharedInformer
from navarchos.meta import ObjectMeta
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import CORDONED_BY_ANNOTATION, FIELD_MANAGER
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.reasons import ConditionType, CordonReason
from navarchos.runtime import CachedClient
from navarchos.runtime.conditions import find_condition
from navarchos.structs import prepare_decoding

__all__ = [
    "RBAC",
    "CordonDecision",
    "CordonStep",
    "FieldOwner",
    "NodeCordoner",
    "OwnedNode",
    "OwnedNodeMeta",
    "decide_cordon",
    "is_cordoned_by_others",
    "kept_cordon_patch",
]

_TIMEOUT: Final = 10.0

RBAC: Final = (PolicyRule(NODES, ("get", "patch")),)
"""The permissions (RBAC) to cordon; the cache of nodes needs others."""


class CordonStep(Enum):
    """What to do to the node."""

    NOTHING = auto()
    CORDON = auto()
    DROP_OWNERSHIP = auto()


@dataclass(frozen=True, slots=True)
class CordonDecision:
    """What to do to the node, and what the condition `NodeCordoned` says afterwards.

    Attributes:
        step: What to do to the node.
        in_force: Whether the node is cordoned afterwards. If it is not, no pod is evicted,
            because the scheduler would place new pods on the node.
        reason: The reason of the condition.
        message: The message of the condition.
    """

    step: CordonStep
    in_force: bool
    reason: CordonReason
    message: str


_OURS: Final = CordonDecision(
    CordonStep.NOTHING, True, CordonReason.CORDONED, "cordoned by this drain"
)
_CORDON: Final = CordonDecision(CordonStep.CORDON, True, _OURS.reason, _OURS.message)
_FOREIGN: Final = CordonDecision(
    CordonStep.NOTHING,
    True,
    CordonReason.CORDONED_BEFORE,
    "cordoned by another client, so it stays cordoned after the drain",
)
_CORDON_AGAIN: Final = CordonDecision(
    CordonStep.CORDON,
    True,
    CordonReason.CORDONED_AGAIN,
    "uncordoned by another client during the drain; cordoned once more",
)
_RECORDONED: Final = CordonDecision(
    CordonStep.NOTHING, True, _CORDON_AGAIN.reason, _CORDON_AGAIN.message
)
_GIVE_UP: Final = CordonDecision(
    CordonStep.NOTHING,
    False,
    CordonReason.UNCORDONED_BY_OTHERS,
    "uncordoned by another client twice; to continue the drain, cordon the node",
)


def decide_cordon(node: Node, drain: api.NodeDrain) -> CordonDecision:
    """Decide what to do about the cordon. Pure.

    The reason of the condition records how often the node was cordoned. The condition is written
    after the node, so a crash between the two writes costs at most one more cordon. A cordon of
    this drain never counts as one of another client, because one patch sets both the cordon and
    the annotation.

    If another client uncordons the node during the drain, the drain cordons it once more, since
    an autoscaler may have uncordoned a node that it remembered from before. The second time, the
    drain respects it as a decision.
    """
    known = _known_reason(drain.status)
    state = cordon_state(
        unschedulable=node.spec.unschedulable,
        annotations=node.metadata.annotations,
        key=CORDONED_BY_ANNOTATION,
        owner=_owner_of(drain),
    )
    match state:
        case CordonState.OPEN:
            return _when_uncordoned(known, is_marked=_is_marked(node, drain))
        case CordonState.OURS | CordonState.FOREIGN:
            if known in {CordonReason.CORDONED_AGAIN, CordonReason.UNCORDONED_BY_OTHERS}:
                return _RECORDONED
            return _OURS if state is CordonState.OURS else _FOREIGN
        case _:
            assert_never(state)


def _when_uncordoned(known: CordonReason | None, *, is_marked: bool) -> CordonDecision:
    match known:
        case None | CordonReason.CORDON_FAILED:
            return _CORDON
        case CordonReason.CORDONED | CordonReason.CORDONED_BEFORE:
            return _CORDON_AGAIN
        case CordonReason.CORDONED_AGAIN | CordonReason.UNCORDONED_BY_OTHERS:
            # The annotation must not outlive the cordon of this drain: a later cordon by
            # another client would count as ours.
            step = CordonStep.DROP_OWNERSHIP if is_marked else CordonStep.NOTHING
            return CordonDecision(step, _GIVE_UP.in_force, _GIVE_UP.reason, _GIVE_UP.message)
        case _:
            assert_never(known)


def _known_reason(status: api.NodeDrainStatus) -> CordonReason | None:
    condition = find_condition(status.conditions, ConditionType.NODE_CORDONED)
    known = [reason for reason in CordonReason if condition and condition.reason == reason]
    return known[0] if known else None


def kept_cordon_patch(node: Node, drain: api.NodeDrain) -> dict[str, object] | None:
    """Return the patch after which no end of another drain uncordons the node. Pure.

    Args:
        node: The node of the drain.
        drain: A drain that has ended and keeps its node cordoned.

    Returns:
        A patch that makes the drain the owner of the cordon, if the cordon belongs to another
        drain, or if that drain has undone it by now. Otherwise `None`: a cordon that a person set
        stays theirs. Send the patch with the node's resourceVersion.
    """
    owner = node.metadata.annotations.get(CORDONED_BY_ANNOTATION, "")
    if node.spec.unschedulable:
        is_others = owner not in {"", _owner_of(drain)}  # mutant: cordon-of-another-drain-undone
    else:
        is_others = not owner and _known_reason(drain.status) is CordonReason.CORDONED_BEFORE
    return cordon_patch(CORDONED_BY_ANNOTATION, _owner_of(drain)) if is_others else None


def _owner_of(drain: api.NodeDrain) -> str:
    """Return the annotation's value for cordons of this drain: its name and uid."""
    return f"{drain.metadata.name}/{drain.metadata.uid}"


def _is_marked(node: Node, drain: api.NodeDrain) -> bool:
    """Return whether the node's annotation names this drain, cordoned or not."""
    return node.metadata.annotations.get(CORDONED_BY_ANNOTATION) == _owner_of(drain)


# Who owns spec.unschedulable


class FieldOwner(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `metadata.managedFields`."""

    manager: str = ""
    fields_v1: dict[str, object] = msgspec.field(default_factory=dict, name="fieldsV1")

    @property
    def owns_cordon(self) -> bool:
        """Whether `spec.unschedulable` is among the fields."""
        spec = self.fields_v1.get("f:spec")
        return isinstance(spec, dict) and "f:unschedulable" in spec


class OwnedNodeMeta(ObjectMeta, frozen=True):
    """Metadata with `managedFields`, which are too large for a cache of all nodes."""

    managed_fields: tuple[FieldOwner, ...] = ()


@prepare_decoding
class OwnedNode(Node, frozen=True):
    """A node with the owners of its fields."""

    metadata: OwnedNodeMeta = OwnedNodeMeta()


_OWNED_NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False, type=OwnedNode)

_NO_OWNER: Final = "before-first-apply"
"""The manager that servers record for fields that had no owner before the first apply."""


def is_cordoned_by_others(node: OwnedNode) -> bool:
    """Return whether another client has set `spec.unschedulable` of this node, alone or too.

    Without any recorded owner the answer is False, and the annotation decides.
    """
    managers = {owner.manager for owner in node.metadata.managed_fields if owner.owns_cordon}
    return bool(managers - {FIELD_MANAGER, _NO_OWNER})


class NodeCordoner:
    """Reads the nodes of drains, and cordons them.

    Promises: every patch carries uid and resourceVersion of the node that the decision was made
    on, so it fails with `Conflict` if the node has changed or another node has its name.

    Threads: safe from any thread.
    """

    def __init__(self, client: Client, informer: SharedInformer[Node]) -> None:
        self._nodes = CachedClient(
            client.resource(NODES).with_defaults(field_manager=FIELD_MANAGER),
            informer,
            timeout=_TIMEOUT,
        )
        self._owned_nodes = client.resource(_OWNED_NODES)

    def find(self, drain: api.NodeDrain) -> Node | None:
        """Return the drain's node, from the cache if possible; `None` if it is gone.

        The cache may be late, so a node that it does not have is read from the server.
        """
        node = self._nodes.find(drain.spec.node_name)
        if node is not None and _is_same_node(node, drain):
            return node
        return self.fetch(drain)

    def find_by_name(self, name: str) -> Node | None:
        """Return the cached node of this name, or `None`."""
        return self._nodes.find(name)

    def fetch(self, drain: api.NodeDrain) -> Node | None:
        """Return the drain's node as the server has it now; `None` if it is gone.

        A new node of the same name does not count.
        """
        node = self._nodes.fetch(drain.spec.node_name)
        return node if node is not None and _is_same_node(node, drain) else None

    def cordon(self, node: Node, drain: api.NodeDrain) -> None:
        """Cordon the node and record the drain as the owner of the cordon, in one write.

        Raises:
            Conflict: The node has changed; decide again.
        """
        self._nodes.patch(node, cordon_patch(CORDONED_BY_ANNOTATION, _owner_of(drain)))

    def drop_ownership(self, node: Node) -> None:
        """Remove the owner's annotation from a node.

        Raises:
            Conflict: The node has changed; decide again.
        """
        self._nodes.patch(node, {"metadata": {"annotations": {CORDONED_BY_ANNOTATION: None}}})

    def uncordon(self, drain: api.NodeDrain) -> bool:
        """Undo this drain's cordon if the node still has it.

        Returns:
            Whether the node was uncordoned; False if it is gone or was replaced, or if another
            client owns its cordon.

        Raises:
            Conflict: The node has changed; decide again.
        """
        node = self._fetch_owned(drain)
        if node is None or not _is_marked(node, drain):  # mutant: cordon-left-behind
            return False
        # mutant: foreign-cordon-undone
        if node.spec.unschedulable and not is_cordoned_by_others(node):
            self._nodes.patch(node, uncordon_patch(CORDONED_BY_ANNOTATION))
            return True
        self.drop_ownership(node)
        return False

    def _fetch_owned(self, drain: api.NodeDrain) -> OwnedNode | None:
        try:
            node = self._owned_nodes.get(drain.spec.node_name, timeout=_TIMEOUT)
        except NotFound:
            return None
        return node if _is_same_node(node, drain) else None


def _is_same_node(node: Node, drain: api.NodeDrain) -> bool:
    # Without a uid the drain means the node that has the name now; its uid is recorded next.
    # mutant: node-of-the-same-name
    return drain.spec.node_uid in {"", node.metadata.uid}
