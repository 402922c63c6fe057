"""Collects the state of the cluster for a plan, with reads and dry runs only."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar, assert_never

from navarchos.client import AlreadyExists, Client, Forbidden, NotFound, Resource, errors
from navarchos.client.errors import ClientError
from navarchos.client.rbac import ACCESS_REVIEWS, PolicyRule
from navarchos.clock import SYSTEM_CLOCK
from navarchos.drain import BUDGETS, DAEMON_SETS, EvictionResult, eviction_result
from navarchos.drain.eviction import RBAC as EVICTION_RBAC
from navarchos.drain.eviction import EvictionOutcome, served_eviction
from navarchos.errors import ConfigError
from navarchos.meta import Object, controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.deployment.settings import NAME, NAMESPACE, leader_problem
from navarchos.operator.drains import successors
from navarchos.operator.drains.cordon import RBAC as CORDON_RBAC
from navarchos.operator.drains.pods import RBAC as POD_RBAC
from navarchos.operator.drains.settings import DrainSettings
from navarchos.operator.gates import GateChecker, PrometheusReader
from navarchos.operator.jobs import JOBS, job_manifest
from navarchos.operator.preflight import kinds
from navarchos.operator.preflight.findings import FindingReason, PlanFinding, Severity
from navarchos.operator.preflight.prediction import (
    ClusterState,
    dry_run_candidates,
    first_replacement,
)
from navarchos.runtime import list_all

__all__ = ["MAX_DRY_RUNS", "collect", "dry_run_evictions", "missing_permissions"]

T = TypeVar("T", bound=Object)

MAX_DRY_RUNS: Final = 64
"""The maximum number of dry-run evictions of a plan. One pod of each workload is enough."""

_TIMEOUT: Final = 10.0

_NEEDED: Final = (*EVICTION_RBAC, *CORDON_RBAC, *POD_RBAC)
"""The permissions that the manager needs to drain nodes."""


_ACCOUNTS: Final = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, type=Object
)


def collect(client: Client, rollouts: Sequence[api.NodeRollout], now: datetime) -> ClusterState:
    """Return the state of the cluster that matters for rollouts.

    Each kind is listed once, in pages. If webhooks decide about evictions, at most
    `MAX_DRY_RUNS` pods are evicted in a dry run. Volumes, webhooks and permissions that
    the caller cannot read are skipped, and a finding reports that. A plan is impossible
    without nodes, pods, budgets, DaemonSets, namespaces and the kinds of the operator.

    Raises:
        ClientError: The server refused to list a kind that the plan needs, or did not
            answer.
    """
    collector = _Collector(client)
    claims = collector.list_if_allowed(kinds.VOLUME_CLAIMS, "volumes were not checked")
    volumes = collector.list_if_allowed(kinds.PERSISTENT_VOLUMES, "volumes were not checked")
    state = ClusterState(
        nodes=list_all(client, kinds.PLAN_NODES),
        pods=list_all(client, kinds.PLAN_PODS),
        budgets=list_all(client, BUDGETS),
        daemon_sets=frozenset(
            (each.metadata.namespace, each.metadata.name) for each in list_all(client, DAEMON_SETS)
        ),
        terminating=frozenset(
            each.metadata.name
            for each in list_all(client, kinds.NAMESPACES)
            if each.metadata.deletion_timestamp is not None
        ),
        rollouts=list_all(client, api.NODE_ROLLOUTS),
        replacements=list_all(client, api.NODE_REPLACEMENTS),
        drains=list_all(client, api.NODE_DRAINS),
        claims=None
        if claims is None
        else {(each.metadata.namespace, each.metadata.name): each for each in claims},
        volumes=None if volumes is None else {each.metadata.name: each for each in volumes},
    )
    checker = GateChecker(client, PrometheusReader(SYSTEM_CLOCK), SYSTEM_CLOCK)
    gates = {
        rollout.metadata.name: checker.check(rollout, state.nodes, state.replacements)
        for rollout in rollouts
        if rollout.spec.gates
    }
    refusals = collector.dry_runs(dry_run_candidates(rollouts, state, now, limit=MAX_DRY_RUNS))
    collector.check_jobs(rollouts, state)
    replaces_first = any(_replaces_first(rollout) for rollout in rollouts)
    replaced = collector.replaced_first() if replaces_first else frozenset()
    collector.check_manager(now, replaces_first=replaces_first)
    return replace(
        state,
        gates=gates,
        refusals=refusals,
        replaced_first=replaced,
        general=tuple(collector.findings),
    )


def _replaces_first(rollout: api.NodeRollout) -> bool:
    try:
        return DrainSettings.from_spec(rollout.spec.drain).replaces_first
    except ConfigError:
        return False  # the prediction reports the error


class _Collector:
    """Reads that may be forbidden. `findings` has an entry for each that was."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.findings: list[PlanFinding] = []

    def list_if_allowed(self, resource: Resource[T], otherwise: str) -> Sequence[T] | None:
        """Return all objects of a kind; `None` if the caller is not allowed to list it."""
        try:
            return list_all(self._client, resource)
        except NotFound:
            return ()
        except Forbidden as error:
            self._not_checked(otherwise, error)
            return None

    def replaced_first(self) -> frozenset[tuple[str, str]]:
        """Return the ReplicaSets whose Deployments can start a new pod first."""
        otherwise = "Deployments were not checked"
        deployments = self.list_if_allowed(successors.DEPLOYMENTS, otherwise) or ()
        replica_sets = self.list_if_allowed(successors.REPLICA_SETS, otherwise) or ()
        uids = {each.metadata.uid for each in deployments if each.starts_successor_first}
        owners = ((each.metadata, controller_of(each.metadata)) for each in replica_sets)
        return frozenset(
            (meta.namespace, meta.name)
            for meta, owner in owners
            if owner is not None and owner.uid in uids
        )

    def dry_runs(self, pods: Sequence[kinds.PlanPod]) -> Mapping[str, EvictionResult]:
        """Return the refusals of dry-run evictions of these pods, by uid."""
        version = served_eviction(self._client)
        if not version:
            self.findings.append(
                PlanFinding(
                    severity=Severity.NOTE,
                    reason=FindingReason.NO_EVICTION_API,
                    message="the server has no eviction API; pods will be deleted despite budgets",
                    next_action="check that this is intended",
                )
            )
        if not pods or not version or not self._webhooks_decide():
            return {}
        answers = dry_run_evictions(self._client, pods, version)
        inconclusive = [a for a in answers.values() if not _is_conclusive(a.outcome)]
        inconclusive += [a for a in answers.values() if "does not support dry run" in a.message]
        if inconclusive:
            self.findings.append(
                _unknown(
                    f"the answer of webhooks to evictions is unknown: {inconclusive[0].message}"
                )
            )
        return answers

    def _webhooks_decide(self) -> bool:
        for kind in (kinds.VALIDATING_WEBHOOKS, kinds.MUTATING_WEBHOOKS):
            try:
                if any(each.matches_evictions for each in list_all(self._client, kind)):
                    return True
            except NotFound:
                continue
            except Forbidden:
                return True  # there may be a webhook
        return False

    def check_jobs(self, rollouts: Sequence[api.NodeRollout], state: ClusterState) -> None:
        """Create the first Job of each rollout with `action.job` in a dry run."""
        for rollout in rollouts:
            replacement = first_replacement(rollout, state)
            action = rollout.spec.action
            if replacement is None or action is None or action.job is None:
                continue
            body = job_manifest(replacement, action.job)
            try:
                self._client.resource(JOBS).create(
                    body, action.job.namespace, dry_run=True, timeout=_TIMEOUT
                )
            except Forbidden as error:
                self._not_checked(
                    f"the Jobs of rollout {rollout.metadata.name} were not checked", error
                )
            except AlreadyExists:
                continue  # the node has started, and its Job was accepted
            except (errors.BadRequest, errors.Invalid, NotFound) as error:
                self.findings.append(
                    PlanFinding(
                        severity=Severity.BLOCKS,
                        reason=FindingReason.JOB_REFUSED,
                        message=f"the API server refuses the Jobs of rollout "
                        f"{rollout.metadata.name}: {error}",
                        next_action="correct action.job",
                    )
                )

    def check_manager(self, now: datetime, *, replaces_first: bool) -> None:
        """Add findings if the shipped manager is not running or lacks permissions."""
        why = leader_problem(self._client, now)
        if why:
            self.findings.append(
                PlanFinding(
                    severity=Severity.DELAYS,
                    reason=FindingReason.MANAGER_NOT_RUNNING,
                    message=f"no active manager found: {why}",
                    next_action=f"check the Deployment {NAMESPACE}/{NAME}",
                )
            )
        try:
            self._client.resource(_ACCOUNTS).get(NAME, NAMESPACE, timeout=_TIMEOUT)
            missing = missing_permissions(_NEEDED, self._manager_may)
            of_users = successors.RBAC_OF_USERS if replaces_first else ()
            not_granted = missing_permissions(of_users, self._manager_may)
        except NotFound:
            return  # the manager runs elsewhere, with another account
        except Forbidden as error:
            self._not_checked("the permissions of the manager were not checked", error)
            return
        if missing:
            self.findings.append(
                PlanFinding(
                    severity=Severity.BLOCKS,
                    reason=FindingReason.FORBIDDEN,
                    message=f"the account {NAMESPACE}/{NAME} of the manager is not allowed to "
                    f"{', '.join(missing)}",
                    next_action="apply config/deploy again",
                )
            )
        if not_granted:
            self.findings.append(
                PlanFinding(
                    severity=Severity.DELAYS,
                    reason=FindingReason.FORBIDDEN,
                    message=f"the account {NAMESPACE}/{NAME} of the manager is not allowed to "
                    f"{', '.join(not_granted)}, which drain.replaceFirst needs",
                    next_action="grant it as docs/operations.md says",
                )
            )

    def _manager_may(self, rule: PolicyRule, verb: str) -> bool:
        attributes = {
            "group": rule.resource.group,
            "resource": rule.resource.plural,
            "subresource": rule.subresource,
            "verb": verb,
        }
        spec: dict[str, Any] = {
            "user": f"system:serviceaccount:{NAMESPACE}:{NAME}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{NAMESPACE}",
                "system:authenticated",
            ],
            "resourceAttributes": attributes,
        }
        review = {"metadata": {}, "spec": spec}
        reviews = self._client.resource(ACCESS_REVIEWS)
        return reviews.create(review, timeout=_TIMEOUT).status.allowed

    def _not_checked(self, otherwise: str, error: ClientError) -> None:
        self.findings.append(_unknown(f"{otherwise}: {error}"))


