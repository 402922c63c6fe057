"""Nodes: what may change, and the checks on taints."""

from typing import Final

from navarchos.testing.apiserver.kinds import Strategy
from navarchos.testing.apiserver.names import validate_qualified_name
from navarchos.testing.apiserver.objects import JsonObject, dig
from navarchos.testing.apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    unsupported_value,
)

__all__ = ["NODE"]

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_FROZEN: Final = ("podCIDR", "podCIDRs", "providerID")
_NODE_INFO: Final = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
    "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip
_UPDATE_REFUSED: Final = (
    "node updates may only change labels, taints, or capacity (or configSource, if the"
    " DynamicKubeletConfig feature gate is enabled)"
)


def _default(node: JsonObject) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})
    status.setdefault("nodeInfo", dict.fromkeys(_NODE_INFO, ""))
    if node["spec"].get("unschedulable") is False:
        del node["spec"]["unschedulable"]  # omitted when false, as Go encodes it
    capacity = node["status"].get("capacity")
    if capacity:
        node["status"].setdefault("allocatable", dict(capacity))


def _validate(node: JsonObject) -> list[FieldError]:
    errors = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(dig(node, "spec", "taints", default=[])):
        at = f"metadata.taints[{index}]"  # so says upstream
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        errors += [invalid_value(f"{at}.key", key, why) for why in validate_qualified_name(key)]
        if effect not in _EFFECTS:
            errors.append(unsupported_value(f"{at}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value") or "", "Effect": effect}
            again = duplicate(at, {**shown, "TimeAdded": taint.get("timeAdded")})
            why = f"{again.text}: taints must be unique by key and effect pair"
            errors.append(FieldError(again.reason, at, why))
        seen.add((key, effect))
    return errors


def _validate_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """Refuse changes of what identifies the machine, once it is known."""
    changed = [
        field
        for field in _FROZEN
        if old["spec"].get(field) and old["spec"].get(field) != new["spec"].get(field)
    ]
    return [forbidden_field(f"spec.{field}", _UPDATE_REFUSED) for field in changed]


NODE: Final = Strategy(
    status_on_create=True,
    default=_default,
    validate=_validate,
    validate_update=_validate_update,
)
