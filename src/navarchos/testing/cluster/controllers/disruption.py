"""The disruption controller: computes the budget status that the eviction API uses.

The rules are upstream's (`navarchos.testing.cluster.budgets`). Two additions make them
hold also when pods are deleted and created within milliseconds:

- Upstream's `disruptedPods` is keyed by pod name, and an entry is dropped when the pod is
  observed as terminating. A pod of a StatefulSet may exist again before that write, so
  the controller remembers entries whose pod was observed as terminating until they are
  dropped.
- An entry is dropped after a timeout only if the cache of pods is as new as the server,
  because a pod that the cache still contains may already be deleted.
"""

import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from navarchos.client import Conflict, ignore_not_found
from navarchos.client.selectors import Selector
from navarchos.errors import NavarchosError
from navarchos.events import EventType
from navarchos.meta import controller_of, format_time
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster import kinds, options
from navarchos.testing.cluster.budgets import (
    DELETION_TIMEOUT,
    disrupted_pods,
    healthy_pods,
    is_urgent,
    required_health,
    status_of,
)
from navarchos.testing.cluster.context import (
    BY_LABEL,
    BY_OWNER,
    STATUS_DELAY,
    Debouncer,
    SimulatorContext,
    label_key,
    labels_of_pod,
    status_patch,
    terminating,
)

__all__ = ["Disruption", "NoScale", "Scales", "install"]


