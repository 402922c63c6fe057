"""Asks the server for what a plan needs. Reads, and rehearsals that change nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

from navarchos.client import Client, Forbidden, NotFound, Resource
from navarchos.client.errors import ClientError
from navarchos.client.rbac import ACCESS_REVIEWS, PolicyRule
from navarchos.drain import BUDGETS, DAEMON_SETS, EvictionResult, eviction_result
from navarchos.drain.eviction import RBAC as EVICTING
from navarchos.drain.eviction import EvictionOutcome, served_eviction
from navarchos.meta import Object
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeRollout,
)
from navarchos.operator.deployment.settings import NAME, NAMESPACE
from navarchos.operator.drains.gate import RBAC as CORDONING
from navarchos.operator.drains.survey import RBAC as LOOKING
from navarchos.operator.leadership import leader_problem
from navarchos.operator.preflight.findings import FindingReason, PlanFinding, Severity
from navarchos.operator.preflight.kinds import (
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PERSISTENT_VOLUMES,
    PLAN_NODES,
    PLAN_PODS,
    VALIDATING_WEBHOOKS,
    VOLUME_CLAIMS,
    PlanPod,
)
from navarchos.operator.preflight.prediction import ClusterState, dry_run_candidates
from navarchos.runtime import list_all

__all__ = ["MAX_DRY_RUNS", "collect", "dry_run_evictions", "missing_permissions"]

T = TypeVar("T", bound=Object)

MAX_DRY_RUNS: Final = 64
"""Evictions that one plan rehearses, at most: one of each workload is enough."""

_TIMEOUT: Final = 10.0

_UNKNOWN: Final = frozenset(
    {EvictionOutcome.FORBIDDEN, EvictionOutcome.RETRY, EvictionOutcome.WEBHOOK_FAILED}
)
"""Answers to a rehearsal that say nothing about the pod."""

_NEEDED: Final = (*EVICTING, *CORDONING, *LOOKING)
"""What the manager cannot drain without."""


_ACCOUNTS: Final = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, type=Object
)


def collect(client: Client, rollouts: Sequence[NodeRollout], now: datetime) -> ClusterState:
    """Return the cluster as it stands, as far as rollouts are concerned.

    One list of each kind, in pages, and never more than `MAX_DRY_RUNS` evictions in
    a dry run: only where a webhook judges evictions. What the caller may not read is
    left out, and a finding says so; without nodes, pods, budgets, DaemonSets,
    namespaces and the operator's own kinds there is no plan.

    Raises:
        ClientError: The server refused something that there is no plan without, or
            did not answer.
    """
    asked = _Collector(client)
    claims = asked.may_list(VOLUME_CLAIMS, "volumes are not looked at")
    volumes = asked.may_list(PERSISTENT_VOLUMES, "volumes are not looked at")
    state = ClusterState(
        nodes=list_all(client, PLAN_NODES),
        pods=list_all(client, PLAN_PODS),
        budgets=list_all(client, BUDGETS),
        daemon_sets=frozenset(
            (each.metadata.namespace, each.metadata.name) for each in list_all(client, DAEMON_SETS)
        ),
        terminating=frozenset(
            each.metadata.name
            for each in list_all(client, NAMESPACES)
            if each.metadata.deletion_timestamp is not None
        ),
        rollouts=list_all(client, NODE_ROLLOUTS),
        replacements=list_all(client, NODE_REPLACEMENTS),
        drains=list_all(client, NODE_DRAINS),
        claims=None
        if claims is None
        else {(each.metadata.namespace, each.metadata.name): each for each in claims},
        volumes=None if volumes is None else {each.metadata.name: each for each in volumes},
    )
    answers = asked.dry_runs(dry_run_candidates(rollouts, state, now, limit=MAX_DRY_RUNS))
    asked.about_the_manager(now)
    return replace(state, answers=answers, general=tuple(asked.findings))


class _Collector:
    """Questions that may stay without an answer; `findings` says which did."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.findings: list[PlanFinding] = []

    def may_list(self, resource: Resource[T], otherwise: str) -> Sequence[T] | None:
        """Return all objects of a kind; `None` if the caller may not know."""
        try:
            return list_all(self._client, resource)
        except NotFound:
            return ()
        except Forbidden as error:
            self._not_checked(otherwise, error)
            return None

    def dry_runs(self, pods: Sequence[PlanPod]) -> Mapping[str, EvictionResult]:
        """Return what the server says to evictions of these pods, by uid."""
        version = served_eviction(self._client)
        if not version:
            self.findings.append(
                PlanFinding(
                    severity=Severity.NOTE,
                    reason=FindingReason.NO_EVICTION_API,
                    message="the server has no evictions: pods are deleted, past their budgets",
                    next_action="make sure that this is meant",
                )
            )
        if not pods or not version or not self._webhooks_judge():
            return {}
        answers = dry_run_evictions(self._client, pods, version)
        open_ = [a for a in answers.values() if a.outcome in _UNKNOWN]
        open_ += [a for a in answers.values() if "does not support dry run" in a.message]
        if open_:
            self.findings.append(
                _unknown(f"what webhooks say to evictions is not known: {open_[0].message}")
            )
        return answers

    def _webhooks_judge(self) -> bool:
        for kind in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            try:
                if any(each.judges_evictions for each in list_all(self._client, kind)):
                    return True
            except NotFound:
                continue
            except Forbidden:
                return True  # there may be one
        return False

    def about_the_manager(self, now: datetime) -> None:
        """Note what keeps the shipped manager from doing its work."""
        why = leader_problem(self._client, now)
        if why:
            self.findings.append(
                PlanFinding(
                    severity=Severity.DELAYS,
                    reason=FindingReason.MANAGER_NOT_RUNNING,
                    message=f"no manager seems to be at work: {why}",
                    next_action=f"see the Deployment {NAMESPACE}/{NAME}",
                )
            )
        try:
            self._client.resource(_ACCOUNTS).get(NAME, NAMESPACE, timeout=_TIMEOUT)
            missing = missing_permissions(_NEEDED, self._manager_may)
        except NotFound:
            return  # it runs somewhere else, as somebody else
        except Forbidden as error:
            self._not_checked("the manager's rights are not looked at", error)
            return
        if missing:
            self.findings.append(
                PlanFinding(
                    severity=Severity.BLOCKS,
                    reason=FindingReason.FORBIDDEN,
                    message=f"the manager's account {NAMESPACE}/{NAME} may not "
                    f"{', '.join(missing)}",
                    next_action="apply config/deploy again",
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
        next_action="plan with an account that may",
    )


def missing_permissions(
    rules: Iterable[PolicyRule], may: Callable[[PolicyRule, str], bool]
) -> list[str]:
    """Return the rights that are missing, as `verb resource`, each asked for once."""
    asked = dict.fromkeys((rule.target, verb, rule) for rule in rules for verb in rule.verbs)
    return [f"{verb} {target}" for target, verb, rule in asked if not may(rule, verb)]


def dry_run_evictions(
    client: Client, pods: Iterable[PlanPod], version: str
) -> dict[str, EvictionResult]:
    """Ask the server to evict pods in a dry run, and return its refusals by pod uid.

    Nothing is evicted, and no budget is used up.
    """
    refusals: dict[str, EvictionResult] = {}
    for pod in pods:
        meta = pod.metadata
        try:
            client.resource(PLAN_PODS).evict(
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
