"""What actions do before a node starts: they prepare it, or no controller carries them out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from navarchos.client.errors import ClientError
from navarchos.logs import get_logger
from navarchos.operator import actions
from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NodeReplacement, Step
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import to_prepare
from navarchos.operator.replacements.snapshot import ClusterSnapshot, Hold

__all__ = ["NodePreparation", "Preparation"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Preparation:
    """What actions say about waiting nodes, by name of the replacement."""

    holds: Mapping[str, Hold] = field(default_factory=dict)
    """Nodes that may not start because of their action."""
    failed: Mapping[str, actions.ActionFailed] = field(default_factory=dict)
    """Nodes whose preparation has failed, and with it their attempt."""


class NodePreparation:
    """Asks the actions about the nodes that wait.

    Without an action in any replacement it costs one comparison for each replacement.

    Threads: one thread only, the thread of admission.
    """

    def __init__(self, registry: actions.Actions) -> None:
        self._actions = registry

    def run(self, snapshot: ClusterSnapshot) -> Preparation:
        """Prepare the nodes that are next, and return what the actions say."""
        self._actions.observe(snapshot.replacements)
        with_action = [r for r in snapshot.replacements if r.spec.action is not None]
        if not with_action:
            return Preparation()
        holds = {
            replacement.metadata.name: hold
            for replacement in with_action
            if (hold := self._unavailable(replacement)) is not None
        }
        failed: dict[str, actions.ActionFailed] = {}
        if self._actions.preparing:
            turn = to_prepare(snapshot, self._actions.preparing)
            holds |= dict.fromkeys(turn.later, Hold(WaitReason.QUEUED))
            for replacement in turn.now:
                self._prepare(snapshot, replacement, holds, failed)
        return Preparation(holds, failed)

    def _unavailable(self, replacement: NodeReplacement) -> Hold | None:
        action = replacement.spec.action
        kind = action.kind if action is not None else None
        if kind is None or kind in self._actions.available:
            return None
        if replacement.status.current is not Step.WAITING:
            return None
        return Hold(WaitReason.ACTION_UNAVAILABLE, actions.unavailable_message(kind))

    def _prepare(
        self,
        snapshot: ClusterSnapshot,
        replacement: NodeReplacement,
        holds: dict[str, Hold],
        failed: dict[str, actions.ActionFailed],
    ) -> None:
        name = replacement.metadata.name
        outcome = self._before(snapshot, replacement)
        match outcome:
            case actions.ActionDone():
                pass
            case actions.ActionRunning():
                holds[name] = Hold(WaitReason.PREPARING, outcome.message)
            case actions.ActionFailed():
                holds[name] = Hold(WaitReason.QUEUED)
                failed[name] = outcome
            case _:
                assert_never(outcome)

    def _before(
        self, snapshot: ClusterSnapshot, replacement: NodeReplacement
    ) -> actions.ActionOutcome:
        """Prepare one node. An error delays this node only: the next run asks again."""
        node = snapshot.nodes.get(replacement.spec.node_name)
        if node is None:
            return actions.ActionRunning("waiting for the node")
        try:
            return self._actions.before(replacement, node)
        except ClientError as error:
            _log.warning(
                "preparation_failed",
                kind=NODE_REPLACEMENTS.kind,
                name=replacement.metadata.name,
                error=str(error),
            )
            self._actions.notify(replacement.metadata.name)
            return actions.ActionRunning(f"the preparation is repeated after an error: {error}")