def _unknown(message: str) -> PlanFinding:
    return PlanFinding(
        severity=Severity.NOTE,
        reason=FindingReason.NOT_CHECKED,
        message=message,
        next_action="run the plan with an account that has the permission",
    )


def missing_permissions(
    rules: Iterable[PolicyRule], may: Callable[[PolicyRule, str], bool]
) -> list[str]:
    """Return the missing permissions as `verb resource`. Each is checked once."""
    asked = dict.fromkeys((rule.target, verb, rule) for rule in rules for verb in rule.verbs)
    return [f"{verb} {target}" for target, verb, rule in asked if not may(rule, verb)]


def dry_run_evictions(
    client: Client, pods: Iterable[kinds.PlanPod], version: str
) -> dict[str, EvictionResult]:
    """Evict pods in a dry run, and return the refusals by pod uid.

    No pod is evicted, and no budget is consumed.
    """
    refusals: dict[str, EvictionResult] = {}
    for pod in pods:
        meta = pod.metadata
        try:
            client.resource(kinds.PLAN_PODS).evict(
                meta.name,
                meta.namespace,
                uid=meta.uid,
                dry_run=True,
                policy_version=version,
                timeout=_TIMEOUT,
            )
        except ClientError as error:
            refusals[meta.uid] = eviction_result(error)
    return refusals


def _is_conclusive(outcome: EvictionOutcome) -> bool:
    """Return whether the outcome of a dry run says something about the pod."""
    match outcome:
        case EvictionOutcome.FORBIDDEN | EvictionOutcome.RETRY | EvictionOutcome.WEBHOOK_FAILED:
            return False
        case (
            EvictionOutcome.EVICTED
            | EvictionOutcome.DELETED
            | EvictionOutcome.GONE
            | EvictionOutcome.BLOCKED_BY_BUDGET
            | EvictionOutcome.MULTIPLE_BUDGETS
            | EvictionOutcome.IN_PROGRESS
            | EvictionOutcome.NAMESPACE_TERMINATING
            | EvictionOutcome.WEBHOOK_DENIED
            | EvictionOutcome.REFUSED
        ):
            return True
        case _:
            assert_never(outcome)
