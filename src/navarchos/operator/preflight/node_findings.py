"""Findings about a node, or about a rollout as a whole. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import assert_never

from navarchos.errors import ConfigError
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.preparing import marks_of
from navarchos.operator.names import CORDONED_BY_ANNOTATION
from navarchos.operator.preflight.findings import FindingReason, PlanFinding, Severity
from navarchos.operator.preflight.kinds import PlanNode
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.snapshot import rollout_uid
from navarchos.operator.replacements.waits import rollout_wait
from navarchos.operator.rollouts.plan import selector_of
from navarchos.operator.waves import wave_counts

__all__ = ["find_for_node", "find_for_rollout", "find_for_times", "find_unavailable_action"]


def find_for_node(
    node: PlanNode,
    control_plane: Iterable[PlanNode],
    rollout: api.NodeRollout,
    replacements: Iterable[api.NodeReplacement],
    drains: Iterable[api.NodeDrain],
) -> Iterator[PlanFinding]:
    """Yield the findings about a node of a rollout.

    Args:
        node: The node.
        control_plane: All control-plane nodes.
        rollout: The rollout.
        replacements: All replacements of the node.
        drains: All drains of the node.
    """
    if not node.is_ready:
        yield PlanFinding(
            severity=Severity.DELAYS,
            reason=FindingReason.NODE_NOT_READY,
            message="the node is not Ready; its kubelet cannot confirm that pods have terminated",
            next_action="repair the node or delete the Node object; "
            "drain.skipWaitForDeleteTimeoutSeconds limits the wait",
        )
    if node.spec.unschedulable and not _is_marked(node):
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.CORDONED_BEFORE,
            message="the node was cordoned before; Navarchos will not uncordon it",
            next_action="find out who cordoned it, and why",
        )
    yield from _busy(rollout, replacements, drains)
    if node.is_control_plane:
        yield from _quorum(node, control_plane, rollout.spec.strategy.control_plane)


def find_for_rollout(
    rollout: api.NodeRollout, planned: Sequence[api.PlannedNode], nodes: Iterable[PlanNode]
) -> Iterator[PlanFinding]:
    """Yield the findings about the spec of a rollout in this cluster."""
    known = list(nodes)
    for number, entry in enumerate(rollout.spec.node_selectors, start=1):
        selector = selector_of(entry)
        if planned and not any(selector.matches(node.metadata.labels) for node in known):
            yield PlanFinding(
                severity=Severity.NOTE,
                reason=FindingReason.SELECTOR_MATCHES_NOTHING,
                message=f"no node matches item {number} of spec.nodeSelectors: {selector}",
                next_action="correct the selector",
            )
    yield from _prepared(rollout.spec.drain.prepare)
    yield from _find_for_action(rollout.spec.action)
    try:
        limit = api.resolve_count(rollout.spec.strategy.max_concurrent, len(planned), round_up=True)
    except ConfigError as error:
        yield PlanFinding(
            severity=Severity.BLOCKS, reason=FindingReason.INVALID_SPEC, message=str(error)
        )
        return
    if limit == 0 and planned:
        yield _nothing_may_start(rollout.spec.strategy.max_concurrent)


def _prepared(spec: api.PrepareSpec | None) -> Iterator[PlanFinding]:
    if spec is None:
        return
    parts = [f"gets the {mark.kind} {mark.key}={mark.value}" for mark in marks_of(spec)]
    if (wait := spec.wait_for_timestamp) is not None:
        parts.append(f"waits for the time in {wait.key} and {wait.grace_period_seconds} s more")
    if spec.readiness_gate:
        gate = f"the readiness gate {spec.readiness_gate}"
        parts.append(f"makes its pods with {gate} unready, unless a budget covers them")
    parts += [f"waits for {spec.settle_seconds} s"] if spec.settle_seconds else []
    parts += [f"waits for the hook {hook}" for hook in spec.hooks]
    if parts:
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.PREPARED,
            message=f"before its cordon each node {', '.join(parts)}",
            next_action="check that the programs that detach nodes and answer hooks are running",
        )


def _find_for_action(action: api.ActionSpec | None) -> Iterator[PlanFinding]:
    if action is None:
        return
    parts = [_state(action), *_carried_out(action), *_verified(action), _end(action)]
    yield PlanFinding(
        severity=Severity.NOTE,
        reason=FindingReason.NODE_ACTION,
        message=f"each node {', '.join(parts[:-1])}, and {parts[-1]}",
    )
    if action.job is None:
        return
    spec = action.job.template.get("spec")
    if not isinstance(spec, dict) or spec.get("activeDeadlineSeconds") is None:
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.JOB_WITHOUT_DEADLINE,
            message="the Jobs of action.job have no time limit; a Job whose pod cannot start keeps "
            "its node in flight",
            next_action="set spec.activeDeadlineSeconds in action.job.template",
        )


def _state(action: api.ActionSpec) -> str:
    match action.node:
        case api.NodeState.DRAINED:
            return "is drained"
        case api.NodeState.CORDONED:
            return "is cordoned but not drained"
        case api.NodeState.IN_SERVICE:
            return "stays in service"
        case _:
            assert_never(action.node)


def _carried_out(action: api.ActionSpec) -> Iterator[str]:
    if action.kind is not None:
        yield f"action.{action.kind} is carried out"


def _verified(action: api.ActionSpec) -> Iterator[str]:
    """Yield what must be true of the node, or of the node that takes its place."""
    spec = action.verification
    if spec is None:
        return
    wanted = [f"Ready for {spec.ready_seconds} s"]
    wanted += ["with Ready pods of its DaemonSets"] if spec.daemon_sets else []
    wanted += [f"with the kubelet {spec.kubelet_version}"] if spec.kubelet_version else []
    wanted += ["with another boot id"] if spec.rebooted else []
    yield f"it must be {', '.join(wanted)} within {spec.timeout_seconds} s"


def _end(action: api.ActionSpec) -> str:
    if action.kind is not None and action.kind.ends_machine:
        return "its machine is terminated"
    if action.returns:
        return "it returns to service"
    return "it stays as it is"


def find_unavailable_action(
    action: api.ActionSpec | None, controllers: Collection[str]
) -> Iterator[PlanFinding]:
    """Yield a finding if the controller of an action is not among these."""
    kind = action.kind if action is not None else None
    if kind is not None and kind.controller not in controllers:
        yield PlanFinding(
            severity=Severity.BLOCKS,
            reason=FindingReason.ACTION_UNAVAILABLE,
            message=f"no controller that is installed carries out action.{kind}",
            next_action=f"install {kind.controller} and start the manager with "
            f"--controllers={kind.controller}",
        )


def find_for_times(rollout: api.NodeRollout, now: datetime) -> Iterator[PlanFinding]:
    """Yield the findings about windows, blackouts and waves of a rollout."""
    strategy = rollout.spec.strategy
    try:
        counts = wave_counts(rollout)
        wait = rollout_wait(rollout, (), now)
    except ConfigError as error:
        yield PlanFinding(
            severity=Severity.BLOCKS, reason=FindingReason.INVALID_SPEC, message=str(error)
        )
        return
    if wait is not None and wait.reason is WaitReason.INVALID_STRATEGY:
        yield PlanFinding(
            severity=Severity.BLOCKS, reason=FindingReason.INVALID_SPEC, message=wait.message
        )
    elif wait is not None:
        message = f"no node starts now; {wait.message}"
        yield PlanFinding(
            severity=Severity.NOTE, reason=FindingReason.OUTSIDE_WINDOW, message=message
        )
    if counts:
        parts = [
            _wave(wave, count) for wave, count in zip(strategy.waves or (), counts, strict=True)
        ]
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.WAVES,
            message=f"{len(parts)} waves of {len(rollout.status.nodes)} nodes: {'; '.join(parts)}",
        )


def _wave(wave: api.Wave, count: int) -> str:
    soak = f", then {wave.soak_seconds} s" if wave.soak_seconds else ""
    approval = ", then an approval" if wave.approval else ""
    return f"up to {count}{soak}{approval}"


def _nothing_may_start(value: int | str) -> PlanFinding:
    if isinstance(value, int):
        return PlanFinding(
            severity=Severity.BLOCKS,
            reason=FindingReason.NOTHING_MAY_START,
            message="strategy.maxConcurrent is 0: no node will start",
            next_action="set it to 1 or more; to pause a rollout, use spec.paused",
        )
    return PlanFinding(
        severity=Severity.NOTE,
        reason=FindingReason.NOTHING_MAY_START,
        message=f"strategy.maxConcurrent is {value}, which rounds to no node; 1 is used instead",
        next_action="set it to 1 or to a larger percentage",
    )


def _is_marked(node: PlanNode) -> bool:
    return CORDONED_BY_ANNOTATION in node.metadata.annotations


def _busy(
    rollout: api.NodeRollout,
    replacements: Iterable[api.NodeReplacement],
    drains: Iterable[api.NodeDrain],
) -> Iterator[PlanFinding]:
    others = [r for r in replacements if rollout_uid(r) != rollout.metadata.uid]
    for other in others:
        if not other.status.current.is_finished:
            yield PlanFinding(
                severity=Severity.NOTE,
                reason=FindingReason.NODE_BUSY,
                message=f"NodeReplacement {other.metadata.name} replaces the same node; the higher "
                "priority starts first",
                next_action="exclude the node from one of the rollouts, unless both are intended",
            )
    for drain in drains:
        if not drain.metadata.owner_references and not drain.status.is_final:
            yield PlanFinding(
                severity=Severity.NOTE,
                reason=FindingReason.NODE_BUSY,
                message=f"NodeDrain {drain.metadata.name} is draining this node",
                next_action="delete it, unless it is intended: "
                f"kubectl delete ndrain {drain.metadata.name}",
            )


def _quorum(
    node: PlanNode, control_plane: Iterable[PlanNode], policy: api.ControlPlanePolicy
) -> Iterator[PlanFinding]:
    others = [n for n in control_plane if n.metadata.name != node.metadata.name]
    if not others:
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.CONTROL_PLANE_ALONE,
            message="this is the only control-plane node; removing it takes the API server down",
            next_action="add another control-plane node first, unless the control plane also runs "
            "elsewhere",
        )
    down = sorted(n.metadata.name for n in others if not n.is_ready)
    if down:
        yield PlanFinding(
            severity=Severity.DELAYS if policy is api.ControlPlanePolicy.GUARD else Severity.NOTE,
            reason=FindingReason.CONTROL_PLANE_NOT_READY,
            message=f"other control-plane nodes are not Ready: {', '.join(down)}",
            next_action="restore them first; this node may be needed for etcd quorum",
        )
