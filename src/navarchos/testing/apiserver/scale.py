"""The scale subresource of workloads, and of custom kinds that declare one."""

from collections.abc import Callable
from typing import Final

from navarchos.testing.apiserver import bodies, kinds, objects, requests, store, writes
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.apply import apply_to
from navarchos.testing.apiserver.ownership import fieldsets, managed_fields
from navarchos.testing.apiserver.ownership.field_manager import FieldWrite
from navarchos.testing.apiserver.tables.columns import selector_text
from navarchos.testing.apiserver.types import TYPES

__all__ = ["apply_scale", "read_scale", "write_scale"]

# The kind with which bodies are decoded; it is never stored.
_SCALE: Final = kinds.Kind(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    singular="scale",
    namespaced=True,
    schema=TYPES.schema("autoscaling.Scale"),
    bucket=store.BucketId("scales", "autoscaling"),
)
_REPLICAS: Final[fieldsets.FieldSet] = {
    fieldsets.field("spec"): {fieldsets.field("replicas"): fieldsets.LEAF}
}

_Change = Callable[[objects.JsonObject], objects.JsonValue]


def read_scale(api: writes.Api, target: requests.Target) -> objects.JsonObject:
    """Return the `Scale` of an object."""
    entry = writes.require(api, target)
    return _scale_of(target.kind, entry.obj)


def write_scale(
    api: writes.Api, target: requests.Target, change: _Change, options: writes.WriteOptions
) -> objects.JsonObject:
    """Change the replicas through a `Scale`; return the new one.

    Raises:
        StatusError: The change is refused. Nothing is stored.
    """

    def apply(obj: objects.JsonObject) -> objects.JsonObject:
        wanted = change(_scale_of(target.kind, obj))
        return _scaled(target, obj, bodies.read_object(_SCALE, wanted, options))

    return _modified(api, target, apply, options)


def apply_scale(
    api: writes.Api,
    target: requests.Target,
    config: objects.JsonObject,
    options: writes.WriteOptions,
    *,
    force: bool,
) -> objects.JsonObject:
    """Apply a `Scale` as the field manager `options.manager`; return the new one.

    The owner of an object's replicas also owns the replicas of its scale, and the other way round
    (apimachinery, managedfields, scalehandler.go).

    Raises:
        StatusError: 409 when other managers own the replicas, unless `force`; 500 for a change of a
            custom object, as upstream. Nothing is stored.
    """
    options.applying = True
    write = FieldWrite(_SCALE, options.manager, {_SCALE.api_version: _SCALE}.get, "scale")
    place = _replicas_fields(target.kind)

    def apply(obj: objects.JsonObject) -> objects.JsonObject:
        managed = managed_fields.decode_managed_fields(objects.meta(obj).get("managedFields"))
        scale = _scale_of(target.kind, obj)
        scale["metadata"]["managedFields"] = managed_fields.encode_managed_fields(
            _managed_of_scale(managed, place)
        )
        applied = bodies.read_object(_SCALE, apply_to(write, scale, config, force=force), options)
        if target.kind.custom is not None and applied["spec"] != scale["spec"]:
            raise _inconvertible(applied)
        held = managed_fields.decode_managed_fields(objects.meta(applied).get("managedFields"))
        merged = _managed_of_object(managed, held, place, target.kind.api_version)
        changed = _scaled(target, obj, applied)
        changed["metadata"]["managedFields"] = managed_fields.encode_managed_fields(merged)
        return changed

    return _modified(api, target, apply, options)


def _inconvertible(scale: objects.JsonObject) -> statuses.StatusError:
    """Return upstream's error for any apply of a custom kind's scale."""
    place = f"{objects.meta(scale).get('namespace') or ''}/{objects.meta(scale).get('name') or ''}"
    shown = f"{_SCALE.api_version}, Kind={_SCALE.kind}"
    why = f"request to convert CR to an invalid group/version: {_SCALE.api_version}"
    message = f"failed to convert new object ({place}; {shown}) to proper version: {why}"
    return statuses.StatusError(500, "", message)


