"""The predicted course of rollouts: order, start and findings of each node. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from navarchos.drain import (
    Budget,
    DrainPlan,
    EvictionResult,
    Pod,
    PodReason,
    budgets_of,
    classify,
    full_name,
)
from navarchos.errors import ConfigError
from navarchos.operator.actions import unavailable_message
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.settings import DrainSettings
from navarchos.operator.gates import Records
from navarchos.operator.preflight import pod_findings
from navarchos.operator.preflight.findings import FindingReason, PlanFinding, Severity
from navarchos.operator.preflight.kinds import PersistentVolume, PlanNode, PlanPod, VolumeClaim
from navarchos.operator.preflight.node_findings import (
    find_for_node,
    find_for_rollout,
    find_for_times,
    find_unavailable_action,
)
from navarchos.operator.preflight.placement import PlacementCheck
from navarchos.operator.reasons import ConditionType, WaitReason
from navarchos.operator.replacements.admission import Decisions, admit_with_budgets
from navarchos.operator.replacements.attempt_drain import drain_spec, evicts
from navarchos.operator.replacements.budgets import budgets_over
from navarchos.operator.replacements.snapshot import ClusterSnapshot, Hold, PendingPod
from navarchos.operator.rollouts.children import child_manifest, name_of_child
from navarchos.operator.rollouts.plan import make_plan
from navarchos.operator.slots import Holder, drain_holders, orphaned_nodes
from navarchos.runtime.conditions import find_condition

__all__ = [
    "ClusterState",
    "PodCounts",
    "PredictedBudget",
    "PredictedNode",
    "PredictedRollout",
    "dry_run_candidates",
    "first_replacement",
    "predict",
    "with_findings",
]

T = TypeVar("T", api.NodeReplacement, api.NodeDrain)

ALL_CONTROLLERS: Final = frozenset(kind.controller for kind in api.ActionKind)
"""The controllers of all actions."""

_NOW: Final = "Now"
_IN_FLIGHT: Final = "InFlight"
_CANCELLED: Final = "Cancelled"


@dataclass(frozen=True)
class ClusterState:
    """The current state of the cluster."""

    nodes: Sequence[PlanNode]
    pods: Sequence[PlanPod] = ()
    budgets: Sequence[Budget] = ()
    daemon_sets: frozenset[tuple[str, str]] = frozenset()
    """The namespace and name of each."""
    terminating: frozenset[str] = frozenset()
    """Namespaces that are being deleted."""
    rollouts: Sequence[api.NodeRollout] = ()
    replacements: Sequence[api.NodeReplacement] = ()
    drains: Sequence[api.NodeDrain] = ()
    holders: Mapping[str, Holder] = field(default_factory=dict)
    """What other systems report about the nodes that they hold, besides NodeDrains, by name."""
    objections: Mapping[str, str] = field(default_factory=dict)
    """Why nodes must not start now, by name; added to what the status of replacements reports."""
    claims: Mapping[tuple[str, str], VolumeClaim] | None = None
    """By namespace and name; `None` if they were not read."""
    volumes: Mapping[str, PersistentVolume] | None = None
    """By name; `None` if they were not read."""
    refusals: Mapping[str, EvictionResult] = field(default_factory=dict)
    """The refused dry-run evictions, by pod uid."""
    controllers: frozenset[str] = ALL_CONTROLLERS
    """The systems whose kinds are installed, as `--controllers` names them."""
    gates: Mapping[str, Records] = field(default_factory=dict)
    """The gates of the planned rollouts, by name of the rollout."""
    replaced_first: frozenset[tuple[str, str]] = frozenset()
    """The namespaces and names of ReplicaSets whose Deployments can start a new pod first; empty
    if no rollout asks for that."""
    general: Sequence[PlanFinding] = ()
    """Findings of the collection itself."""


class PodCounts(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The number of pods of a node, by the action of the drain."""

    evict: int
    wait: int
    ignore: int
    refuse: int


