"""The binding subresource of pods: a scheduler assigns a pod to a node."""

from datetime import datetime
from typing import Final

from navarchos.testing.apiserver import objects, requests, writes
from navarchos.testing.apiserver import status as statuses

__all__ = ["bind"]

_BINDING: Final = statuses.ResourceName("", "pods/binding")


def bind(
    api: writes.Api, target: requests.Target, body: objects.JsonValue, options: writes.WriteOptions
) -> objects.JsonObject:
    """Set `spec.nodeName` and the condition `PodScheduled`.

    Raises:
        StatusError: 403 or 404; 409 when the pod has a node or is being deleted; 422 when the body
            names no node.
    """
    if not isinstance(body, dict):
        raise statuses.bad_request("expected a Binding")
    node = objects.dig(body, "target", "name")
    if not node:
        raise statuses.invalid("Binding", "", target.name, [statuses.required("target.name")])
    with api.store.transaction():
        writes.require_active_namespace(api, target.kind, target.namespace, target.name)
        entry = writes.require(api, target)
        uid = objects.meta(body).get("uid")
        if uid and uid != entry.uid:
            text = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
            )
            raise statuses.conflict(_BINDING, target.name, text)
        if objects.meta(entry.obj).get("deletionTimestamp"):
            text = f"pod {target.name} is being deleted, cannot be assigned to a host"
            raise statuses.conflict(_BINDING, target.name, text)
        bound = objects.dig(entry.obj, "spec", "nodeName")
        if bound:
            text = f'pod {target.name} is already assigned to node "{bound}"'
            raise statuses.conflict(_BINDING, target.name, text)
        if not options.dry_run:
            api.store.put(
                target.kind.bucket,
                _bound(entry.obj, node, body, api.store.clock.now()),
                origin=options.origin,
            )
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _bound(
    pod: objects.JsonObject, node: str, body: objects.JsonObject, at: datetime
) -> objects.JsonObject:
    obj: objects.JsonObject = objects.copy_json(pod)
    obj["spec"]["nodeName"] = node
    for field in ("labels", "annotations"):
        if objects.meta(body).get(field):
            obj["metadata"][field] = {
                **(obj["metadata"].get(field) or {}),
                **objects.meta(body)[field],
            }
    status = obj.setdefault("status", {})
    others = [c for c in status.get("conditions") or [] if c.get("type") != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled", "status": "True", "lastProbeTime": None,
        "lastTransitionTime": objects.timestamp(at),
    }  # fmt: skip
    status["conditions"] = [*others, scheduled]
    return obj
