"""Events: stored as core/v1, served by both groups.

Only the newer one is strict (`pkg/apis/core/validation/events.go`).
"""

from dataclasses import replace
from typing import Final

from navarchos.testing.apiserver.kinds import Strategy, View
from navarchos.testing.apiserver.names import validate_qualified_name
from navarchos.testing.apiserver.objects import JsonObject, dig, meta
from navarchos.testing.apiserver.status import FieldError, invalid_value, required

__all__ = ["EVENT", "EVENTS_VIEW", "NEW_EVENT"]

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
"""In upstream's order; it compares the reason twice."""
_NAMED: Final = {"reportingComponent": "reportingController"}
_TO_NEW: Final = dict(_RENAMED)
_TO_CORE: Final = {new: old for old, new in _RENAMED}


def _decode(event: JsonObject) -> JsonObject:
    return {_TO_CORE.get(key, key): value for key, value in event.items()}


def _encode(event: JsonObject) -> JsonObject:
    renamed = {_TO_NEW.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def _default(event: JsonObject) -> None:
    event.setdefault("involvedObject", {})
    event.setdefault("source", {})
    for field in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(field, None)
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def _validate(event: JsonObject) -> list[FieldError]:
    """Check what upstream does for both groups; an `eventTime` obliges to more."""
    errors = []
    involved = dig(event, "involvedObject", "namespace", default="")
    namespace = meta(event).get("namespace")
    dated = event.get("eventTime") is not None
    fits = involved == namespace or dated
    if not involved:
        fits = namespace == "default" or (dated and namespace == "kube-system")
    if not fits:
        why = "does not match event.namespace"
        errors.append(invalid_value("involvedObject.namespace", involved, why))
    return errors + (_reporting_errors(event) if dated else [])


def _reporting_errors(event: JsonObject) -> list[FieldError]:
    errors = []
    controller = event.get("reportingComponent") or ""
    if not controller:
        errors.append(required("reportingComponent"))
    errors += [
        invalid_value("reportingComponent", controller, why)
        for why in validate_qualified_name(controller)
    ]
    for field, limit in _LIMITS.items():
        given = event.get(field) or ""
        if not given and field != "message":
            errors.append(required(field))
        if len(given.encode()) > limit:
            errors.append(invalid_value(field, "", f"can have at most {limit} characters"))
    return errors


def _validate_new(event: JsonObject) -> list[FieldError]:
    """Check what is asked of events that are created through the newer group."""
    errors = _series_errors(event)
    if event.get("eventTime") is None:
        errors.append(required("eventTime"))
    kind = event.get("type") or ""
    if kind not in {"Normal", "Warning"}:
        errors.append(invalid_value("type", "", f"has invalid value: {kind}"))
    return errors + [
        invalid_value(field, "", "needs to be unset")
        for field in ("firstTimestamp", "lastTimestamp", "count", "source")
        if event.get(field)
    ]


def _validate_change(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """Check a change through the newer group: all but metadata and the series stays."""
    errors = [] if new.get("series") == old.get("series") else _series_errors(new)
    return errors + [
        invalid_value(_NAMED.get(field, field), new.get(field), "field is immutable")
        for field in _FIXED
        if (new.get(field) or None) != (old.get(field) or None)
    ]


def _series_errors(event: JsonObject) -> list[FieldError]:
    series, errors = event.get("series"), []
    if series is not None:
        if int(series.get("count") or 0) < 2:
            errors.append(invalid_value("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            errors.append(required("series.lastObservedTime"))
    return errors


EVENT: Final = Strategy(create_on_update=True, default=_default, validate=_validate)
NEW_EVENT: Final = replace(EVENT, validate_create=_validate_new, validate_update=_validate_change)
EVENTS_VIEW: Final = View(decode=_decode, encode=_encode)