class PredictedNode(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A node of a rollout.

    `starts` is `Now`, `InFlight`, `Cancelled` (never), or the reason of the condition `Waiting`.
    `message` has details of that reason, such as the object that holds the last slot.
    """

    order: int
    name: str
    priority: int
    starts: str
    pods: PodCounts
    findings: tuple[PlanFinding, ...]
    message: str = ""


class PredictedBudget(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A budget that selects pods that must be evicted, on any node of the rollout."""

    name: str
    disruptions_allowed: int
    pods: int
    is_blocking: bool


class PredictedRollout(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The predicted course of a rollout. It is blocked if a finding has severity `Blocks`."""

    name: str
    nodes: tuple[PredictedNode, ...]
    budgets: tuple[PredictedBudget, ...]
    findings: tuple[PlanFinding, ...]
    is_blocked: bool


def with_findings(
    rollout: PredictedRollout, found: Mapping[str, Sequence[PlanFinding]]
) -> PredictedRollout:
    """Return a prediction with more findings about its nodes, by the node's name."""
    nodes = tuple(
        replace(node, findings=(*node.findings, *found.get(node.name, ())))
        for node in rollout.nodes
    )
    more = [finding for node in nodes for finding in found.get(node.name, ())]
    blocks = any(finding.severity is Severity.BLOCKS for finding in more)
    return replace(rollout, nodes=nodes, is_blocked=rollout.is_blocked or blocks)


def predict(
    rollouts: Iterable[api.NodeRollout], state: ClusterState, now: datetime
) -> tuple[PredictedRollout, ...]:
    """Predict what rollouts would do if all of them were created now.

    The prediction of an existing rollout starts at its current state, without the
    finished nodes.

    Promises: equal arguments give equal results. No request is sent.
    """
    planned = [_Planned.of(rollout, state) for rollout in rollouts]
    pods, by_namespace = _pods_by_node(state.pods), _by_namespace(state.budgets)

    def budgets_of_nodes(
        waiting: Sequence[str], busy: Sequence[str]
    ) -> Mapping[str, frozenset[str]]:
        return {
            name: budgets_over(pods.get(name, ()), lambda space: by_namespace.get(space, ()))
            for name in (*waiting, *busy)
        }

    decisions = admit_with_budgets(_snapshot(planned, state), now, budgets_of_nodes)
    view = _View.of(state, decisions, now)
    return tuple(_predict(each, state, view) for each in planned)


def dry_run_candidates(
    rollouts: Iterable[api.NodeRollout], state: ClusterState, now: datetime, *, limit: int
) -> Sequence[PlanPod]:
    """Return the pods to evict in a dry run: one of each workload.

    Args:
        rollouts: The rollouts of the plan.
        state: The state of the cluster.
        now: The current time.
        limit: The maximum number of pods.
    """
    of_workload: dict[str, PlanPod] = {}
    by_node = _pods_by_node(state.pods)
    for rollout in rollouts:
        try:
            settings = _settings(rollout.spec)
        except ConfigError:
            continue
        if settings.options.disable_eviction or not evicts(rollout.spec):
            continue
        for node in _Planned.of(rollout, state).nodes:
            for pod in _leaving(_plan_of(node, by_node, settings, state, now), by_node):
                owner = pod.controller
                key = pod.metadata.uid if owner is None else owner.uid
                if len(of_workload) < limit and pod.metadata.namespace not in state.terminating:
                    of_workload.setdefault(key, pod)
    return tuple(of_workload.values())


def first_replacement(rollout: api.NodeRollout, state: ClusterState) -> api.NodeReplacement | None:
    """Return the replacement of the first node that a rollout has left, for dry runs."""
    planned = _Planned.of(rollout, state)
    if not planned.nodes:
        return None
    replacement = _replacement(planned.rollout, planned.nodes[0])
    # The server checks only the form of the uid of an owner.
    metadata = msgspec.structs.replace(replacement.metadata, uid=planned.nodes[0].uid)
    return msgspec.structs.replace(replacement, metadata=metadata)


@dataclass(frozen=True, slots=True)
class _Planned:
    rollout: api.NodeRollout
    """The rollout, with its nodes in the status."""
    nodes: tuple[api.PlannedNode, ...]
    not_found: tuple[str, ...]
    exists: bool

    @classmethod
    def of(cls, rollout: api.NodeRollout, state: ClusterState) -> "_Planned":
        status = rollout.status
        if status.start_timestamp is not None:
            over = {
                *status.replacements_completed,
                *status.replacements_failed,
                *status.replacements_cancelled,
            }
            left = tuple(node for node in status.nodes if node.name not in over)
            return cls(rollout, left, status.nodes_not_found, exists=True)
        plan = make_plan(rollout.spec, state.nodes)
        begun = msgspec.structs.replace(
            status, phase=api.RolloutPhase.IN_PROGRESS, nodes=plan.nodes
        )
        rollout = msgspec.structs.replace(rollout, status=begun)
        return cls(rollout, plan.nodes, plan.not_found, exists=False)

    def replacements(self) -> list[api.NodeReplacement]:
        """Return the replacements that do not exist yet."""
        return [] if self.exists else [_replacement(self.rollout, node) for node in self.nodes]


def _replacement(rollout: api.NodeRollout, node: api.PlannedNode) -> api.NodeReplacement:
    return msgspec.convert(child_manifest(rollout, node), api.NodeReplacement)


def _snapshot(planned: Iterable[_Planned], state: ClusterState) -> ClusterSnapshot:
    kept = list(planned)
    known = {rollout.metadata.uid: rollout for rollout in state.rollouts}
    nodes = {node.metadata.name: node for node in state.nodes}
    replacements = [*state.replacements, *(r for each in kept for r in each.replacements())]
    return ClusterSnapshot(
        replacements=replacements,
        rollouts=known | {each.rollout.metadata.uid: each.rollout for each in kept},
        nodes=nodes,
        orphaned=orphaned_nodes(state.drains, state.replacements, nodes),
        holders={**state.holders, **drain_holders(state.drains, nodes)},
        objections=dict(_objections(state.replacements)) | dict(state.objections),
        holds=dict(_unavailable(replacements, state.controllers)),
        pending=[_pending(pod) for pod in state.pods if _is_pending(pod)],
        gates={
            each.rollout.metadata.uid: state.gates.get(each.rollout.metadata.name, {})
            for each in kept
        },
    )


def _objections(replacements: Iterable[api.NodeReplacement]) -> Iterator[tuple[str, str]]:
    """Yield the nodes to which the manager has found an objection, and its text."""
    for replacement in replacements:
        step = replacement.status.step
        if step is not None and step.reason == WaitReason.NODE_NEEDED:
            waiting = find_condition(replacement.status.conditions, ConditionType.WAITING)
            yield replacement.spec.node_name, waiting.message if waiting is not None else ""


def _unavailable(
    replacements: Iterable[api.NodeReplacement], controllers: Collection[str]
) -> Iterator[tuple[str, Hold]]:
    """Yield the nodes that wait for the controller of their action, by name of the replacement."""
    for replacement in replacements:
        action = replacement.spec.action
        kind = action.kind if action is not None else None
        if kind is not None and kind.controller not in controllers:
            hold = Hold(WaitReason.ACTION_UNAVAILABLE, unavailable_message(kind))
            yield replacement.metadata.name, hold


def _is_pending(pod: Pod) -> bool:
    return pod.status.phase == "Pending" and not pod.is_terminating


def _pending(pod: Pod) -> PendingPod:
    created, owner = pod.metadata.creation_timestamp, pod.controller
    assert created is not None  # every stored object has a creation time
    key = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return PendingPod(key, owner.uid if owner is not None else "", created)


@dataclass(frozen=True)
class _View:
    """The state of the cluster, indexed for lookups."""

    now: datetime
    decisions: Decisions
    context: pod_findings.PodContext
    placement: PlacementCheck
    pods: Mapping[str, list[PlanPod]]
    nodes: Mapping[str, PlanNode]
    control_plane: Sequence[PlanNode]
    replacements: Mapping[str, list[api.NodeReplacement]]
    drains: Mapping[str, list[api.NodeDrain]]
    in_flight: frozenset[str]

    @classmethod
    def of(cls, state: ClusterState, decisions: Decisions, now: datetime) -> "_View":
        """Build the indexes once for all rollouts."""
        return cls(
            now=now,
            decisions=decisions,
            context=pod_findings.PodContext(
                now=now,
                budgets=_by_namespace(state.budgets),
                terminating=state.terminating,
                refusals=state.refusals,
                replaced_first=state.replaced_first,
            ),
            placement=PlacementCheck(state.nodes, state.pods, state.claims, state.volumes),
            pods=_pods_by_node(state.pods),
            nodes={node.metadata.name: node for node in state.nodes},
            control_plane=[node for node in state.nodes if node.is_control_plane],
            replacements=_by_node(state.replacements),
            drains=_by_node(state.drains),
            in_flight=frozenset(
                r.metadata.name for r in state.replacements if r.status.current.in_flight
            ),
        )


def _predict(planned: _Planned, state: ClusterState, view: _View) -> PredictedRollout:
    name = planned.rollout.metadata.name
    general = [*state.general, *_general(planned, state)]
    general += find_for_times(planned.rollout, view.now)
    try:
        settings = _settings(planned.rollout.spec)
    except ConfigError as error:
        bad = PlanFinding(
            severity=Severity.BLOCKS, reason=FindingReason.INVALID_SPEC, message=str(error)
        )
        return PredictedRollout(name=name, nodes=(), budgets=(), findings=(bad,), is_blocked=True)
    evicted_from = view.pods if evicts(planned.rollout.spec) else {}
    plans = {
        node.name: _plan_of(node, evicted_from, settings, state, view.now) for node in planned.nodes
    }
    nodes = tuple(
        PredictedNode(
            order=order,
            name=node.name,
            priority=node.priority,
            starts=_starts(planned.rollout, node, view.in_flight, view.decisions),
            pods=_counts(plans[node.name]),
            findings=_sorted(_findings(planned, node, plans[node.name], settings, view)),
            message=view.decisions.details.get(name_of_child(planned.rollout, node.name), ""),
        )
        for order, node in enumerate(planned.nodes, start=1)
    )
    found = [*general, *(finding for node in nodes for finding in node.findings)]
    return PredictedRollout(
        name=name,
        nodes=nodes,
        budgets=_budgets(plans.values(), view.context.budgets, found),
        findings=_sorted(general),
        is_blocked=any(finding.severity is Severity.BLOCKS for finding in found),
    )


def _findings(
    planned: _Planned, node: api.PlannedNode, plan: DrainPlan, settings: DrainSettings, view: _View
) -> Iterator[PlanFinding]:
    known = view.nodes.get(node.name)
    if known is not None and known.metadata.uid == node.uid:
        yield from find_for_node(
            known,
            view.control_plane,
            planned.rollout,
            view.replacements.get(node.name, ()),
            view.drains.get(node.name, ()),
        )
    yield from pod_findings.find_for_pods(plan, settings, view.context)
    prepare = planned.rollout.spec.drain.prepare
    if prepare is not None and (gate := prepare.readiness_gate):
        yield from pod_findings.find_unready_pods(view.pods.get(node.name, ()), gate, view.context)
    for unplaceable in view.placement.unplaceable(node.name, _recreated(plan, view.pods)):
        yield pod_findings.finding_of_unplaceable(unplaceable)


def _sorted(findings: Iterable[PlanFinding]) -> tuple[PlanFinding, ...]:
    rank = list(Severity)
    return tuple(sorted(findings, key=lambda f: (rank.index(f.severity), f.pod, f.reason)))


def _settings(spec: api.NodeRolloutSpec) -> DrainSettings:
    return DrainSettings.from_spec(drain_spec(spec.drain, spec.action))


def _plan_of(
    node: api.PlannedNode,
    pods: Mapping[str, Sequence[Pod]],
    settings: DrainSettings,
    state: ClusterState,
    now: datetime,
) -> DrainPlan:
    return classify(
        pods.get(node.name, ()), settings.options, lambda *key: key in state.daemon_sets, now=now
    )


def _leaving(plan: DrainPlan, pods: Mapping[str, Sequence[PlanPod]]) -> Iterator[PlanPod]:
    """Yield the pods that are evicted, with the fields that placement needs."""
    uids = {planned.uid for planned in plan.evict}
    names = {planned.pod.spec.node_name for planned in plan.evict}
    yield from (pod for name in sorted(names) for pod in pods[name] if pod.metadata.uid in uids)


def _recreated(plan: DrainPlan, pods: Mapping[str, Sequence[PlanPod]]) -> Sequence[PlanPod]:
    """Return the evicted pods that a controller re-creates on another node."""
    lost = {
        planned.uid for planned in plan.evict if planned.finding.reason is PodReason.DAEMON_SET_GONE
    }
    return [
        pod
        for pod in _leaving(plan, pods)
        if pod.controller is not None and not pod.is_finished and pod.metadata.uid not in lost
    ]


def _general(planned: _Planned, state: ClusterState) -> Iterable[PlanFinding]:
    for missing in planned.not_found:
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.NODE_NOT_FOUND,
            message=f"no node has the name {missing}",
            next_action="correct spec.nodeNames",
        )
    yield from _closed_gates(state.gates.get(planned.rollout.metadata.name, {}))
    yield from find_unavailable_action(planned.rollout.spec.action, state.controllers)
    if planned.exists:
        return
    if not planned.nodes:
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.NO_NODES_MATCHED,
            message="no node matches spec.nodeSelectors or spec.nodeNames",
            next_action="correct them; the rollout would complete immediately without any node",
        )
    yield from find_for_rollout(planned.rollout, planned.nodes, state.nodes)


