"""The eviction subresource, for bodies of policy/v1 and policy/v1beta1.

The decisions, their order and their texts follow the pod registry's eviction handler in
Kubernetes 1.36.
"""

from dataclasses import replace
from typing import Final

from navarchos.testing.apiserver import bodies, kinds, objects, requests, selectors, store, writes
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.builtin.pods import is_pod_ready
from navarchos.testing.apiserver.deletion import (
    DeleteOptions,
    check_preconditions,
    delete,
    parse_delete_options,
)
from navarchos.testing.apiserver.ownership.field_manager import update_managed_fields
from navarchos.testing.apiserver.types import TYPES

__all__ = ["evict", "spend_budget"]

_BUDGETS: Final = store.BucketId("poddisruptionbudgets", "policy")
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_FIELD_MANAGER: Final = "kube-apiserver"  # upstream writes budgets as a separate client
_MAX_DISRUPTED: Final = 2000
_RETRY_AFTER: Final = 10
_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    " support."
)
_SUCCESS: Final[objects.JsonObject] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


def _kind(version: str) -> kinds.Kind:
    """Return the kind with which the body of an eviction is decoded; it is never stored."""
    return kinds.Kind(
        group="policy",
        version=version,
        kind="Eviction",
        plural="evictions",
        singular="eviction",
        namespaced=True,
        schema=TYPES.schema("policy.Eviction"),
        bucket=store.BucketId("evictions", "policy"),
    )


_EVICTION: Final = _kind("v1")
_EVICTION_V1BETA1: Final = _kind("v1beta1")


def evict(
    api: writes.Api, target: requests.Target, body: objects.JsonValue, options: writes.WriteOptions
) -> objects.JsonObject:
    """Delete a pod if its disruption budget allows it; return the `Status` of success.

    Raises:
        StatusError: 400, 403, 404, 409, 429 or 500; the pod stays.
    """
    deletion = _read(target, body, options)
    with api.store.transaction():
        writes.require_active_namespace(api, target.kind, target.namespace, target.name)
        pod = writes.require(api, target)
        if not _needs_no_budget(pod.obj):
            _use_budget(api, pod, deletion, options)
        if not deletion.dry_run:
            check_preconditions(target.kind, pod, deletion)
            _mark_disrupted(api, target.kind, pod, options)
            # The version was checked above; marking the pod has changed it.
            deletion = replace(deletion, version="")
        delete(api, target, deletion, options)
        return _SUCCESS


def spend_budget(
    api: writes.Api, target: requests.Target, body: objects.JsonValue, options: writes.WriteOptions
) -> None:
    """Use a pod's disruption budget as an eviction does, and do not delete the pod.

    Raises:
        StatusError: As `evict`.
    """
    deletion = _read(target, body, options)
    with api.store.transaction():
        pod = writes.require(api, target)
        if not _needs_no_budget(pod.obj):
            _use_budget(api, pod, deletion, options)


def _use_budget(
    api: writes.Api, pod: store.Entry, deletion: DeleteOptions, options: writes.WriteOptions
) -> None:
    """Use the pod's budget, if it has one; the preconditions are checked later, as upstream."""
    budgets = _budgets_of(api, pod)
    if len(budgets) > 1:
        raise statuses.StatusError(500, "", _SEVERAL)
    spent = _usable_budget(budgets, pod.obj)
    if spent is not None and not deletion.dry_run:
        _decrement(api, spent, pod.name, options)


def _usable_budget(budgets: list[store.Entry], pod: objects.JsonObject) -> store.Entry | None:
    """Return the budget that the eviction uses; `None` if it needs none."""
    if not budgets or _may_skip_budget(budgets[0].obj, pod):
        return None
    _check_budget(budgets[0])
    return budgets[0]


def _read(
    target: requests.Target, body: objects.JsonValue, options: writes.WriteOptions
) -> DeleteOptions:
    said = body.get("apiVersion") if isinstance(body, dict) else None
    older = said == f"policy/{_EVICTION_V1BETA1.version}"
    eviction = bodies.read_object(_EVICTION_V1BETA1 if older else _EVICTION, body, options)
    if objects.meta(eviction).get("namespace", target.namespace) != target.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if objects.meta(eviction).get("name") != target.name:
        raise statuses.bad_request("name in URL does not match name in Eviction object")
    given: objects.JsonObject = eviction.get("deleteOptions") or {}
    wanted = list(given.get("dryRun") or [])
    if wanted and options.dry_run and wanted != ["All"]:
        listed = " ".join(wanted)
        text = f"Non-matching dry-run options in request and content: [All] and [{listed}]"
        raise statuses.StatusError(500, "", text)
    return replace(parse_delete_options(given), dry_run=bool(wanted) or options.dry_run)


def _needs_no_budget(pod: objects.JsonObject) -> bool:
    phase = objects.dig(pod, "status", "phase")
    return (
        phase in _FINISHED or phase == "Pending" or bool(objects.meta(pod).get("deletionTimestamp"))
    )