def _modified(
    api: writes.Api, target: requests.Target, change: _Change, options: writes.WriteOptions
) -> objects.JsonObject:
    entry = writes.modify(api, target, change, options)
    return _scale_of(target.kind, entry.obj)


def _scaled(
    target: requests.Target, obj: objects.JsonObject, scale: objects.JsonObject
) -> objects.JsonObject:
    """Check a scale; return the object with the scale's replicas."""
    name = objects.meta(scale).get("name")
    if not name:
        why = f"({target.name} based on URL) was undeterminable: name must be provided"
        raise statuses.bad_request(f"the name of the object {why}")
    if name != target.name:
        why = f"({name}) does not match the name on the URL ({target.name})"
        raise statuses.bad_request(f"the name of the object {why}")
    replicas = objects.dig(scale, "spec", "replicas", default=0)
    if replicas < 0:
        error = statuses.invalid_value(
            "spec.replicas", replicas, "must be greater than or equal to 0"
        )
        raise statuses.invalid("Scale", "autoscaling", target.name, [error])
    changed: objects.JsonObject = objects.copy_json(obj)
    _set(changed, _paths(target.kind)[0], replicas)
    if version := objects.meta(scale).get("resourceVersion"):
        changed["metadata"]["resourceVersion"] = version
    return changed


def _replicas_fields(kind: kinds.Kind) -> fieldsets.FieldSet:
    found: fieldsets.FieldSet = fieldsets.LEAF
    for step in reversed(_paths(kind)[0]):
        found = {fieldsets.field(step): found}
    return found


def _managed_of_scale(
    managed: managed_fields.ManagedFields, place: fieldsets.FieldSet
) -> managed_fields.ManagedFields:
    version = _SCALE.api_version
    return {
        manager._replace(version=manager.version and version): managed_fields.OwnedFields(
            _REPLICAS, version, owned_fields.time
        )
        for manager, owned_fields in managed.items()
        if fieldsets.intersection(owned_fields.fields, place)
    }


def _managed_of_object(
    managed: managed_fields.ManagedFields,
    held: managed_fields.ManagedFields,
    place: fieldsets.FieldSet,
    version: str,
) -> managed_fields.ManagedFields:
    """Return the managed fields of an object after a write of its scale."""
    left, found = dict(held), managed_fields.ManagedFields()
    for manager, owned_fields in managed.items():
        same = manager._replace(version=manager.version and _SCALE.api_version)
        if (
            not fieldsets.intersection(owned_fields.fields, place)
            or left.pop(same, None) is not None
        ):
            found[manager] = owned_fields
        elif rest := fieldsets.difference(owned_fields.fields, place):
            found[manager] = owned_fields._replace(fields=rest)
    for manager, owned_fields in left.items():
        if fieldsets.intersection(owned_fields.fields, _REPLICAS):
            new = manager._replace(version=manager.version and version)
            found[new] = managed_fields.OwnedFields(place, version, owned_fields.time)
    return found


def _paths(kind: kinds.Kind) -> tuple[list[str], list[str], list[str]]:
    declared = (kind.custom.scale if kind.custom else None) or {}
    return (
        declared.get("specReplicasPath", ".spec.replicas").lstrip(".").split("."),
        declared.get("statusReplicasPath", ".status.replicas").lstrip(".").split("."),
        declared.get("labelSelectorPath", "").lstrip(".").split("."),
    )


def _set(obj: objects.JsonObject, path: list[str], value: objects.JsonValue) -> None:
    for step in path[:-1]:
        obj = obj.setdefault(step, {})
    obj[path[-1]] = value


def _scale_of(kind: kinds.Kind, obj: objects.JsonObject) -> objects.JsonObject:
    wanted, found, selector = _paths(kind)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = objects.dig(obj, *wanted, default=0)
    status: objects.JsonObject = {"replicas": objects.dig(obj, *found, default=0)}
    if kind.custom is None:
        status["selector"] = selector_text(objects.dig(obj, "spec", "selector"))
    elif selector != [""]:
        status["selector"] = objects.dig(obj, *selector, default="")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: objects.meta(obj)[key] for key in kept if key in objects.meta(obj)},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }
