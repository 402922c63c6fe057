"""Carries out what the steps decide. The only writer of a started node's status."""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from navarchos.client import AlreadyExists
from navarchos.client.rbac import PolicyRule, block_owner_deletion_rbac
from navarchos.clock import Clock
from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeFailurePolicy,
    NodeReplacement,
    NodeReplacementStatus,
    Step,
    status_diff,
)
from navarchos.operator.cache_transforms import is_stripped
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.objects import Objects
from navarchos.operator.replacements.attempt_drain import (
    belongs_to,
    drain_manifest,
    drain_name,
    earlier_drain_names,
)
from navarchos.operator.replacements.events import ReplacementEvents
from navarchos.operator.replacements.status import (
    advanced_status,
    drained_status,
    failed_attempt_status,
    node_gone_status,
    only_pod_counts_changed,
    released_status,
    reset_requested,
    reset_status,
    with_drain_report,
)
from navarchos.operator.replacements.steps import cordoned, draining, releasing, reserved, waiting
from navarchos.operator.replacements.steps.actions import (
    Action,
    Advance,
    Complete,
    CompleteWithoutNode,
    CreateDrain,
    Decision,
    DeleteDrain,
    FailAttempt,
    KeepCordon,
    NoAction,
    ReleaseSlot,
)
from navarchos.operator.throttle import DeferredWrites

__all__ = ["RBAC", "Pipeline"]

_LABEL_TIME: Final = "%Y-%m-%dT%Hh%Mm%Ss"

_POD_COUNTS_DELAY: Final = 10.0
"""Seconds by which a replacement may be behind what its drain reports of pods. Most nodes are
drained by then, and need no write for it."""

RBAC: Final = (
    PolicyRule(NODE_REPLACEMENTS, ("patch",)),  # nodeUID of those that a person made without
    PolicyRule(NODE_REPLACEMENTS, ("patch",), subresource="status"),
    PolicyRule(NODE_DRAINS, ("get", "create", "patch", "delete")),
    block_owner_deletion_rbac(NODE_REPLACEMENTS),
    PolicyRule(NODES, ("get", "patch")),  # the label of a drained node
)
"""What the steps ask of the server."""


