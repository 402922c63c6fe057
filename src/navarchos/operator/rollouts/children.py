"""The replacements of a rollout: their manifests, and their creation and update."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from navarchos.client import AlreadyExists, ApiError
from navarchos.client.bodies import merge_diff
from navarchos.client.owners import owner_reference
from navarchos.client.rbac import PolicyRule, block_owner_deletion_rbac
from navarchos.errors import NavarchosError
from navarchos.meta import controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import OperatorClients
from navarchos.operator.history import max_concurrent, max_failures
from navarchos.operator.names import RESUME_ANNOTATION, child_name
from navarchos.parallel import WorkerPool
from navarchos.structs import without_nulls

__all__ = [
    "MAX_CHILD_WRITES",
    "RBAC",
    "ChildReconciler",
    "ChildSync",
    "CreationFailed",
    "child_manifest",
    "child_patch",
    "name_of_child",
    "resume_token",
]

MAX_CHILD_WRITES: Final = 200
"""Children created or changed in one reconcile, so that one large rollout does not occupy a
worker for long."""

_NEVER_RESUMED: Final = frozenset({api.Step.DONE, api.Step.CANCELLED})
"""Steps that `navarchos resume` does not change."""

RBAC: Final = (
    PolicyRule(api.NODE_REPLACEMENTS, ("get", "create", "patch")),
    block_owner_deletion_rbac(api.NODE_ROLLOUTS),
)
"""Permissions to create and update children."""


def name_of_child(rollout: api.NodeRollout, node: str) -> str:
    """Return the name of the replacement of a node: the same in every process."""
    return child_name(rollout.metadata.name, node)


def child_manifest(rollout: api.NodeRollout, node: api.PlannedNode) -> dict[str, object]:
    """Return the replacement of a node to create. Its only owner is the rollout (OP-02)."""
    token = resume_token(rollout)
    owner = owner_reference(rollout, api.NODE_ROLLOUTS, controller=True)
    metadata: dict[str, object] = {
        "name": name_of_child(rollout, node.name),
        "ownerReferences": [msgspec.to_builtins(owner)],
    }
    if token:
        metadata["annotations"] = {RESUME_ANNOTATION: token}
    return {"metadata": metadata, "spec": without_nulls(msgspec.to_builtins(_spec(rollout, node)))}


def child_patch(
    rollout: api.NodeRollout, node: api.PlannedNode, child: api.NodeReplacement
) -> dict[str, object]:
    """Return the merge patch that brings a child up to date; empty if it is.

    A child that has not started follows the whole spec of the rollout (OP-10), a child in
    flight only `paused`, and a finished child nothing. A failed child still receives the resume
    annotation, which resets its failures, and with it the whole spec: the user has perhaps
    corrected it, and the node may start again before the next update of the child.
    """
    patch: dict[str, object] = {}
    token = resume_token(rollout)
    step = child.status.current
    is_resumed = bool(token) and step not in _NEVER_RESUMED and _token(child) != token
    if is_resumed:
        patch["metadata"] = {"annotations": {RESUME_ANNOTATION: token}}
    follows = not step.is_finished or (step is api.Step.FAILED and is_resumed)
    spec = _spec_changes(rollout, node, child) if follows else {}
    if spec:
        patch["spec"] = spec
    return patch


def resume_token(rollout: api.NodeRollout) -> str:
    """Return the resume annotation in force. To remove the annotation changes nothing."""
    return rollout.metadata.annotations.get(RESUME_ANNOTATION, "") or rollout.status.resumed


def _spec_changes(
    rollout: api.NodeRollout, node: api.PlannedNode, child: api.NodeReplacement
) -> Mapping[str, object]:
    wanted = _spec(rollout, node)
    if child.status.current not in {api.Step.WAITING, api.Step.FAILED}:
        return {} if child.spec.paused == wanted.paused else {"paused": wanted.paused}
    # Name and uid of the node never change; the uid may have been filled in. A user may cancel
    # one node of a rollout.
    wanted = msgspec.structs.replace(
        wanted,
        node_name=child.spec.node_name,
        node_uid=child.spec.node_uid,
        cancel=child.spec.cancel,
    )
    if wanted == child.spec:
        return {}
    return merge_diff(msgspec.to_builtins(child.spec), msgspec.to_builtins(wanted))


def _spec(rollout: api.NodeRollout, node: api.PlannedNode) -> api.NodeReplacementSpec:
    return api.NodeReplacementSpec(
        node_name=node.name,
        node_uid=node.uid,
        replacement=api.Replacement(priority=node.priority),
        strategy=_resolved(rollout),
        drain=rollout.spec.drain,
        action=_action(rollout),
        paused=rollout.spec.paused,
    )


def _action(rollout: api.NodeRollout) -> api.ActionSpec | None:
    """Return the action as the API server stores it in a child: without nulls in its template."""
    action = rollout.spec.action
    if action is None or action.job is None:
        return action
    template: dict[str, object] = {**action.job.template}
    job = msgspec.structs.replace(action.job, template=without_nulls(template))
    return msgspec.structs.replace(action, job=job)


def _resolved(rollout: api.NodeRollout) -> api.Strategy:
    """Return what the strategy says about each node.

    It has numbers for percentages, because a child does not know the total, and no waves.
    """
    strategy = rollout.spec.strategy
    of_nodes = {
        field: getattr(strategy, field)
        for field in api.Strategy.__struct_fields__
        if field not in {"max_concurrent", "max_failures"}
    }
    return api.Strategy(
        max_concurrent=max_concurrent(rollout), max_failures=max_failures(rollout), **of_nodes
    )


def _token(child: api.NodeReplacement) -> str:
    return child.metadata.annotations.get(RESUME_ANNOTATION, "")


class CreationFailed(NavarchosError):
    """Some replacements could not be created; the others were.

    Attributes:
        rollout: The rollout's name.
        failures: Node names, each with the reason.
    """

    def __init__(self, rollout: str, failures: Mapping[str, str]) -> None:
        super().__init__(rollout, failures)
        self.rollout = rollout
        self.failures = failures

    def __str__(self) -> str:
        node, why = next(iter(self.failures.items()))
        more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
        return f"the replacement of node {node} could not be created: {why}{more}"


@dataclass(frozen=True, slots=True)
class ChildSync:
    """The children after writes."""

    children: Mapping[str, api.NodeReplacement]
    """By node name."""
    failure: CreationFailed | None
    unfinished: bool
    """Whether more children must be written in the next reconcile."""


class ChildReconciler:
    """Creates and updates the replacements of rollouts.

    Promises: at most one replacement per node, even if the cache is behind: names are
    deterministic, and an existing replacement is used if the rollout owns it (OP-02). If the
    creation of one fails, the others are still created (N-10).

    Threads: safe from any thread, for different rollouts.
    """

    def __init__(self, clients: OperatorClients, worker_pool: WorkerPool) -> None:
        self._clients = clients
        self._worker_pool = worker_pool

    def create_missing(
        self,
        rollout: api.NodeRollout,
        missing: Sequence[api.PlannedNode],
        children: Mapping[str, api.NodeReplacement],
    ) -> ChildSync:
        """Create replacements, in the order of the nodes.

        Args:
            rollout: Their owner.
            missing: Nodes without a replacement.
            children: The existing replacements, by node name.
        """
        present = dict(children)
        failures: dict[str, str] = {}
        nodes = missing[:MAX_CHILD_WRITES]
        created = self._worker_pool.map(partial(self._try_to_create, rollout), nodes)
        for node, child in zip(nodes, created, strict=True):
            if isinstance(child, api.NodeReplacement):
                present[node.name] = child
            else:
                failures[node.name] = child
        failure = CreationFailed(rollout.metadata.name, failures) if failures else None
        return ChildSync(present, failure, unfinished=len(missing) > MAX_CHILD_WRITES)

    def sync_specs(
        self,
        rollout: api.NodeRollout,
        nodes: Sequence[api.PlannedNode],
        children: Mapping[str, api.NodeReplacement],
    ) -> ChildSync:
        """Update the children from the rollout, children in flight first: pauses are urgent.

        Raises:
            Conflict: A child has changed since it was read; read it again.
            NotFound: A child was deleted; read it again.
        """
        present = dict(children)
        due = [
            (child, patch)
            for node in nodes
            if (child := children.get(node.name)) is not None
            and (patch := child_patch(rollout, node, child))
        ]
        due.sort(key=lambda pair: not pair[0].status.current.in_flight)
        patched = self._worker_pool.map(
            lambda pair: self._clients.replacements.patch(*pair), due[:MAX_CHILD_WRITES]
        )
        present.update((child.spec.node_name, child) for child in patched)
        return ChildSync(present, None, unfinished=len(due) > MAX_CHILD_WRITES)

    def _try_to_create(
        self, rollout: api.NodeRollout, node: api.PlannedNode
    ) -> api.NodeReplacement | str:
        """Return the child, or in words why it could not be created."""
        try:
            return self._create(rollout, node)
        except (ApiError, _NameTaken) as error:
            return str(error)

    def _create(self, rollout: api.NodeRollout, node: api.PlannedNode) -> api.NodeReplacement:
        try:
            return self._clients.replacements.create(child_manifest(rollout, node))
        except AlreadyExists:
            name = name_of_child(rollout, node.name)
            found = self._clients.replacements.fetch(name)
        if found is None:
            raise _NameTaken(f"NodeReplacement {name} is being deleted")
        owner = controller_of(found.metadata)
        if owner is None or owner.uid != rollout.metadata.uid:
            raise _NameTaken(
                f"NodeReplacement {name} exists and belongs to another object; delete it"
            )
        self._clients.replacements.observe(found)
        return found


class _NameTaken(NavarchosError):
    """The child's name belongs to an object that the rollout does not own."""
