"""Creates a rollout's replacements and keeps them in line with its spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from navarchos.client import AlreadyExists, ApiError
from navarchos.client.rights import Rule, right_to_block_deletion
from navarchos.errors import NavarchosError
from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import (
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeReplacement,
    NodeRollout,
    PlannedNode,
)
from navarchos.operator.objects import Objects
from navarchos.operator.rollouts.children import manifest, name_of_child, patch_for

__all__ = ["RIGHTS", "WRITES_PER_PASS", "Children", "Created", "CreationFailed"]

WRITES_PER_PASS: Final = 200
"""Children created or changed in one pass, so that one large rollout does not keep a
worker from the others."""

RIGHTS: Final = (
    Rule(NODE_REPLACEMENTS, ("get", "create", "patch")),
    right_to_block_deletion(NODE_ROLLOUTS),
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

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def create_missing(
        self,
        rollout: NodeRollout,
        missing: Sequence[PlannedNode],
        children: Mapping[str, NodeReplacement],
    ) -> Created:
        """Create replacements, in the order given.

        Args:
            rollout: Their owner.
            missing: Nodes that have none.
            children: Those that exist, by node name.
        """
        present = dict(children)
        failures: dict[str, str] = {}
        for node in missing[:WRITES_PER_PASS]:
            try:
                present[node.name] = self._create(rollout, node)
            except (ApiError, _NameTaken) as error:
                failures[node.name] = str(error)
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
        for child, patch in due[:WRITES_PER_PASS]:
            present[child.spec.node_name] = self._objects.replacements.patch(child, patch)
        return Created(present, None, unfinished=len(due) > WRITES_PER_PASS)

    def _create(self, rollout: NodeRollout, node: PlannedNode) -> NodeReplacement:
        try:
            return self._objects.replacements.create(manifest(rollout, node))
        except AlreadyExists:
            name = name_of_child(rollout, node.name)
            found = self._objects.replacements.live(name)
        if found is None:
            raise _NameTaken(f"NodeReplacement {name} is being deleted")
        owner = controller_of(found.metadata)
        if owner is None or owner.uid != rollout.metadata.uid:
            raise _NameTaken(
                f"NodeReplacement {name} exists and belongs to another object; delete it"
            )
        self._objects.replacements.informer.observe_write(found)
        return found


class _NameTaken(NavarchosError):
    """The child's name belongs to an object that is not ours."""
