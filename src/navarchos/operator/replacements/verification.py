"""Verification: whether a node is well again after its action (NP-21)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from navarchos.drain import Pod
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates import GateMonitor, GateWait
from navarchos.operator.nodes import Node
from navarchos.operator.replacements.daemon_sets import (
    DaemonSetTemplate,
    DaemonSetWatches,
    selects,
)

__all__ = [
    "NodeIdentity",
    "Verification",
    "Verifier",
    "missing_daemon_sets",
    "verified_node",
    "verify",
]

_MAX_NAMES: Final = 5
"""DaemonSets that a message names; the others are counted."""

_FIRST_LISTS: Final = timedelta(seconds=0.5)
"""Until the next look at lists that have not arrived. An empty list wakes no replacement."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Which node is verified: the replacement's own, or the one that took its place."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a node still lacks."""

    missing: tuple[str, ...]
    """Each as a clause, for users. They do not change while nothing else does. Empty: the node
    is well."""
    recheck_at: datetime | None = None
    """When time alone changes the result; `None` if it never does."""
    is_overdue: bool = False
    """Whether the time for the verification is over."""


def verified_node(replacement: api.NodeReplacement) -> NodeIdentity:
    """Return the node to verify."""
    heir = replacement.status.heir
    if heir is not None:
        return NodeIdentity(heir.node_name, heir.node_uid)
    return NodeIdentity(replacement.spec.node_name, replacement.spec.node_uid)


def verify(
    wanted: api.VerifySpec,
    replacement: api.NodeReplacement,
    node: Node | None,
    now: datetime,
) -> Verification:
    """Compare a node with what must be true of it, except for its DaemonSets.

    Args:
        wanted: What must be true.
        replacement: Names the node, and has the boot id of the time before the action.
        node: The node with that name; `None` if there is none.
        now: The present time.
    """
    identity = verified_node(replacement)
    if node is None:
        return Verification((f"node {identity.name} does not exist",))
    if node.metadata.uid != identity.uid:
        return Verification((f"node {identity.name} is another node than before (uid)",))
    missing: list[str] = []
    recheck_at = None
    if not node.is_ready:  # mutant: verified-without-ready
        missing.append("the node is not Ready")
    elif node.ready_since is not None:
        ready_at = node.ready_since + timedelta(seconds=wanted.ready_seconds)
        if now < ready_at:
            missing.append(f"the node has not been Ready for {wanted.ready_seconds} s")
            recheck_at = ready_at
    info = node.status.node_info
    if wanted.kubelet_version and info.kubelet_version != wanted.kubelet_version:
        missing.append(
            f"the kubelet has version {info.kubelet_version}, not {wanted.kubelet_version}"
        )
    if wanted.rebooted and info.boot_id in {"", replacement.status.boot_id}:
        missing.append("the node has not booted since its action began")
    return Verification(tuple(missing), recheck_at)


def missing_daemon_sets(
    node: Node, daemon_sets: Iterable[DaemonSetTemplate], pods: Iterable[Pod]
) -> tuple[str, ...]:
    """Return what a node lacks of its DaemonSets: a Ready pod of each one that selects it.

    Args:
        node: The node.
        daemon_sets: All DaemonSets of the cluster.
        pods: The pods of the node.
    """
    served = {
        owner.uid
        for pod in pods
        if pod.is_ready and not pod.is_terminating and (owner := pod.controller) is not None
    }
    names = sorted(
        f"{each.metadata.namespace}/{each.metadata.name}"
        for each in daemon_sets
        if each.metadata.uid not in served
        and each.metadata.deletion_timestamp is None
        and selects(each, node)
    )
    if not names:
        return ()
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return (f"no Ready pod of DaemonSet {', '.join(names[:_MAX_NAMES])}{more} is on the node",)


class Verifier:
    """Verifies nodes, and reads their DaemonSets if they are asked for.

    Threads: safe from any thread, for different replacements.
    """

    def __init__(
        self,
        daemon_sets: DaemonSetWatches | None = None,
        gates: GateMonitor | None = None,
        rollout_of: Callable[[api.NodeReplacement], api.NodeRollout | None] = lambda _: None,
    ) -> None:
        """Begin without watches.

        Args:
            daemon_sets: Reads DaemonSets and their pods.
            gates: Observes the gates of rollouts.
            rollout_of: Returns the rollout, or other owner, of a replacement from the cache.
        """
        self._daemon_sets = daemon_sets
        self._gates = gates
        self._rollout_of = rollout_of

    def is_gated(self, replacement: api.NodeReplacement) -> bool:
        """Return whether its node counts as done only while gates are open."""
        rollout = self._rollout_of(replacement)
        # mutant: gates-after-ignored
        return rollout is not None and any(gate.after for gate in rollout.spec.gates)

    def observe(
        self, replacement: api.NodeReplacement, node: Node | None, now: datetime
    ) -> Verification:
        """Return what the node of a replacement in the step Verifying lacks now."""
        action = replacement.spec.action
        wanted = action.verification if action is not None else None
        found = Verification(())
        if wanted is not None:
            found = verify(wanted, replacement, node, now)
        if wanted is not None and wanted.daemon_sets and node is not None:
            found = self._with_daemon_sets(found, replacement, node, now)
        step = replacement.status.step
        deadline = step.deadline if step is not None else None
        # A closed gate says nothing about this node: it keeps the node here and does not fail it.
        lacks_own = bool(found.missing)
        gate = self._closed_gate(replacement)
        times = (
            found.recheck_at,
            deadline if lacks_own else None,
            gate.until if gate is not None else None,
        )
        return Verification(
            (*found.missing, gate.message) if gate is not None else found.missing,
            min((time for time in times if time is not None), default=None),
            is_overdue=lacks_own and deadline is not None and deadline <= now,
        )

    def _closed_gate(self, replacement: api.NodeReplacement) -> GateWait | None:
        rollout = self._rollout_of(replacement) if self._gates is not None else None
        if self._gates is None or rollout is None:
            return None
        return self._gates.wait_after(rollout)

    def forget(self, replacement: str) -> None:
        """Stop the watches of a replacement that is not verified any more."""
        if self._daemon_sets is not None:
            self._daemon_sets.forget(replacement)

    def _with_daemon_sets(
        self, found: Verification, replacement: api.NodeReplacement, node: Node, now: datetime
    ) -> Verification:
        read = None
        if self._daemon_sets is not None:
            read = self._daemon_sets.read(replacement.metadata.name, node.metadata.name)
        if read is None:
            soon = now + _FIRST_LISTS
            known = found.recheck_at
            return Verification(
                (*found.missing, "its DaemonSets are not known yet"),
                soon if known is None else min(soon, known),
            )
        daemon_sets, pods = read
        lacking = missing_daemon_sets(node, daemon_sets, pods)
        return replace(found, missing=(*found.missing, *lacking))