class NoScale(NavarchosError):
    """The desired replicas of a pod's controller are not known.

    Attributes:
        kind: The controller's kind.
        name: The controller, as `namespace/name`.
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        return f"the replicas of {self.kind} {self.name} are not known"


class _Scale(NamedTuple):
    uid: str
    replicas: int


class Scales:
    """Finds the desired replicas of pods' controllers (upstream's scale finders)."""

    def __init__(self, context: SimulatorContext) -> None:
        self._context = context

    def of(self, pods: Iterable[kinds.Pod]) -> int:
        """Return the sum of the desired replicas of the controllers of `pods`.

        Pods without a controller are not counted, as in upstream.

        Raises:
            NoScale: The replicas of one controller are not known.
        """
        owners = {
            (pod.metadata.namespace, pod.owner.kind, pod.owner.name)
            for pod in pods
            if pod.owner is not None
        }
        # By uid: a Deployment with two ReplicaSets counts once.
        scales = dict(self._find(*owner) for owner in owners)
        return sum(scales.values())

    def _find(self, namespace: str, kind: str, name: str) -> _Scale:
        match kind:
            case "StatefulSet":
                found = self._context.stateful_sets.lister.find(name, namespace)
                if found is not None:
                    return _Scale(found.metadata.uid, found.spec.replicas)
            case "Deployment":
                deployment = self._context.deployments.lister.find(name, namespace)
                if deployment is not None:
                    return _Scale(deployment.metadata.uid, deployment.spec.replicas)
            case "ReplicaSet":
                replica_set = self._context.replica_sets.lister.find(name, namespace)
                if replica_set is not None:
                    parent = controller_of(replica_set.metadata)
                    if parent is not None and parent.kind == "Deployment":
                        return self._find(namespace, parent.kind, parent.name)
                    return _Scale(replica_set.metadata.uid, replica_set.spec.replicas)
            case _:
                pass
        raise NoScale(kind, f"{namespace}/{name}")


_SEVERAL: Final = "MultiplePodDisruptionBudgets"

_MIN_TIMEOUT: Final = 3.0
"""Real seconds: disruption times are whole seconds, and a deletion may take a moment."""

_CATCH_UP_TIMEOUT: Final = 5.0


class Disruption(Reconciler):
    """Computes budgets; writes a status immediately if it changes the eviction decision."""

    def __init__(self, context: SimulatorContext) -> None:
        self._context = context
        self._budgets = context.writer(options.Agent.CONTROLLERS, kinds.DISRUPTION_BUDGETS)
        self._debouncer = Debouncer(STATUS_DELAY, context.clock)
        self._timeout = max(_MIN_TIMEOUT, context.durations.scaled(DELETION_TIMEOUT))
        self._confirmed = _Confirmed()
        self._scales = Scales(context)

    def reconcile(self, request: Request) -> Result:
        """Recompute one budget."""
        found = self._context.budgets.lister.find(request.name, request.namespace)
        if found is None or terminating(found):
            self._debouncer.clear(request)
            self._confirmed.forget(request)
            return DONE
        pods = self._pods_of(found)
        recorded = self._confirmed.unconfirmed(request, found, pods)
        if self._gives_up(recorded):
            if not self._context.pods.catch_up(_CATCH_UP_TIMEOUT, self._context.stop):
                return Result(requeue_after=_CATCH_UP_TIMEOUT)
            pods = self._pods_of(found)
            recorded = self._confirmed.unconfirmed(request, found, pods)
        status = self._compute(found, pods, recorded)
        return self._write(request, found, status)

    def requests_for(self, pod: kinds.Pod) -> Iterable[Request]:
        """Map a pod to its budget, and warn about a pod with several budgets.

        Upstream updates only one of the budgets, in no defined order, and the numbers of
        the others become outdated; the eviction API refuses such pods in any case. This
        controller updates the first budget by name.
        """
        found = self._budgets_of(pod)
        if len(found) > 1:
            metadata = pod.metadata
            message = (
                f'Pod "{metadata.namespace}"/"{metadata.name}" matches multiple'
                f' PodDisruptionBudgets.  Chose "{found[0].metadata.name}" arbitrarily.'
            )
            self._context.manager.recorder.record(
                kinds.PODS, pod, EventType.WARNING, _SEVERAL, message, action="Reconcile"
            )
        return _requests(found[:1])

    def requests_beside(
        self, owner: kinds.Deployment | kinds.ReplicaSet | kinds.StatefulSet
    ) -> Iterable[Request]:
        """Map a workload, whose scale may have changed, to the budgets of its pods.

        The budgets are found through the workload's pods, because a namespace may have a
        thousand budgets.
        """
        uid = owner.metadata.uid
        below = self._context.replica_sets.lister.by_index(BY_OWNER, uid)
        found: set[Request] = set()
        for each in (uid, *(replica_set.metadata.uid for replica_set in below)):
            for pod in self._context.pods_of(each):
                found.update(_requests(self._budgets_of(pod)[:1]))
        return found

    def _budgets_of(self, pod: kinds.Pod) -> list[kinds.Budget]:
        """Return the matching budgets of a pod, sorted by name."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        lister = self._context.budgets.lister
        candidates = (
            budget
            for key in (namespace, *labels_of_pod(pod))
            for budget in lister.by_index(BY_LABEL, key)
        )
        matching = [budget for budget in candidates if _selector(budget).matches(labels)]
        return sorted(matching, key=lambda budget: budget.metadata.name)

    def _pods_of(self, budget: kinds.Budget) -> list[kinds.Pod]:
        """Return the matching pods, found by one of the selector's labels."""
        spec, namespace = budget.spec.selector, budget.metadata.namespace
        lister = self._context.pods.lister
        if spec is None:
            return []
        if not spec.match_labels:
            return lister.list(selector=_selector(budget), namespace=namespace)
        key, value = next(iter(spec.match_labels.items()))
        candidates = lister.by_index(BY_LABEL, label_key(namespace, key, value))
        selector = _selector(budget)
        return [pod for pod in candidates if selector.matches(pod.metadata.labels)]

    def _gives_up(self, recorded: Mapping[str, datetime]) -> bool:
        oldest = self._context.clock.now() - timedelta(seconds=self._timeout)
        return any(at <= oldest for at in recorded.values())

    def _compute(
        self, found: kinds.Budget, pods: list[kinds.Pod], recorded: Mapping[str, datetime]
    ) -> kinds.BudgetStatus:
        disrupted = disrupted_pods(pods, recorded, self._context.clock.now(), timeout=self._timeout)
        try:
            health = required_health(
                min_available=found.spec.min_available,
                max_unavailable=found.spec.max_unavailable,
                pods=len(pods),
                scale=lambda: self._scales.of(pods),
            )
        except NoScale:
            # Upstream's failSafe: no disruption is allowed until the replicas are known.
            return msgspec.structs.replace(found.status, disruptions_allowed=0)
        return status_of(
            health, healthy_pods(pods, disrupted), disrupted, found.metadata.generation
        )

    def _write(self, request: Request, found: kinds.Budget, status: kinds.BudgetStatus) -> Result:
        if status == found.status:
            self._debouncer.clear(request)
            return self._again(status)
        if not is_urgent(found.status, status) and (left := self._debouncer.due_in(request)):
            return Result(requeue_after=left)
        self._debouncer.clear(request)
        try:
            with ignore_not_found():
                self._patch(request, found, status)
        except Conflict:
            # An eviction has changed the status meanwhile: reconcile again soon.
            return Result(requeue_after=0.05)
        return self._again(status)

    def _patch(self, request: Request, found: kinds.Budget, status: kinds.BudgetStatus) -> None:
        gone = found.status.disrupted_pods.keys() - status.disrupted_pods.keys()
        # A merge patch removes the entries of a map by null.
        entries = {name: format_time(at) for name, at in status.disrupted_pods.items()}
        body = status_patch(
            status,
            disruptedPods={**entries, **dict.fromkeys(gone)},
            conditions=[_condition(status, self._context.clock.now())],
        )
        written = self._budgets.patch(
            request.name,
            body,
            request.namespace,
            subresource="status",
            resource_version=found.metadata.resource_version,
        )
        self._context.budgets.observe_write(written)

    def _again(self, status: kinds.BudgetStatus) -> Result:
        """Return the result that requeues the budget when a granted eviction expires."""
        return Result(requeue_after=self._timeout) if status.disrupted_pods else DONE