def _budgets_of(api: writes.Api, pod: store.Entry) -> list[store.Entry]:
    labels = objects.meta(pod.obj).get("labels") or {}
    return [
        budget
        for budget in api.store.entries(_BUDGETS, pod.namespace)
        if _selects(budget.obj, labels)
    ]


def _selects(budget: objects.JsonObject, labels: objects.JsonObject) -> bool:
    try:
        return selectors.label_selector_matches(objects.dig(budget, "spec", "selector"), labels)
    except ValueError:
        return False  # an invalid selector selects no pods


def _may_skip_budget(budget: objects.JsonObject, pod: objects.JsonObject) -> bool:
    """Return whether an unready pod may be evicted without using the budget."""
    if is_pod_ready(pod):
        return False
    if objects.dig(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = int(status.get("desiredHealthy") or 0)
    return 0 < desired <= int(status.get("currentHealthy") or 0)


def _check_budget(budget: store.Entry) -> None:
    status = budget.obj.get("status") or {}
    resource = statuses.ResourceName("policy", "poddisruptionbudget")
    if int(status.get("observedGeneration") or 0) < int(
        objects.meta(budget.obj).get("generation") or 0
    ):
        text = f"The disruption budget {budget.name} is still being processed by the server."
        cause = statuses.Cause("DisruptionBudget", text)
        raise statuses.too_many_requests(_REFUSED, _RETRY_AFTER, causes=[cause])
    allowed = int(status.get("disruptionsAllowed") or 0)
    if allowed < 0:
        raise statuses.forbidden(resource, budget.name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise statuses.forbidden(resource, budget.name, why)
    if not allowed:
        text = f"The disruption budget {budget.name} {_denial_text(status)}"
        raise statuses.too_many_requests(
            _REFUSED, causes=[statuses.Cause("DisruptionBudget", text)]
        )


def _denial_text(status: objects.JsonObject) -> str:
    """Return why a budget allows no eviction: its counts, or an error that makes them invalid."""
    denial = next((c for c in status.get("conditions") or [] if _denies(c)), None)
    if denial is not None and denial["reason"] == "SyncFailed":
        failure = f"because it failed sync: {denial['message']}"
        return f"does not allow evicting pods currently {failure}"
    desired, current = (
        int(status.get(field) or 0) for field in ("desiredHealthy", "currentHealthy")
    )
    if current <= desired:
        return f"needs {desired} healthy pods and has {current} currently"
    if denial is not None:
        reason = f"({denial['reason']}): {denial['message']}"
        return f"does not allow evicting pods currently {reason}"
    return "does not allow evicting pods currently"


def _denies(condition: objects.JsonObject) -> bool:
    asked = (condition["type"], condition["status"]) == ("DisruptionAllowed", "False")
    return asked and bool(condition.get("message"))


def _decrement(
    api: writes.Api, budget: store.Entry, pod: str, options: writes.WriteOptions
) -> None:
    obj: objects.JsonObject = objects.copy_json(budget.obj)
    status = obj["status"]
    allowed = int(status["disruptionsAllowed"]) - 1
    status["disruptionsAllowed"] = allowed
    status["disruptedPods"] = {
        **(status.get("disruptedPods") or {}),
        pod: objects.timestamp(api.store.clock.now()),
    }
    if not allowed:
        _set_condition(
            status,
            {
                "type": "DisruptionAllowed",
                "status": "False",
                "observedGeneration": status.get("observedGeneration") or 0,
                "lastTransitionTime": objects.timestamp(api.store.clock.now()),
                "reason": "InsufficientPods",
                "message": "",
            },
        )
    kind = api.kinds.by_bucket(_BUDGETS)
    assert kind is not None, "it is built in"
    own = writes.WriteOptions(manager=_FIELD_MANAGER)
    update_managed_fields(api.kinds, kind, obj, budget.obj, own, "status")
    api.store.put(_BUDGETS, obj, origin=options.origin)


def _mark_disrupted(
    api: writes.Api, kind: kinds.Kind, pod: store.Entry, options: writes.WriteOptions
) -> None:
    obj: objects.JsonObject = objects.copy_json(pod.obj)
    _set_condition(
        obj.setdefault("status", {}),
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": objects.timestamp(api.store.clock.now()),
        },
    )
    if obj != pod.obj:
        api.store.put(kind.bucket, obj, origin=options.origin)


def _set_condition(status: objects.JsonObject, condition: objects.JsonObject) -> None:
    """Replace the condition of the same type; keep its time if the status does not change."""
    conditions = status.setdefault("conditions", [])
    for index, known in enumerate(conditions):
        if known["type"] == condition["type"]:
            if known["status"] == condition["status"]:
                condition["lastTransitionTime"] = known["lastTransitionTime"]
            conditions[index] = condition
            return
    conditions.append(condition)
