"""The scale subresource of workloads and of custom kinds that declare one."""

from collections.abc import Callable

from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, JsonValue, copy_json, dig, meta
from navarchos.testing.apiserver.requests import Target
from navarchos.testing.apiserver.status import bad_request, invalid, invalid_value
from navarchos.testing.apiserver.tables.cells import selector_text
from navarchos.testing.apiserver.writing import Api, Options, modify, require

__all__ = ["read_scale", "write_scale"]


def read_scale(api: Api, target: Target) -> JsonObject:
    """Return the `Scale` of an object."""
    entry = require(api, target.kind, target.namespace, target.name)
    return _scale_of(target.kind, entry.obj)


def write_scale(
    api: Api, target: Target, change: Callable[[JsonObject], JsonValue], options: Options
) -> JsonObject:
    """Change the replicas through a `Scale`; returns the new one."""

    def apply(obj: JsonObject) -> JsonValue:
        wanted = change(_scale_of(target.kind, obj))
        if not isinstance(wanted, dict):
            raise bad_request("expected a Scale")
        replicas = dig(wanted, "spec", "replicas", default=0)
        if not isinstance(replicas, int) or replicas < 0:
            text = "must be greater than or equal to 0"
            error = invalid_value("spec.replicas", replicas, text)
            raise invalid("Scale", "autoscaling", target.name, [error])
        changed: JsonObject = copy_json(obj)
        _set(changed, _paths(target.kind)[0], replicas)
        version = meta(wanted).get("resourceVersion")
        if version:
            changed["metadata"]["resourceVersion"] = version
        return changed

    entry = modify(
        api, target.kind, target.namespace, target.name, apply, options, subresource="scale"
    )
    return _scale_of(target.kind, entry.obj)


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
    status: JsonObject = {"replicas": dig(obj, *found, default=0)}
    if kind.custom is None:
        status["selector"] = selector_text(dig(obj, "spec", "selector"))
    elif selector != [""]:
        status["selector"] = dig(obj, *selector, default="")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta(obj)[key] for key in kept if key in meta(obj)},
        "spec": {"replicas": dig(obj, *wanted, default=0)},
        "status": status,
    }
