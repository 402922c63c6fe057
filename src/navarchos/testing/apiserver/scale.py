"""The scale subresource of workloads and of custom kinds that declare one."""

from collections.abc import Callable
from typing import Final

from navarchos.testing.apiserver.apply import apply_to
from navarchos.testing.apiserver.bodies import read_object
from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, JsonValue, copy_json, dig, meta
from navarchos.testing.apiserver.ownership.field_manager import Writing
from navarchos.testing.apiserver.ownership.fieldsets import (
    LEAF,
    FieldSet,
    difference,
    field,
    intersection,
)
from navarchos.testing.apiserver.ownership.managed_fields import (
    Claim,
    Claims,
    decode_claims,
    encode_claims,
)
from navarchos.testing.apiserver.requests import Target
from navarchos.testing.apiserver.status import StatusError, bad_request, invalid, invalid_value
from navarchos.testing.apiserver.store import BucketId
from navarchos.testing.apiserver.tables.columns import selector_text
from navarchos.testing.apiserver.types import TYPES
from navarchos.testing.apiserver.writes import Api, Options, modify, require

__all__ = ["apply_scale", "read_scale", "write_scale"]

# What bodies are decoded as; nothing of it is ever stored.
_SCALE: Final = Kind(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    singular="scale",
    namespaced=True,
    schema=TYPES.schema("autoscaling.Scale"),
    bucket=BucketId("scales", "autoscaling"),
)
_REPLICAS: Final[FieldSet] = {field("spec"): {field("replicas"): LEAF}}

_Change = Callable[[JsonObject], JsonValue]


def read_scale(api: Api, target: Target) -> JsonObject:
    """Return the `Scale` of an object."""
    entry = require(api, target.kind, target.namespace, target.name)
    return _scale_of(target.kind, entry.obj)


def write_scale(api: Api, target: Target, change: _Change, options: Options) -> JsonObject:
    """Change the replicas through a `Scale`; returns the new one.

    Raises:
        StatusError: The change is refused. Nothing is stored.
    """

    def apply(obj: JsonObject) -> JsonObject:
        wanted = change(_scale_of(target.kind, obj))
        return _scaled(target, obj, read_object(_SCALE, wanted, options))

    return _modified(api, target, apply, options)


def apply_scale(
    api: Api, target: Target, config: JsonObject, options: Options, *, force: bool
) -> JsonObject:
    """Apply a `Scale` in the name of `options.manager`; returns the new one.

    Who manages the replicas of the object manages those of its scale, and the other way
    round (apimachinery, managedfields, scalehandler.go).

    Raises:
        StatusError: 409 when others manage the replicas, unless `force`; 500 for a change
            of a custom object, as upstream. Nothing is stored.
    """
    options.applying = True
    writing = Writing(_SCALE, options.manager, {_SCALE.api_version: _SCALE}.get, "scale")
    place = _place(target.kind)

    def apply(obj: JsonObject) -> JsonObject:
        claims = decode_claims(meta(obj).get("managedFields"))
        scale = _scale_of(target.kind, obj)
        scale["metadata"]["managedFields"] = encode_claims(_claims_of_scale(claims, place))
        applied = read_object(_SCALE, apply_to(writing, scale, config, force=force), options)
        if target.kind.custom is not None and applied["spec"] != scale["spec"]:
            raise _inconvertible(applied)
        held = decode_claims(meta(applied).get("managedFields"))
        merged = _claims_of_object(claims, held, place, target.kind.api_version)
        changed = _scaled(target, obj, applied)
        changed["metadata"]["managedFields"] = encode_claims(merged)
        return changed

    return _modified(api, target, apply, options)


def _inconvertible(scale: JsonObject) -> StatusError:
    """Return what upstream says of any scale of a custom kind that is applied."""
    place = f"{meta(scale).get('namespace') or ''}/{meta(scale).get('name') or ''}"
    shown = f"{_SCALE.api_version}, Kind={_SCALE.kind}"
    why = f"request to convert CR to an invalid group/version: {_SCALE.api_version}"
    message = f"failed to convert new object ({place}; {shown}) to proper version: {why}"
    return StatusError(500, "", message)


def _modified(api: Api, target: Target, change: _Change, options: Options) -> JsonObject:
    entry = modify(
        api, target.kind, target.namespace, target.name, change, options, subresource="scale"
    )
    return _scale_of(target.kind, entry.obj)


def _scaled(target: Target, obj: JsonObject, scale: JsonObject) -> JsonObject:
    """Return the object with the replicas of a scale, which is checked."""
    name = meta(scale).get("name")
    if not name:
        why = f"({target.name} based on URL) was undeterminable: name must be provided"
        raise bad_request(f"the name of the object {why}")
    if name != target.name:
        why = f"({name}) does not match the name on the URL ({target.name})"
        raise bad_request(f"the name of the object {why}")
    replicas = dig(scale, "spec", "replicas", default=0)
    if replicas < 0:
        error = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("Scale", "autoscaling", target.name, [error])
    changed: JsonObject = copy_json(obj)
    _set(changed, _paths(target.kind)[0], replicas)
    if version := meta(scale).get("resourceVersion"):
        changed["metadata"]["resourceVersion"] = version
    return changed


def _place(kind: Kind) -> FieldSet:
    found: FieldSet = LEAF
    for step in reversed(_paths(kind)[0]):
        found = {field(step): found}
    return found


def _claims_of_scale(claims: Claims, place: FieldSet) -> Claims:
    version = _SCALE.api_version
    return {
        manager._replace(version=manager.version and version): Claim(_REPLICAS, version, claim.time)
        for manager, claim in claims.items()
        if intersection(claim.fields, place)
    }


def _claims_of_object(claims: Claims, held: Claims, place: FieldSet, version: str) -> Claims:
    """Return the claims of an object whose scale is held as is said."""
    left, found = dict(held), Claims()
    for manager, claim in claims.items():
        same = manager._replace(version=manager.version and _SCALE.api_version)
        if not intersection(claim.fields, place) or left.pop(same, None) is not None:
            found[manager] = claim
        elif rest := difference(claim.fields, place):
            found[manager] = claim._replace(fields=rest)
    for manager, claim in left.items():
        if intersection(claim.fields, _REPLICAS):
            new = manager._replace(version=manager.version and version)
            found[new] = Claim(place, version, claim.time)
    return found


def _paths(kind: Kind) -> tuple[list[str], list[str], list[str]]:
    declared = (kind.custom.scale if kind.custom else None) or {}
    return (
        declared.get("specReplicasPath", ".spec.replicas").lstrip(".").split("."),
        declared.get("statusReplicasPath", ".status.replicas").lstrip(".").split("."),
        declared.get("labelSelectorPath", "").lstrip(".").split("."),
    )


def _set(obj: JsonObject, path: list[str], value: JsonValue) -> None:
    for step in path[:-1]:
        obj = obj.setdefault(step, {})
    obj[path[-1]] = value


def _scale_of(kind: Kind, obj: JsonObject) -> JsonObject:
    wanted, found, selector = _paths(kind)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = dig(obj, *wanted, default=0)
    status: JsonObject = {"replicas": dig(obj, *found, default=0)}
    if kind.custom is None:
        status["selector"] = selector_text(dig(obj, "spec", "selector"))
    elif selector != [""]:
        status["selector"] = dig(obj, *selector, default="")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta(obj)[key] for key in kept if key in meta(obj)},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }
