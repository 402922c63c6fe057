"""Creates a rollout's replacements and keeps them in line with its spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from navarchos.client import AlreadyExists, ApiError
from navarchos.client.rbac import PolicyRule, block_owner_deletion_rbac
from navarchos.errors import NavarchosError
from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import (
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeReplacement,
    NodeRollout,
    PlannedNode,
)
from navarchos.operator.crew import Crew
from navarchos.operator.objects import Objects
from navarchos.operator.rollouts.children import manifest, name_of_child, patch_for

__all__ = ["RBAC", "WRITES_PER_PASS", "Children", "Created", "CreationFailed"]

WRITES_PER_PASS: Final = 200
"""Children created or changed in one pass, so that one large rollout does not keep a
worker from the others."""

RBAC: Final = (
    PolicyRule(NODE_REPLACEMENTS, ("get", "create", "patch")),
    block_owner_deletion_rbac(NODE_ROLLOUTS),
)
"""What creating children, and keeping them in line, asks of the server."""


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
        return f"no replacement could be created for node {node}: {why}{more}"


@dataclass(frozen=True, slots=True)
class Created:
    """The children after a pass."""

    children: Mapping[str, NodeReplacement]
    """By node name."""
    failure: CreationFailed | None
    unfinished: bool
    """More is to be written: come again at once."""


class Children:
    """The replacements of rollouts.

    Promises: at most one replacement per node, whatever the cache shows: names are
    deterministic, and one that exists is taken when the rollout owns it (OP-02). A
    failure to create one keeps those that were created (N-10).

    Threads: safe from any thread, for different rollouts.
    """

    def __init__(self, objects: Objects, crew: Crew) -> None:
        self._objects = objects
        self._crew = crew

    def create_missing(
        self,
        rollout: NodeRollout,
        missing: Sequence[PlannedNode],
        children: Mapping[str, NodeReplacement],
    ) -> Created:
        """Create replacements, those that are given first before the others.

        Args:
            rollout: Their owner.
            missing: Nodes that have none.
            children: Those that exist, by node name.
        """
        present = dict(children)
        failures: dict[str, str] = {}
        nodes = missing[:WRITES_PER_PASS]
        made = self._crew.map(partial(self._try_to_create, rollout), nodes)
        for node, child in zip(nodes, made, strict=True):
            if isinstance(child, NodeReplacement):
                present[node.name] = child
            else:
                failures[node.name] = child
        failure = CreationFailed(rollout.metadata.name, failures) if failures else None
        return Created(present, failure, unfinished=len(missing) > WRITES_PER_PASS)

    def bring_in_line(
        self,
        rollout: NodeRollout,
        nodes: Sequence[PlannedNode],
        children: Mapping[str, NodeReplacement],
    ) -> Created:
        """Let the children follow the rollout: those in flight first, pauses are urgent.

        Raises:
            Conflict: A child changed since it was read; read again.
            NotFound: A child went away; read again.
        """
        present = dict(children)
        due = [
            (child, patch)
            for node in nodes
            if (child := children.get(node.name)) is not None
            and (patch := patch_for(rollout, node, child))
        ]
        due.sort(key=lambda pair: not pair[0].status.current.in_flight)
        patched = self._crew.map(
            lambda pair: self._objects.replacements.patch(*pair), due[:WRITES_PER_PASS]
        )
        present.update((child.spec.node_name, child) for child in patched)
        return Created(present, None, unfinished=len(due) > WRITES_PER_PASS)

    def _try_to_create(self, rollout: NodeRollout, node: PlannedNode) -> NodeReplacement | str:
        """Return the child, or in words why there is none."""
        try:
            return self._create(rollout, node)
        except (ApiError, _NameTaken) as error:
            return str(error)

    def _create(self, rollout: NodeRollout, node: PlannedNode) -> NodeReplacement:
        try:
            return self._objects.replacements.create(manifest(rollout, node))
        except AlreadyExists:
            name = name_of_child(rollout, node.name)
            found = self._objects.replacements.fetch(name)
        if found is None:
            raise _NameTaken(f"NodeReplacement {name} is being deleted")
        owner = controller_of(found.metadata)
        if owner is None or owner.uid != rollout.metadata.uid:
            raise _NameTaken(
                f"NodeReplacement {name} exists and belongs to another object; delete it"
            )
        self._objects.replacements.observe(found)
        return found


class _NameTaken(NavarchosError):
    """The child's name belongs to an object that is not ours."""
