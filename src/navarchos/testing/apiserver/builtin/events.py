"""Events: stored as core/v1, served by both groups."""

from typing import Final

from navarchos.testing.apiserver.kinds import Strategy, View
from navarchos.testing.apiserver.objects import JsonObject, dig, meta
from navarchos.testing.apiserver.status import FieldError, invalid_value, required

__all__ = ["EVENT", "EVENTS_VIEW"]

_RENAMED: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
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
    """Check what upstream does for both groups; the new fields oblige a new event."""
    errors = []
    involved = dig(event, "involvedObject", "namespace", default="")
    namespace = meta(event).get("namespace")
    if involved and involved != namespace:
        errors.append(
            invalid_value("involvedObject.namespace", involved, "does not match event.namespace")
        )
    elif not involved and namespace not in {"default", "kube-system"}:
        errors.append(
            invalid_value("involvedObject.namespace", "", "does not match event.namespace")
        )
    if event.get("eventTime") is not None:
        errors += _new_style_errors(event)
    return errors


def _new_style_errors(event: JsonObject) -> list[FieldError]:
    errors = [
        required(field)
        for field in ("reportingController", "reportingInstance", "action", "reason")
        if not event.get(_TO_CORE.get(field, field))
    ]
    if len(event.get("message") or "") > 1024:
        errors.append(invalid_value("message", "", "can have at most 1024 characters"))
    kind = event.get("type")
    if kind not in {"Normal", "Warning"}:
        errors.append(invalid_value("type", kind or "", f"has invalid value: {kind or ''}"))
    return errors


EVENT: Final = Strategy(create_on_update=True, default=_default, validate=_validate)
EVENTS_VIEW: Final = View(decode=_decode, encode=_encode)
