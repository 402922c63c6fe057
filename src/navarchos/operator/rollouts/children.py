"""What a rollout's replacements look like, and how they follow its spec. Pure."""

from collections.abc import Mapping

import msgspec

from navarchos.client.nulls import without_nulls
from navarchos.client.owners import owner_reference
from navarchos.client.patches import merge_diff
from navarchos.operator.api.v1alpha1 import (
    NODE_ROLLOUTS,
    NodeReplacement,
    NodeReplacementSpec,
    NodeRollout,
    PlannedNode,
    Replacement,
    Step,
    Strategy,
)
from navarchos.operator.child_names import child_name
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.operator.replacements.failures import max_concurrent, max_failures

__all__ = ["manifest", "name_of_child", "patch_for", "resume_token"]


def name_of_child(rollout: NodeRollout, node: str) -> str:
    """Return the name of the replacement of that node: the same in every process."""
    return child_name(rollout.metadata.name, node)


def manifest(rollout: NodeRollout, node: PlannedNode) -> dict[str, object]:
    """Return the replacement of a node as it is created: one owner, the rollout (OP-02)."""
    token = resume_token(rollout)
    owner = owner_reference(rollout, NODE_ROLLOUTS, controller=True)
    metadata: dict[str, object] = {
        "name": name_of_child(rollout, node.name),
        "ownerReferences": [msgspec.to_builtins(owner)],
    }
    if token:
        metadata["annotations"] = {RESUME_ANNOTATION: token}
    return {"metadata": metadata, "spec": without_nulls(msgspec.to_builtins(_spec(rollout, node)))}


def patch_for(rollout: NodeRollout, node: PlannedNode, child: NodeReplacement) -> dict[str, object]:
    """Return what a child lacks, as a merge patch; empty when it lacks nothing.

    One that has not started follows the whole spec (OP-10), one in flight only
    `paused`; a finished one nothing. A failed one still learns that a person
    forgave its attempts.
    """
    patch: dict[str, object] = {}
    token = resume_token(rollout)
    step = child.status.current
    if token and step is not Step.DONE and _token(child) != token:
        patch["metadata"] = {"annotations": {RESUME_ANNOTATION: token}}
    spec = _spec_changes(rollout, node, child) if not step.is_finished else {}
    if spec:
        patch["spec"] = spec
    return patch


def resume_token(rollout: NodeRollout) -> str:
    """Return the resume annotation in force: taking it away changes nothing."""
    return rollout.metadata.annotations.get(RESUME_ANNOTATION, "") or rollout.status.resumed


def _spec_changes(
    rollout: NodeRollout, node: PlannedNode, child: NodeReplacement
) -> Mapping[str, object]:
    wanted = _spec(rollout, node)
    if child.status.current is not Step.WAITING:
        return {} if child.spec.paused == wanted.paused else {"paused": wanted.paused}
    # Name and uid of the node never change; the uid may have been filled in.
    wanted = msgspec.structs.replace(
        wanted, node_name=child.spec.node_name, node_uid=child.spec.node_uid
    )
    if wanted == child.spec:
        return {}
    return merge_diff(msgspec.to_builtins(child.spec), msgspec.to_builtins(wanted))


def _spec(rollout: NodeRollout, node: PlannedNode) -> NodeReplacementSpec:
    return NodeReplacementSpec(
        node_name=node.name,
        node_uid=node.uid,
        replacement=Replacement(priority=node.priority),
        strategy=_resolved(rollout),
        drain=rollout.spec.drain,
        paused=rollout.spec.paused,
    )


def _resolved(rollout: NodeRollout) -> Strategy:
    """Return the strategy with numbers for percentages: a child knows no total."""
    return msgspec.structs.replace(
        rollout.spec.strategy,
        max_concurrent=max_concurrent(rollout),
        max_failures=max_failures(rollout),
    )


def _token(child: NodeReplacement) -> str:
    return child.metadata.annotations.get(RESUME_ANNOTATION, "")
