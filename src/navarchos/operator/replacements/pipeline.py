"""The pipeline of one node: observes, decides, acts and persists, one step at a time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar, assert_never

import msgspec

from navarchos.client import AlreadyExists, Propagation
from navarchos.client.rbac import PolicyRule, block_owner_deletion_rbac
from navarchos.clock import Clock
from navarchos.operator.actions import ActionDone, ActionRunning, Actions
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import OperatorClients
from navarchos.operator.drains.cordon import kept_cordon_patch
from navarchos.operator.names import ACTION_FINALIZER, DRAIN_COMPLETED_LABEL
from navarchos.operator.nodes import NODES
from navarchos.operator.owners import Owners
from navarchos.operator.reasons import Reason
from navarchos.operator.replacements import attempt_drain
from navarchos.operator.replacements import status as statuses
from navarchos.operator.replacements.events import ReplacementEvents
from navarchos.operator.replacements.step_reader import StepReader
from navarchos.operator.replacements.steps import BEFORE_EMPTY, acting, decide
from navarchos.operator.replacements.steps import decision as decisions
from navarchos.operator.replacements.verification import Verifier
from navarchos.operator.replacements.waits import window_closes_at
from navarchos.operator.throttle import REQUEUE_SOON, DeferredWrites

__all__ = ["RBAC", "Pipeline"]

_LABEL_TIME: Final = "%Y-%m-%dT%Hh%Mm%Ss"

_POD_COUNTS_DELAY: Final = 10.0
"""Seconds for which changed pod lists are not written. Most nodes are drained within this time
and need no write for them."""

D = TypeVar("D", bound=decisions.Decision)

_ACTION_STEPS: Final = frozenset(
    {api.Step.ACTING, api.Step.TERMINATING, api.Step.AWAITING_REPLACEMENT, api.Step.RELEASING}
)
"""The steps in which an action may affect the node."""

RBAC: Final = (
    PolicyRule(api.NODE_REPLACEMENTS, ("patch",)),  # nodeUID, if a user created it without
    PolicyRule(api.NODE_REPLACEMENTS, ("patch",), subresource="status"),
    PolicyRule(api.NODE_DRAINS, ("get", "create", "patch", "delete")),
    block_owner_deletion_rbac(api.NODE_REPLACEMENTS),
    PolicyRule(NODES, ("get", "patch")),  # the label of a drained node
)
"""Permissions of the steps."""


class Pipeline:
    """Moves a replacement through its steps.

    Writes the whole status of a started node, except `stalledSince`, which `AdmissionLoop`
    writes.

    Promises: an action is carried out before the status records its result, and repeating it
    changes nothing; so the work continues after a crash between any two requests (OP-26).
    A step checks the uid of a node before it changes the node.

    Threads: safe from any thread, for different replacements.
    """

    def __init__(
        self,
        clients: OperatorClients,
        events: ReplacementEvents,
        clock: Clock,
        actions: Actions | None = None,
        owners: Owners | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self._clients = clients
        self._owners = owners or Owners()
        self._verifier = verifier or Verifier()
        self._reader = StepReader(clients, self._owners, self._verifier, clock)
        self._rechecks: dict[str, datetime] = {}  # by name; when time alone changes a decision
        self._events = events
        self._clock = clock
        self._actions = actions or Actions()
        self._deferred = DeferredWrites(_POD_COUNTS_DELAY, clock)

    def due_in(self, name: str) -> float | None:
        """Return the seconds until the replacement must be advanced by time alone.

        That is for a deferred write, or for a decision that waits for a time; `None` if only a
        change of an object makes it due.
        """
        deferred, recheck = self._deferred.remaining(name), self._rechecks.get(name)
        if recheck is None:
            return deferred
        left = max(REQUEUE_SOON, (recheck - self._clock.now()).total_seconds())
        return left if deferred is None else min(left, deferred)

    def forget(self, name: str) -> None:
        """Forget the deferred write of a deleted replacement."""
        self._deferred.clear(name)
        self._rechecks.pop(name, None)
        self._verifier.forget(name)

    def advance(self, replacement: api.NodeReplacement) -> api.NodeReplacement:
        """Do what the current step has to do now.

        Returns:
            The stored replacement, in another step if it advanced.

        Raises:
            Conflict: Another client changed an object since it was read; read it again.
            NotFound: An object was deleted since it was read; read it again.
        """
        self._rechecks.pop(replacement.metadata.name, None)
        updated = self._follow_inputs(replacement)
        if updated is not None:
            return updated
        step = replacement.status.current
        if not step.in_flight:
            # Perhaps another process finished this node. A write that this process has deferred
            # is then out of date, and would be due again and again.
            self.forget(replacement.metadata.name)
            if step is api.Step.CANCELLED:
                self._end_preparation(replacement)
            if step is not api.Step.DONE:
                self._undo_kept_cordons(replacement)
        observed = self._with_window(self._reader.observe(replacement))
        seen, decision = self._decide(observed)
        if observed.drain is not None:
            self._propagate_pause(replacement, observed.drain)
        if isinstance(decision, decisions.RecordNodeUid):
            return self._clients.replacements.patch(
                replacement, {"spec": {"nodeUID": decision.uid}}
            )
        if seen.replacement.status.current is not step:
            # Steps without an action are stored together with the step that follows them. The
            # action of that step is carried out once the step is stored.
            return self._save(replacement, seen.replacement.status)
        # mutant: action-without-its-finalizer
        if isinstance(decision, decisions.ContinueAction) and not _is_held(replacement):
            # Before the action changes anything: the replacement stays until it is ended (NP-12).
            return self._hold(replacement, held=True)
        # mutant: failed-action-not-ended
        if step is api.Step.RELEASING and _is_held(replacement):
            return self._end_action(replacement)
        return self._save(replacement, self._end_action_and_act(seen, decision))

    def give_back(self, replacement: api.NodeReplacement) -> api.NodeReplacement:
        """End the action of a replacement that is being deleted, then let it be deleted (NP-12).

        An action that cannot be cancelled ends by itself first. The node stays cordoned until
        then: the cordon is undone when the NodeDrain is deleted and the replacement not held.
        """
        if not _is_held(replacement):
            return replacement
        ended = self._end_action(replacement)
        if not _is_held(ended):
            self._events.given_back(replacement)
        return ended

    def _end_action(self, replacement: api.NodeReplacement) -> api.NodeReplacement:
        """End the action of a held replacement; release the replacement when it has ended."""
        outcome = self._actions.cancel(replacement)
        if isinstance(outcome, ActionRunning):  # mutant: deleted-action-not-ended
            now = self._clock.now()
            status = statuses.action_ending_status(replacement, outcome.message, now)
            return self._save(replacement, status)
        return self._hold(replacement, held=False)

    def _hold(self, replacement: api.NodeReplacement, *, held: bool) -> api.NodeReplacement:
        """Add or remove the finalizer that keeps a replacement until its action has ended."""
        others = [name for name in replacement.metadata.finalizers if name != ACTION_FINALIZER]
        wanted = [*others, ACTION_FINALIZER] if held else others
        return self._clients.replacements.patch(
            replacement, {"metadata": {"finalizers": wanted or None}}
        )

    def _end_preparation(self, replacement: api.NodeReplacement) -> None:
        """End what an action has begun for a node that was cancelled before it started."""
        action = replacement.spec.action
        if action is not None and action.kind in self._actions.preparing:
            self._actions.cancel(replacement)

    def _follow_inputs(self, replacement: api.NodeReplacement) -> api.NodeReplacement | None:
        """Write what follows from users and owners, before any step decides.

        Returns:
            The stored replacement; `None` if nothing had to be written.
        """
        if statuses.reset_requested(replacement):
            return self._save(replacement, statuses.reset_status(replacement, self._clock.now()))
        if _is_held(replacement) and replacement.status.current not in _ACTION_STEPS:
            return self._hold(replacement, held=False)
        if self._owners.is_registered(replacement) and not replacement.status.current.is_finished:
            paused = self._paused_by_owner(replacement)
            if paused != replacement.spec.paused:
                return self._clients.replacements.patch(replacement, {"spec": {"paused": paused}})
        return None

    def _with_window(self, observed: decisions.StepObservation) -> decisions.StepObservation:
        """Add whether a node that is not empty must be given back, and be called when it must."""
        replacement, now = observed.replacement, self._clock.now()
        if replacement.status.current not in BEFORE_EMPTY:
            return observed
        closing = window_closes_at(replacement.spec.strategy, now)
        if closing is None:
            return observed
        if closing <= now:  # mutant: window-end-ignored
            return replace(observed, is_window_closed=True)
        self._rechecks[replacement.metadata.name] = closing
        return observed

    def _decide(
        self, observed: decisions.StepObservation
    ) -> tuple[decisions.StepObservation, decisions.RecordNodeUid | decisions.Action]:
        """Return the first decision that is not `Advance`, and the replacement in that step."""
        decision = self._decide_step(observed)
        while isinstance(decision, decisions.Advance):
            replacement = observed.replacement
            deadline = _deadline(observed.drain, decision.to)
            status = statuses.advanced_status(
                replacement, decision.to, self._clock.now(), deadline=deadline
            )
            observed = decisions.StepObservation(
                msgspec.structs.replace(replacement, status=status), observed.drain
            )
            decision = self._decide_step(observed)
        return observed, decision

    def _decide_step(self, observed: decisions.StepObservation) -> decisions.Decision:
        return self._through_gates(observed.replacement, decide(observed))

    def _through_gates(
        self, replacement: api.NodeReplacement, decision: D
    ) -> D | decisions.Advance:
        behind = decisions.through_gates(replacement.status.current, decision)
        if behind == decision:
            return decision
        return behind if self._verifier.is_gated(replacement) else decision

    def _paused_by_owner(self, replacement: api.NodeReplacement) -> bool:
        """Return whether the owner pauses it; as it is now, if the owner has been deleted."""
        view = self._owners.view_of(replacement)
        return replacement.spec.paused if view is None else view.spec.paused

    def _end_action_and_act(
        self, observed: decisions.StepObservation, action: decisions.Action
    ) -> api.NodeReplacementStatus:
        """Carry out an action of the pipeline; first end an action that would still run."""
        replacement = observed.replacement
        if _needs_end_of_action(replacement.status.current, action):
            outcome = self._actions.cancel(replacement)
            if isinstance(outcome, ActionRunning):
                now = self._clock.now()
                return statuses.action_ending_status(replacement, outcome.message, now)
        return self._act(observed, action)

    def _act(
        self, observed: decisions.StepObservation, action: decisions.Action
    ) -> api.NodeReplacementStatus:
        """Carry out an action, and return the status that is true afterwards."""
        now, replacement, drain = self._clock.now(), observed.replacement, observed.drain
        status = replacement.status
        match action:
            case decisions.NoAction():
                pass
            case (
                decisions.ContinueAction()
                | decisions.ReportAction()
                | decisions.RecordBootId()
                | decisions.AwaitVerification()
            ):
                status = self._follow_action(observed, action, now)
            case decisions.CreateDrain():
                status = self._create_drain(replacement, now)
            case decisions.FailAttempt(reason, message):
                status = statuses.failed_attempt_status(replacement, reason, message, now)
            case decisions.GiveBack():
                status = statuses.given_back_status(replacement, now)
            case decisions.Complete():
                status = self._complete(replacement, drain, now)
            case decisions.CompleteReturned():
                status = statuses.completed_status(replacement, Reason.RETURNED, now)
            case decisions.CompleteWithoutNode():
                status = statuses.node_gone_status(replacement, now)
            case decisions.DeleteDrain() | decisions.KeepCordon() | decisions.ReleaseSlot():
                status = self._release(observed, action, now)
            case _:
                assert_never(action)
        return status

    def _release(
        self,
        observed: decisions.StepObservation,
        action: decisions.DeleteDrain | decisions.KeepCordon | decisions.ReleaseSlot,
        now: datetime,
    ) -> api.NodeReplacementStatus:
        replacement, drain = observed.replacement, observed.drain
        if isinstance(action, decisions.DeleteDrain):
            if drain is not None:
                self._clients.drains.delete(drain, propagation=Propagation.BACKGROUND)
            return replacement.status
        if isinstance(action, decisions.KeepCordon):
            self._keep_cordon(replacement, drain)
        return statuses.released_status(replacement, now)

    def _follow_action(
        self,
        observed: decisions.StepObservation,
        action: decisions.ContinueAction
        | decisions.ReportAction
        | decisions.RecordBootId
        | decisions.AwaitVerification,
        now: datetime,
    ) -> api.NodeReplacementStatus:
        replacement = observed.replacement
        match action:
            case decisions.ContinueAction():
                return self._continue_action(observed, now)
            case decisions.ReportAction(outcome):
                return statuses.action_running_status(replacement, outcome, now)
            case decisions.RecordBootId(boot_id):
                return msgspec.structs.replace(replacement.status, boot_id=boot_id)
            case decisions.AwaitVerification(found):
                if found.recheck_at is not None:
                    self._rechecks[replacement.metadata.name] = found.recheck_at
                return statuses.unverified_status(replacement, found.missing, now)
            case _:
                assert_never(action)

    def _continue_action(
        self, observed: decisions.StepObservation, now: datetime
    ) -> api.NodeReplacementStatus:
        outcome = self._actions.act(observed.replacement, observed.node)
        if isinstance(outcome, ActionDone):
            status = statuses.action_completed_status(observed.replacement, now, outcome.heir)
            done = msgspec.structs.replace(observed.replacement, status=status)
            observed = decisions.StepObservation(done, observed.drain, observed.node)
        following = self._through_gates(observed.replacement, acting.follow(observed, outcome))
        if isinstance(following, decisions.Advance):
            return statuses.advanced_status(observed.replacement, following.to, now)
        return self._act(observed, following)

    def _create_drain(
        self, replacement: api.NodeReplacement, now: datetime
    ) -> api.NodeReplacementStatus:
        name = attempt_drain.drain_name(replacement)
        try:
            self._clients.drains.create(attempt_drain.drain_manifest(replacement))
        except AlreadyExists:
            found = self._clients.drains.fetch(name)
            if found is None:
                raise  # deleted in between: try again
            if not attempt_drain.belongs_to(found, replacement):
                message = f"NodeDrain {name} belongs to another object; delete it"
                return statuses.failed_attempt_status(replacement, Reason.NAME_TAKEN, message, now)
            self._clients.drains.observe(found)
        return replacement.status

    def _propagate_pause(self, replacement: api.NodeReplacement, drain: api.NodeDrain) -> None:
        if drain.spec.paused != replacement.spec.paused and not drain.status.is_final:
            self._clients.drains.patch_any_version(
                drain, {"spec": {"paused": replacement.spec.paused}}
            )

    def _complete(
        self, replacement: api.NodeReplacement, drain: api.NodeDrain | None, now: datetime
    ) -> api.NodeReplacementStatus:
        # The cordon comes first: once the status says Completed, a user may delete the rollout,
        # and an empty node must not accept pods again.
        self._keep_cordon(replacement, drain)  # mutant: cordon-of-a-drained-node-undone
        if not attempt_drain.evicts(replacement.spec):
            # Other tools terminate the machines of labelled nodes, and this one has its pods.
            return statuses.completed_status(replacement, Reason.ACTION_COMPLETED, now)
        at = drain.status.completion_timestamp if drain is not None else None
        self._label(replacement, at or now)
        return statuses.drained_status(replacement, now)

    def _label(self, replacement: api.NodeReplacement, at: datetime) -> None:
        """Label the node as drained (OP-24), unless it is another node by now.

        The label has the time of the drain, so that a repetition writes the same value.
        """
        node = self._reader.node(replacement)
        if node is None or node.metadata.uid != replacement.spec.node_uid:
            return
        value = at.astimezone(UTC).strftime(_LABEL_TIME)
        if node.metadata.labels.get(DRAIN_COMPLETED_LABEL) == value:
            return
        body = {"metadata": {"labels": {DRAIN_COMPLETED_LABEL: value}}}
        self._clients.nodes.patch_any_version(node, body)

    def _keep_cordon(self, replacement: api.NodeReplacement, drain: api.NodeDrain | None) -> None:
        """Let neither this drain nor another one uncordon the node when it ends."""
        if drain is None:
            return
        # The patch fails if the drain has changed: when a user has deleted it, its finalizer may
        # be uncordoning the node because of the old value.
        if drain.spec.uncordon_on_delete:
            self._clients.drains.patch(drain, {"spec": {"uncordonOnDelete": False}})
        node = self._clients.nodes.find(replacement.spec.node_name)
        if node is None or node.metadata.uid != replacement.spec.node_uid:
            return
        body = kept_cordon_patch(node, drain)
        if body is not None:
            # It fails if the node has changed: the other drain may just have ended.
            self._clients.nodes.patch(node, body)

    def _undo_kept_cordons(self, replacement: api.NodeReplacement) -> None:
        """Uncordon after all: `onNodeFailure` became `Uncordon` after an attempt under `Keep`.

        The cordon that a failed attempt left belongs to its drain, so delete that drain (OP-25).
        """
        if replacement.spec.strategy.on_node_failure is not api.NodeFailurePolicy.UNCORDON:
            return
        for name in attempt_drain.earlier_drain_names(replacement):
            drain = self._clients.drains.find(name)
            if drain is None or drain.metadata.deletion_timestamp is not None:
                continue
            if not attempt_drain.belongs_to(drain, replacement):
                continue
            if not drain.spec.uncordon_on_delete:
                body = {"spec": {"uncordonOnDelete": True}}
                drain = self._clients.drains.patch_any_version(drain, body)
            self._clients.drains.delete(drain, propagation=Propagation.BACKGROUND)

    def _save(
        self, replacement: api.NodeReplacement, status: api.NodeReplacementStatus
    ) -> api.NodeReplacement:
        name = replacement.metadata.name
        if statuses.only_pod_counts_changed(replacement.status, status) and self._deferred.due_in(
            name
        ):
            return replacement
        saved = self._clients.replacements.patch_status(
            replacement, api.status_diff(replacement.status, status)
        )
        self._deferred.clear(name)
        if replacement.status.current is api.Step.VERIFYING is not saved.status.current:
            self._verifier.forget(name)
        self._events.moved(replacement, saved)
        return saved


def _is_held(replacement: api.NodeReplacement) -> bool:
    """Return whether a replacement has the finalizer of its action."""
    return ACTION_FINALIZER in replacement.metadata.finalizers


def _needs_end_of_action(step: api.Step, action: decisions.Action) -> bool:
    """Return whether an action could still affect the node after the replacement leaves it."""
    if step is api.Step.RELEASING:
        # mutant: failed-action-not-ended-before-release
        return not isinstance(action, decisions.NoAction)
    return step is api.Step.ACTING and isinstance(action, decisions.CompleteWithoutNode)


def _deadline(drain: api.NodeDrain | None, step: api.Step) -> datetime | None:
    """Return when the drain times out in a step; `None` before it began, or without a timeout."""
    began_at, seconds = None, 0
    if drain is not None and step is api.Step.PREPARING and drain.spec.prepare is not None:
        began_at, seconds = drain.status.prepare_timestamp, drain.spec.prepare.timeout_seconds
    elif drain is not None and step in {api.Step.CORDONED, api.Step.DRAINING}:
        began_at, seconds = drain.status.start_timestamp, drain.spec.timeout_seconds
    return began_at + timedelta(seconds=seconds) if began_at is not None and seconds else None
