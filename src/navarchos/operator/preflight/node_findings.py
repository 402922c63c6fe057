"""What about a node, or the rollout as a whole, a person should know. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from navarchos.errors import ConfigError
from navarchos.operator.api.v1alpha1 import (
    ControlPlanePolicy,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
    PlannedNode,
    resolve_count,
)
from navarchos.operator.names import CORDONED_BY_ANNOTATION
from navarchos.operator.preflight.findings import FindingReason, PlanFinding, Severity
from navarchos.operator.preflight.kinds import PlanNode
from navarchos.operator.replacements.snapshot import rollout_uid
from navarchos.operator.rollouts.plan import selector_of

__all__ = ["find_for_node", "find_for_rollout"]


def find_for_node(
    machine: PlanNode,
    machines: Iterable[PlanNode],
    rollout: NodeRollout,
    replacements: Iterable[NodeReplacement],
    drains: Iterable[NodeDrain],
) -> Iterator[PlanFinding]:
    """Yield what is to be said of a node of a rollout.

    Args:
        machine: The node.
        machines: All nodes with the role control plane.
        rollout: The rollout.
        replacements: All of this node.
        drains: All of this node.
    """
    if not machine.is_ready:
        yield PlanFinding(
            severity=Severity.DELAYS,
            reason=FindingReason.NODE_NOT_READY,
            message="the node is not Ready: its pods end only when its kubelet says so",
            next_action="mend it, or delete the Node; drain.skipWaitForDeleteTimeoutSeconds "
            "stops waiting",
        )
    if machine.spec.unschedulable and not _is_marked(machine):
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.CORDONED_BEFORE,
            message="somebody else cordoned the node; that cordon stays, whatever happens",
            next_action="ask who did it, and why",
        )
    yield from _busy(rollout, replacements, drains)
    if machine.is_control_plane:
        yield from _quorum(machine, machines, rollout.spec.strategy.control_plane)


def find_for_rollout(
    rollout: NodeRollout, nodes: Sequence[PlannedNode], machines: Iterable[PlanNode]
) -> Iterator[PlanFinding]:
    """Yield what is to be said of a rollout's spec in view of the cluster."""
    known = list(machines)
    for number, entry in enumerate(rollout.spec.node_selectors, start=1):
        selector = selector_of(entry)
        if nodes and not any(selector.matches(machine.metadata.labels) for machine in known):
            yield PlanFinding(
                severity=Severity.NOTE,
                reason=FindingReason.SELECTOR_MATCHES_NOTHING,
                message=f"no node matches item {number} of spec.nodeSelectors: {selector}",
                next_action="correct it",
            )
    try:
        limit = resolve_count(rollout.spec.strategy.max_concurrent, len(nodes), round_up=True)
    except ConfigError as error:
        yield PlanFinding(
            severity=Severity.BLOCKS, reason=FindingReason.INVALID_SPEC, message=str(error)
        )
        return
    if limit == 0 and nodes:
        yield _nothing_may_start(rollout.spec.strategy.max_concurrent)


def _nothing_may_start(value: int | str) -> PlanFinding:
    if isinstance(value, int):
        return PlanFinding(
            severity=Severity.BLOCKS,
            reason=FindingReason.NOTHING_MAY_START,
            message="strategy.maxConcurrent is 0: no node ever starts",
            next_action="say 1 or more; spec.paused is for holding a rollout",
        )
    return PlanFinding(
        severity=Severity.NOTE,
        reason=FindingReason.NOTHING_MAY_START,
        message=f"strategy.maxConcurrent is {value}, which is no node; one at a time is taken",
        next_action="say 1, or a larger share",
    )


def _is_marked(machine: PlanNode) -> bool:
    return CORDONED_BY_ANNOTATION in machine.metadata.annotations


def _busy(
    rollout: NodeRollout, replacements: Iterable[NodeReplacement], drains: Iterable[NodeDrain]
) -> Iterator[PlanFinding]:
    others = [r for r in replacements if rollout_uid(r) != rollout.metadata.uid]
    for other in others:
        if not other.status.current.is_finished:
            yield PlanFinding(
                severity=Severity.NOTE,
                reason=FindingReason.NODE_BUSY,
                message=f"NodeReplacement {other.metadata.name} is about this node too; the "
                "higher priority goes first",
                next_action="leave the node out of one of them, unless both are meant",
            )
    for drain in drains:
        if not drain.metadata.owner_references and not drain.status.is_final:
            yield PlanFinding(
                severity=Severity.NOTE,
                reason=FindingReason.NODE_BUSY,
                message=f"NodeDrain {drain.metadata.name} is draining this node",
                next_action=f"kubectl delete ndrain {drain.metadata.name}, unless both are meant",
            )


def _quorum(
    machine: PlanNode, machines: Iterable[PlanNode], policy: ControlPlanePolicy
) -> Iterator[PlanFinding]:
    others = [m for m in machines if m.metadata.name != machine.metadata.name]
    if not others:
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.CONTROL_PLANE_ALONE,
            message="it is the only control-plane node: with its machine the API goes",
            next_action="add another first, unless the control plane is kept elsewhere",
        )
    down = sorted(m.metadata.name for m in others if not m.is_ready)
    if down:
        yield PlanFinding(
            severity=Severity.DELAYS if policy is ControlPlanePolicy.GUARD else Severity.NOTE,
            reason=FindingReason.CONTROL_PLANE_NOT_READY,
            message=f"other control-plane nodes are not Ready: {', '.join(down)}",
            next_action="bring them back first: quorum may hang on this node",
        )