class Pipeline:
    """Moves one replacement along, one step at a time.

    Promises: whatever it does is done before the status says so, and doing it
    again changes nothing; so a crash between any two requests is resumed (OP-26).
    A step that touches the node checks its uid first.

    Threads: safe from any thread, for different replacements.
    """

    def __init__(self, objects: Objects, events: ReplacementEvents, clock: Clock) -> None:
        self._objects = objects
        self._events = events
        self._clock = clock
        self._deferred = DeferredWrites(_POD_COUNTS_DELAY, clock)

    def deferred_write_in(self, name: str) -> float | None:
        """Return the seconds after which a replacement has to be advanced again.

        Something is to be written then that may wait; `None` if nothing is.
        """
        return self._deferred.remaining(name)

    def forget(self, name: str) -> None:
        """Forget a replacement that is gone."""
        self._deferred.clear(name)

    def advance(self, replacement: NodeReplacement) -> NodeReplacement:
        """Do what the present step has to do now.

        Returns:
            The replacement as it is stored now; with another step when it moved.

        Raises:
            Conflict: Somebody changed an object since it was read; read again.
            NotFound: An object went away in the meantime; read again.
        """
        if reset_requested(replacement):
            return self._save(replacement, reset_status(replacement, self._clock.now()))
        if replacement.status.current.in_flight:
            return self._work(replacement)
        # It may be another process that has brought it here: what this one had still to
        # write is out of date, and would be due again and again.
        self.forget(replacement.metadata.name)
        if replacement.status.current is not Step.DONE:
            self._undo_kept_cordons(replacement)
        if replacement.status.current is Step.WAITING:
            return self._wait(replacement)
        return replacement

    def _wait(self, replacement: NodeReplacement) -> NodeReplacement:
        name = replacement.spec.node_name
        if not waiting.may_be_gone(replacement, self._objects.nodes.find(name)):
            return replacement
        node = self._objects.nodes.fetch(name)
        if isinstance(waiting.decide(replacement, node), CompleteWithoutNode):
            return self._save(replacement, node_gone_status(replacement, self._clock.now()))
        if node is None or replacement.spec.node_uid:
            return replacement
        return self._objects.replacements.patch(
            replacement, {"spec": {"nodeUID": node.metadata.uid}}
        )

    def _work(self, replacement: NodeReplacement) -> NodeReplacement:
        drain = self._own_drain(replacement)
        seen = replacement
        if drain is not None:
            self._propagate_pause(replacement, drain)
            status = with_drain_report(replacement, drain, self._clock.now())
            seen = msgspec.structs.replace(replacement, status=status)
        while isinstance(move := self._decide(seen, drain), Advance):
            status = advanced_status(seen, move.to, self._clock.now(), deadline=_deadline(drain))
            seen = msgspec.structs.replace(seen, status=status)
        if seen.status.current is not replacement.status.current:
            # Steps that only have to be told of are one write; what the last of them has to
            # do is done once it is stored.
            return self._save(replacement, seen.status)
        return self._save(replacement, self._carry_out(seen, drain, move))

    def _decide(self, replacement: NodeReplacement, drain: NodeDrain | None) -> Decision:
        match replacement.status.current:
            case Step.RESERVED if drain is not None:
                return reserved.follow(drain)
            case Step.RESERVED:
                return self._begin(replacement)
            case Step.CORDONED:
                return cordoned.decide(drain)
            case Step.DRAINING:
                return draining.decide(drain)
            case Step.RELEASING:
                return releasing.decide(replacement, drain)
            case _:
                return NoAction()

    def _begin(self, replacement: NodeReplacement) -> Decision:
        if self._is_abandoned(replacement):
            return NoAction()
        # The drain asks the server before it touches the node.
        return reserved.decide(replacement, self._node(replacement))

    def _node(self, replacement: NodeReplacement) -> Node | None:
        """Return the replacement's node as last seen; a cache without it may be late."""
        node = self._objects.nodes.find(replacement.spec.node_name)
        if node is not None and node.metadata.uid == replacement.spec.node_uid:
            return node
        return self._objects.nodes.fetch(replacement.spec.node_name)

    def _is_abandoned(self, replacement: NodeReplacement) -> bool:
        """Tell whether its rollout is gone, so that it is about to go as well (OP-07)."""
        owner = controller_of(replacement.metadata)
        if owner is None or owner.kind != NODE_ROLLOUTS.kind:
            return False
        rollout = self._objects.rollouts.find(owner.name)
        if rollout is None or rollout.metadata.uid != owner.uid:
            return True
        return rollout.metadata.deletion_timestamp is not None

    def _carry_out(
        self, replacement: NodeReplacement, drain: NodeDrain | None, action: Action
    ) -> NodeReplacementStatus:
        """Do what was decided, and return the status that is true afterwards."""
        now = self._clock.now()
        status = replacement.status
        match action:
            case NoAction():
                pass
            case CreateDrain():
                status = self._create_drain(replacement, now)
            case Complete():
                status = self._finish(replacement, drain, now)
            case CompleteWithoutNode():
                status = node_gone_status(replacement, now)
            case FailAttempt(reason, message):
                status = failed_attempt_status(replacement, reason, message, now)
            case DeleteDrain():
                self._delete(drain)
            case KeepCordon():
                self._keep_cordon(drain)
                status = released_status(replacement, now)
            case ReleaseSlot():
                status = released_status(replacement, now)
        return status

    def _own_drain(self, replacement: NodeReplacement) -> NodeDrain | None:
        name = drain_name(replacement)
        drain = self._objects.drains.find(name)
        if drain is None and replacement.status.current is not Step.RESERVED:
            # That it is gone decides something: do not take the cache's word.
            drain = self._objects.drains.fetch(name)
        elif drain is not None and is_stripped(drain):
            # Its report is about to be taken over once more, and the cache is without it.
            drain = self._objects.drains.fetch(name)
        return drain if drain is not None and belongs_to(drain, replacement) else None

    def _create_drain(self, replacement: NodeReplacement, now: datetime) -> NodeReplacementStatus:
        name = drain_name(replacement)
        try:
            self._objects.drains.create(drain_manifest(replacement))
        except AlreadyExists:
            found = self._objects.drains.fetch(name)
            if found is None:
                raise  # deleted in between: try again
            if not belongs_to(found, replacement):
                return failed_attempt_status(
                    replacement, "NameTaken", f"NodeDrain {name} belongs to another object", now
                )
            self._objects.drains.observe(found)
        return replacement.status

    def _propagate_pause(self, replacement: NodeReplacement, drain: NodeDrain) -> None:
        if drain.spec.paused != replacement.spec.paused and not drain.status.is_final:
            self._objects.drains.patch_any_version(
                drain, {"spec": {"paused": replacement.spec.paused}}
            )

    def _finish(
        self, replacement: NodeReplacement, drain: NodeDrain | None, now: datetime
    ) -> NodeReplacementStatus:
        # First of all: from the moment the status says Completed, somebody may
        # delete the rollout, and an empty node must not take pods again.
        self._keep_cordon(drain)
        at = drain.status.completion_timestamp if drain is not None else None
        self._label(replacement, at or now)
        return drained_status(replacement, now)

    def _label(self, replacement: NodeReplacement, at: datetime) -> None:
        """Label the node as drained (OP-24), if it is still that node.

        The time is the drain's, so that doing it twice writes the same.
        """
        node = self._node(replacement)
        if node is None or node.metadata.uid != replacement.spec.node_uid:
            return
        value = at.astimezone(UTC).strftime(_LABEL_TIME)
        if node.metadata.labels.get(DRAIN_COMPLETED_LABEL) == value:
            return
        body = {"metadata": {"labels": {DRAIN_COMPLETED_LABEL: value}}}
        self._objects.nodes.patch_any_version(node, body)

    def _keep_cordon(self, drain: NodeDrain | None) -> None:
        # Only while nobody has deleted it: whoever is undoing its cordon does so by what
        # the drain said then.
        if drain is not None and drain.spec.uncordon_on_delete:
            self._objects.drains.patch(drain, {"spec": {"uncordonOnDelete": False}})

    def _undo_kept_cordons(self, replacement: NodeReplacement) -> None:
        """Obey who has said `Uncordon` after an attempt that failed under `Keep` (OP-25)."""
        if replacement.spec.strategy.on_node_failure is not NodeFailurePolicy.UNCORDON:
            return
        for name in earlier_drain_names(replacement):
            drain = self._objects.drains.find(name)
            if drain is None or drain.metadata.deletion_timestamp is not None:
                continue
            if not belongs_to(drain, replacement):
                continue
            if not drain.spec.uncordon_on_delete:
                body = {"spec": {"uncordonOnDelete": True}}
                drain = self._objects.drains.patch_any_version(drain, body)
            self._objects.drains.delete(drain)

    def _delete(self, drain: NodeDrain | None) -> None:
        if drain is not None:
            self._objects.drains.delete(drain)

    def _save(self, replacement: NodeReplacement, status: NodeReplacementStatus) -> NodeReplacement:
        name = replacement.metadata.name
        if only_pod_counts_changed(replacement.status, status) and self._deferred.due_in(name):
            return replacement
        saved = self._objects.replacements.patch_status(
            replacement, status_diff(replacement.status, status)
        )
        self._deferred.clear(name)
        self._events.moved(replacement, saved)
        return saved


def _deadline(drain: NodeDrain | None) -> datetime | None:
    """Return when the drain gives up, once it has begun."""
    if drain is None or drain.status.start_timestamp is None or not drain.spec.timeout_seconds:
        return None
    return drain.status.start_timestamp + timedelta(seconds=drain.spec.timeout_seconds)