def _closed_gates(gates: Records) -> Iterator[PlanFinding]:
    for record in gates.values():
        verdict = record.verdict
        if verdict.state is not api.GateState.CLOSED:
            continue
        yield PlanFinding(
            severity=Severity.BLOCKS if verdict.is_broken else Severity.DELAYS,
            reason=FindingReason.GATE_CLOSED,
            message=f"gate {record.name} is closed: {verdict.message}",
            next_action="correct the gate or the permission"
            if verdict.is_broken
            else "nothing; no node starts until the gate is open",
        )


def _pods_by_node(pods: Iterable[PlanPod]) -> Mapping[str, list[PlanPod]]:
    found: dict[str, list[PlanPod]] = {}
    for pod in pods:
        found.setdefault(pod.spec.node_name, []).append(pod)
    return found


def _by_node(objects: Iterable[T]) -> Mapping[str, list[T]]:
    found: dict[str, list[T]] = {}
    for each in objects:
        found.setdefault(each.spec.node_name, []).append(each)
    return found


def _starts(
    rollout: api.NodeRollout, node: api.PlannedNode, in_flight: frozenset[str], decisions: Decisions
) -> str:
    name = name_of_child(rollout, node.name)
    if name in in_flight:
        return _IN_FLIGHT
    if name in decisions.start:
        return _NOW
    if name in decisions.cancelled or rollout.spec.cancel:
        return _CANCELLED
    if name in decisions.expired:
        return WaitReason.PENDING_PODS
    # Admission decides about a replacement only after it exists.
    return decisions.waiting.get(name, WaitReason.ROLLOUT_NOT_READY)


def _counts(plan: DrainPlan) -> PodCounts:
    return PodCounts(
        evict=len(plan.evict),
        wait=len(plan.wait),
        ignore=len(plan.ignore),
        refuse=len(plan.refuse),
    )


def _by_namespace(budgets: Iterable[Budget]) -> Mapping[str, list[Budget]]:
    found: dict[str, list[Budget]] = {}
    for budget in budgets:
        found.setdefault(budget.metadata.namespace, []).append(budget)
    return found


def _budgets(
    plans: Iterable[DrainPlan],
    by_namespace: Mapping[str, Sequence[Budget]],
    findings: Iterable[PlanFinding],
) -> tuple[PredictedBudget, ...]:
    pods: Counter[str] = Counter()
    allowed: dict[str, int] = {}
    for plan in plans:
        for planned in plan.evict:
            for budget in budgets_of(
                planned.pod, by_namespace.get(planned.pod.metadata.namespace, ())
            ):
                name = full_name(budget.metadata)
                pods[name] += 1
                allowed[name] = budget.status.disruptions_allowed
    blocking = {name for finding in findings for name in finding.budgets}
    return tuple(
        PredictedBudget(
            name=name,
            disruptions_allowed=allowed[name],
            pods=pods[name],
            is_blocking=name in blocking,
        )
        for name in sorted(pods)
    )