class _Termination(NamedTuple):
    version: str
    names: frozenset[str]


class _Confirmed:
    """Granted evictions whose pods were observed as terminating, until their entry is dropped.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._seen_lock = threading.Lock()
        self._seen: dict[Request, _Termination] = {}  # guarded by _seen_lock

    def unconfirmed(
        self, request: Request, budget: kinds.Budget, pods: Iterable[kinds.Pod]
    ) -> dict[str, datetime]:
        """Return the entries whose pods were not observed as terminating or deleted.

        An observation is valid for one resourceVersion of the budget: a later version may
        contain another eviction of a pod with the same name.
        """
        recorded = budget.status.disrupted_pods
        version = budget.metadata.resource_version
        alive = {pod.metadata.name for pod in pods if not pod.is_terminating}
        with self._seen_lock:
            before = self._seen.get(request)
            still = before.names if before is not None and before.version == version else ()
            seen = {name for name in recorded if name not in alive or name in still}
            self._seen[request] = _Termination(version, frozenset(seen))
        return {name: at for name, at in recorded.items() if name not in seen}

    def forget(self, budget: Request) -> None:
        """Drop the observations of a deleted budget."""
        with self._seen_lock:
            self._seen.pop(budget, None)


def _requests(budgets: Iterable[kinds.Budget]) -> list[Request]:
    return [Request(each.metadata.namespace, each.metadata.name) for each in budgets]


def _selector(budget: kinds.Budget) -> Selector:
    spec = budget.spec.selector
    return Selector.nothing() if spec is None else Selector.from_spec(spec)


def _condition(status: kinds.BudgetStatus, now: datetime) -> dict[str, object]:
    enough = status.disruptions_allowed > 0
    return {
        "type": "DisruptionAllowed",
        "status": "True" if enough else "False",
        "reason": "SufficientPods" if enough else "InsufficientPods",
        "message": "",
        "observedGeneration": status.observed_generation,
        "lastTransitionTime": format_time(now),
    }


def install(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    reconciler = Disruption(context)
    (
        Builder(
            context.manager,
            "disruption",
            options=context.manager.options.controllers_with(workers=2),
        )
        .for_(kinds.DISRUPTION_BUDGETS)
        .watches(kinds.PODS, map=reconciler.requests_for)
        .watches(kinds.DEPLOYMENTS, map=reconciler.requests_beside)
        .watches(kinds.REPLICA_SETS, map=reconciler.requests_beside)
        .watches(kinds.STATEFUL_SETS, map=reconciler.requests_beside)
        .build(reconciler)
    )
