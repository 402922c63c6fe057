"""Reads what a step decides from: the objects of one replacement."""

from typing import assert_never

import msgspec

from navarchos.clock import Clock
from navarchos.meta import controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.cache_transforms import is_stripped
from navarchos.operator.clients import OperatorClients
from navarchos.operator.nodes import Node
from navarchos.operator.owners import Owners
from navarchos.operator.replacements import attempt_drain
from navarchos.operator.replacements import status as statuses
from navarchos.operator.replacements.steps import decision as decisions
from navarchos.operator.replacements.verification import Verifier, verified_node

__all__ = ["StepReader"]


class StepReader:
    """Reads the objects of replacements.

    They come from the cache, and from the API server where a cache that is behind would lead to
    a wrong decision.

    Threads: safe from any thread.
    """

    def __init__(
        self, clients: OperatorClients, owners: Owners, verifier: Verifier, clock: Clock
    ) -> None:
        self._clients = clients
        self._owners = owners
        self._verifier = verifier
        self._clock = clock

    def observe(self, replacement: api.NodeReplacement) -> decisions.StepObservation:
        """Read the objects that the current step decides from."""
        step = replacement.status.current
        match step:
            case api.Step.WAITING:
                observed = decisions.StepObservation(replacement, node=self.node(replacement))
            case api.Step.RESERVED:
                observed = self._observe_reserved(replacement)
            case api.Step.PREPARING | api.Step.CORDONED | api.Step.DRAINING | api.Step.RELEASING:
                observed = self._with_report(replacement, self._own_drain(replacement))
            case api.Step.ACTING | api.Step.TERMINATING | api.Step.AWAITING_REPLACEMENT:
                drain, node = self._own_drain(replacement), self.node(replacement)
                abandoned = self._is_abandoned(replacement)
                observed = decisions.StepObservation(
                    replacement, drain, node, is_abandoned=abandoned
                )
            case api.Step.VERIFYING:
                observed = self._observe_verifying(replacement)
            case api.Step.RETURNING:
                observed = decisions.StepObservation(replacement, self._own_drain(replacement))
            case api.Step.DONE | api.Step.FAILED | api.Step.CANCELLED:
                observed = decisions.StepObservation(replacement)
            case _:
                assert_never(step)
        return observed

    def _observe_reserved(self, replacement: api.NodeReplacement) -> decisions.StepObservation:
        if (drain := self._own_drain(replacement)) is not None:
            return self._with_report(replacement, drain)
        if self._is_abandoned(replacement):
            return decisions.StepObservation(replacement, is_abandoned=True)
        # The drain itself asks the API server before it changes the node.
        return decisions.StepObservation(replacement, node=self.node(replacement))

    def _observe_verifying(self, replacement: api.NodeReplacement) -> decisions.StepObservation:
        # A cache that is behind only delays the end of the verification.
        node = self._clients.nodes.find(verified_node(replacement).name)
        found = self._verifier.observe(replacement, node, self._clock.now())
        return decisions.StepObservation(
            replacement, self._own_drain(replacement), node, verification=found
        )

    def _with_report(
        self, replacement: api.NodeReplacement, drain: api.NodeDrain | None
    ) -> decisions.StepObservation:
        if drain is None:
            return decisions.StepObservation(replacement)
        status = statuses.with_drain_report(replacement, drain, self._clock.now())
        return decisions.StepObservation(msgspec.structs.replace(replacement, status=status), drain)

    def _is_abandoned(self, replacement: api.NodeReplacement) -> bool:
        """Return whether the rollout is deleted, so that the replacement soon is too (OP-07)."""
        owner = controller_of(replacement.metadata)
        if self._owners.is_registered(replacement):
            view = self._owners.view_of(replacement)
            return view is None or view.metadata.deletion_timestamp is not None
        if owner is None or owner.kind != api.NODE_ROLLOUTS.kind:
            return False
        rollout = self._clients.rollouts.find(owner.name)
        if rollout is None or rollout.metadata.uid != owner.uid:
            return True
        return rollout.metadata.deletion_timestamp is not None

    def _own_drain(self, replacement: api.NodeReplacement) -> api.NodeDrain | None:
        if not decisions.has_drain(replacement.spec):
            return None
        name = attempt_drain.drain_name(replacement)
        drain = self._clients.drains.find(name)
        if drain is None and replacement.status.current is not api.Step.RESERVED:
            # A missing drain fails the attempt, and the cache may be behind.
            drain = self._clients.drains.fetch(name)
        elif drain is not None and is_stripped(drain):
            # Its report is read once more, and the cached drain is without it.
            drain = self._clients.drains.fetch(name)
        return drain if drain is not None and attempt_drain.belongs_to(drain, replacement) else None

    def node(self, replacement: api.NodeReplacement) -> Node | None:
        """Return the replacement's node; ask the API server if the cache does not have it.

        The cache may be behind: that it has no such node, or another node of that name, does
        not show that the node is gone.
        """
        node = self._clients.nodes.find(replacement.spec.node_name)
        # mutant: gets-per-node
        if node is not None and node.metadata.uid == replacement.spec.node_uid:
            return node
        return self._clients.nodes.fetch(replacement.spec.node_name)
