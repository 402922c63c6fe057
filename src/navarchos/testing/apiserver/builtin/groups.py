"""Strategies of groups with few kinds: policy, coordination, events, storage, scheduling.

Events are stored as core/v1 and served by two groups. Only events.k8s.io validates them strictly
(`pkg/apis/core/validation/events.go`).
"""

import re
from dataclasses import replace
from typing import Final

from navarchos.testing.apiserver import kinds, names, objects
from navarchos.testing.apiserver import status as statuses

__all__ = [
    "BUDGET",
    "EVENT",
    "EVENTS_CONVERSION",
    "EVENTS_V1_EVENT",
    "LEASE",
    "PRIORITY_CLASS",
    "STORAGE_CLASS",
]

_POLICIES: Final = ("IfHealthyBudget", "AlwaysAllow")
_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or"
    " '93%', regex used for validation is '[0-9]+%')"
)
_RENAMED: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_LIMITS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_FIXED: Final = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count",
    "reason", "type", "eventTime", "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip
"""In upstream's order; upstream compares the reason twice."""
_NAMED: Final = {"reportingComponent": "reportingController"}
_TO_NEW: Final = dict(_RENAMED)
_TO_CORE: Final = {new: old for old, new in _RENAMED}


def _default_budget(budget: objects.JsonObject) -> None:
    budget.setdefault("spec", {})
    status = budget.setdefault("status", {})
    for counter in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        status.setdefault(counter, 0)


def _validate_budget(budget: objects.JsonObject) -> list[statuses.FieldError]:
    spec = budget["spec"]
    errors = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = {k: spec[k] for k in ("minAvailable", "maxUnavailable")}
        text = "minAvailable and maxUnavailable cannot be both set"
        errors.append(statuses.invalid_value("spec", shown, text))
    for field in ("minAvailable", "maxUnavailable"):
        errors += _amount_errors(f"spec.{field}", spec.get(field))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        errors.append(
            statuses.unsupported_value("spec.unhealthyPodEvictionPolicy", policy, sorted(_POLICIES))
        )
    return errors


def _amount_errors(field: str, value: objects.JsonValue) -> list[statuses.FieldError]:
    if isinstance(value, int) and value < 0:
        return [statuses.invalid_value(field, value, "must be greater than or equal to 0")]
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        return [statuses.invalid_value(field, value, _PERCENT_TEXT)]
    if isinstance(value, str) and int(value[:-1]) > 100:
        return [statuses.invalid_value(field, value, "must not be greater than 100%")]
    return []


BUDGET: Final = kinds.KindStrategy(
    generation=True, unconditional_update=False, default=_default_budget, validate=_validate_budget
)


def _default_lease(lease: objects.JsonObject) -> None:
    lease.setdefault("spec", {})


def _validate_lease(lease: objects.JsonObject) -> list[statuses.FieldError]:
    spec = lease["spec"]
    errors = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        errors.append(
            statuses.invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
        )
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        text = "must be greater than or equal to 0"
        errors.append(statuses.invalid_value("spec.leaseTransitions", transitions, text))
    return errors


LEASE: Final = kinds.KindStrategy(
    unconditional_update=False,
    create_on_update=True,
    default=_default_lease,
    validate=_validate_lease,
)


def _decode(event: objects.JsonObject) -> objects.JsonObject:
    return {_TO_CORE.get(key, key): value for key, value in event.items()}


def _encode(event: objects.JsonObject) -> objects.JsonObject:
    renamed = {_TO_NEW.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def _default_event(event: objects.JsonObject) -> None:
    event.setdefault("involvedObject", {})
    event.setdefault("source", {})
    for field in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(field, None)
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def _validate_event(event: objects.JsonObject) -> list[statuses.FieldError]:
    """Check an event of either group; one with an `eventTime` must meet more rules."""
    errors = []
    involved = objects.dig(event, "involvedObject", "namespace", default="")
    namespace = objects.meta(event).get("namespace")
    dated = event.get("eventTime") is not None
    fits = involved == namespace or dated
    if not involved:
        fits = namespace == "default" or (dated and namespace == "kube-system")
    if not fits:
        why = "does not match event.namespace"
        errors.append(statuses.invalid_value("involvedObject.namespace", involved, why))
    return errors + (_reporting_errors(event) if dated else [])


def _reporting_errors(event: objects.JsonObject) -> list[statuses.FieldError]:
    errors = []
    controller = event.get("reportingComponent") or ""
    if not controller:
        errors.append(statuses.required("reportingComponent"))
    errors += [
        statuses.invalid_value("reportingComponent", controller, why)
        for why in names.validate_qualified_name(controller)
    ]
    for field, limit in _LIMITS.items():
        given = event.get(field) or ""
        if not given and field != "message":
            errors.append(statuses.required(field))
        if len(given.encode()) > limit:
            errors.append(statuses.invalid_value(field, "", f"can have at most {limit} characters"))
    return errors


def _validate_new(event: objects.JsonObject) -> list[statuses.FieldError]:
    """Check a new event of events.k8s.io."""
    errors = _series_errors(event)
    if event.get("eventTime") is None:
        errors.append(statuses.required("eventTime"))
    kind = event.get("type") or ""
    if kind not in {"Normal", "Warning"}:
        errors.append(statuses.invalid_value("type", "", f"has invalid value: {kind}"))
    return errors + [
        statuses.invalid_value(field, "", "needs to be unset")
        for field in ("firstTimestamp", "lastTimestamp", "count", "source")
        if event.get(field)
    ]


def _validate_change(new: objects.JsonObject, old: objects.JsonObject) -> list[statuses.FieldError]:
    """Check a change through events.k8s.io: only metadata and the series may change."""
    errors = [] if new.get("series") == old.get("series") else _series_errors(new)
    return errors + [
        statuses.invalid_value(_NAMED.get(field, field), new.get(field), "field is immutable")
        for field in _FIXED
        if (new.get(field) or None) != (old.get(field) or None)
    ]


def _series_errors(event: objects.JsonObject) -> list[statuses.FieldError]:
    series, errors = event.get("series"), []
    if series is not None:
        if int(series.get("count") or 0) < 2:
            errors.append(statuses.invalid_value("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            errors.append(statuses.required("series.lastObservedTime"))
    return errors


EVENT: Final = kinds.KindStrategy(
    create_on_update=True, default=_default_event, validate=_validate_event
)
EVENTS_V1_EVENT: Final = replace(
    EVENT, validate_create=_validate_new, validate_update=_validate_change
)
EVENTS_CONVERSION: Final = kinds.Conversion(decode=_decode, encode=_encode)


def _default_class(obj: objects.JsonObject) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


STORAGE_CLASS: Final = kinds.KindStrategy(returns_deleted=True, default=_default_class)
PRIORITY_CLASS: Final = kinds.KindStrategy(
    generation=True,
    default=lambda obj: obj.setdefault("preemptionPolicy", "PreemptLowerPriority"),
)
