"""What actions do before a node starts: they prepare it, or no controller carries them out."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from navarchos.client.errors import ClientError
from navarchos.logs import get_logger
from navarchos.operator import actions
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission_order import (
    cancelled_replacements,
    is_excluded,
    sort_key,
    suspended_rollouts,
)
from navarchos.operator.replacements.limits import limit_of
from navarchos.operator.replacements.snapshot import ClusterSnapshot, Hold

__all__ = ["NodePreparation", "Preparation", "PreparationTurn", "to_prepare"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Preparation:
    """What actions say about waiting nodes, by name of the replacement."""

    holds: Mapping[str, Hold] = field(default_factory=dict)
    """Nodes that may not start because of their action."""
    failed: Mapping[str, actions.ActionFailed] = field(default_factory=dict)
    """Nodes whose preparation has failed, and with it their attempt."""


@dataclass(frozen=True, slots=True)
class PreparationTurn:
    """The waiting replacements whose action prepares their node (UP-55)."""

    now: tuple[api.NodeReplacement, ...] = ()
    """In their order; of each rollout at most `maxConcurrent`."""
    later: tuple[str, ...] = ()
    """Names of the others."""


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

    def _unavailable(self, replacement: api.NodeReplacement) -> Hold | None:
        action = replacement.spec.action
        kind = action.kind if action is not None else None
        if kind is None or kind in self._actions.available:
            return None
        if replacement.status.current is not api.Step.WAITING:
            return None
        return Hold(WaitReason.ACTION_UNAVAILABLE, actions.unavailable_message(kind))

    def _prepare(
        self,
        snapshot: ClusterSnapshot,
        replacement: api.NodeReplacement,
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
        self, snapshot: ClusterSnapshot, replacement: api.NodeReplacement
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
                kind=api.NODE_REPLACEMENTS.kind,
                name=replacement.metadata.name,
                error=str(error),
            )
            self._actions.notify(replacement.metadata.name)
            return actions.ActionRunning(f"the preparation is repeated after an error: {error}")


def to_prepare(snapshot: ClusterSnapshot, kinds: Collection[api.ActionKind]) -> PreparationTurn:
    """Decide which nodes may be prepared now, whatever their priority.

    Nodes that are being prepared stay in their turn, so that no more than `maxConcurrent` nodes
    of a rollout have been prepared and not started.
    """
    suspended = suspended_rollouts(snapshot)
    cancelled = cancelled_replacements(snapshot)
    waiting = [
        replacement
        for replacement in snapshot.replacements
        if replacement.status.current is api.Step.WAITING
        and replacement.spec.action is not None
        and replacement.spec.action.kind in kinds
        and replacement.spec.node_uid
        and not replacement.spec.paused
        and snapshot.owner_uid(replacement) not in suspended
        and replacement.metadata.name not in cancelled
        and not is_excluded(replacement, snapshot.owner_uid(replacement), snapshot)
    ]
    waiting.sort(key=lambda each: (not _is_preparing(each), sort_key(each, snapshot)))
    now: list[api.NodeReplacement] = []
    later: list[str] = []
    taken: Counter[str] = Counter()
    for replacement in waiting:
        uid = snapshot.owner_uid(replacement)
        if taken[uid] < (limit_of(replacement) or 0):
            taken[uid] += 1
            now.append(replacement)
        else:
            later.append(replacement.metadata.name)
    return PreparationTurn(tuple(now), tuple(later))


def _is_preparing(replacement: api.NodeReplacement) -> bool:
    step = replacement.status.step
    return step is not None and step.reason == WaitReason.PREPARING
