"""Strategies of the core group, except pods: namespaces, services, nodes, volumes and others."""

import base64
import ipaddress
from typing import Final

from navarchos.testing.apiserver import kinds, names, objects
from navarchos.testing.apiserver import status as statuses

__all__ = ["CLAIM", "CONFIG_MAP", "NAMESPACE", "NODE", "SECRET", "SERVICE", "VOLUME"]

_CLUSTER_NETWORK: Final = ipaddress.ip_network("10.96.0.0/16")
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
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


def _default_namespace(obj: objects.JsonObject) -> None:
    obj.setdefault("spec", {})
    obj.setdefault("status", {}).setdefault("phase", "Active")
    if name := objects.meta(obj).get("name"):
        obj["metadata"].setdefault("labels", {})[_NAME_LABEL] = name


def _prepare_namespace(obj: objects.JsonObject) -> None:
    finalizers = obj["spec"].setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    obj["status"] = {"phase": "Active"}


def _keep_namespace_finalizers(new: objects.JsonObject, old: objects.JsonObject) -> None:
    new["spec"] = {
        **new.get("spec", {}),
        "finalizers": objects.dig(old, "spec", "finalizers", default=[]),
    }


def _default_service(obj: objects.JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    obj.setdefault("status", {"loadBalancer": {}})
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if spec["type"] == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")


def _allocate_address(obj: objects.JsonObject) -> None:
    spec = obj["spec"]
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        # Derived from the uid: unique enough for a cluster without a network.
        offset = int(objects.meta(obj)["uid"].replace("-", "")[:8], 16) % 65000
        spec["clusterIP"] = str(_CLUSTER_NETWORK[offset + 2])
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _keep_address(new: objects.JsonObject, old: objects.JsonObject) -> None:
    for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if field in old["spec"]:
            new["spec"].setdefault(field, old["spec"][field])


def _validate_service(obj: objects.JsonObject) -> list[statuses.FieldError]:
    spec = obj["spec"]
    ports = spec.get("ports") or []
    errors = []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        errors.append(statuses.required("spec.ports"))
    for index, port in enumerate(ports):
        number = port.get("port")
        if not isinstance(number, int) or not 0 < number < 65536:
            text = "must be between 1 and 65535, inclusive"
            errors.append(statuses.invalid_value(f"spec.ports[{index}].port", number or 0, text))
        if len(ports) > 1 and not port.get("name"):
            errors.append(statuses.required(f"spec.ports[{index}].name"))
    return errors


def _default_secret(obj: objects.JsonObject) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None) or {}
    for key, value in plain.items():
        obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def _validate_keys(obj: objects.JsonObject) -> list[statuses.FieldError]:
    return [
        statuses.invalid_value(f"{field}[{key}]", key, why)
        for field in ("data", "binaryData")
        for key in obj.get(field) or {}
        for why in names.config_key(key)
    ]


def _frozen_data(new: objects.JsonObject, old: objects.JsonObject) -> list[statuses.FieldError]:
    if not old.get("immutable"):
        return []
    errors = []
    text = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        errors.append(statuses.forbidden_field("immutable", text))
    changed = [field for field in ("data", "binaryData") if new.get(field) != old.get(field)]
    return errors + [statuses.forbidden_field(field, text) for field in changed]


NAMESPACE: Final = kinds.KindStrategy(
    name_rule=names.dns_label,
    default=_default_namespace,
    prepare_create=_prepare_namespace,
    prepare_update=_keep_namespace_finalizers,
)
SERVICE: Final = kinds.KindStrategy(
    name_rule=names.dns_label,
    returns_deleted=True,
    default=_default_service,
    prepare_create=_allocate_address,
    prepare_update=_keep_address,
    validate=_validate_service,
)
CONFIG_MAP: Final = kinds.KindStrategy(validate=_validate_keys, validate_update=_frozen_data)
SECRET: Final = kinds.KindStrategy(
    default=_default_secret, validate=_validate_keys, validate_update=_frozen_data
)


def _default_node(node: objects.JsonObject) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})
    status.setdefault("nodeInfo", dict.fromkeys(_NODE_INFO, ""))
    if node["spec"].get("unschedulable") is False:
        del node["spec"]["unschedulable"]  # Go's encoder omits false
    capacity = node["status"].get("capacity")
    if capacity:
        node["status"].setdefault("allocatable", dict(capacity))


def _validate_node(node: objects.JsonObject) -> list[statuses.FieldError]:
    errors = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(objects.dig(node, "spec", "taints", default=[])):
        at = f"metadata.taints[{index}]"  # upstream writes this path, too
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        errors += [
            statuses.invalid_value(f"{at}.key", key, why)
            for why in names.validate_qualified_name(key)
        ]
        if effect not in _EFFECTS:
            errors.append(statuses.unsupported_value(f"{at}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value") or "", "Effect": effect}
            again = statuses.duplicate(at, {**shown, "TimeAdded": taint.get("timeAdded")})
            why = f"{again.text}: taints must be unique by key and effect pair"
            errors.append(statuses.FieldError(again.reason, at, why))
        seen.add((key, effect))
    return errors


def _validate_node_update(
    new: objects.JsonObject, old: objects.JsonObject
) -> list[statuses.FieldError]:
    """Refuse changes of the fields that identify the machine, once they are set."""
    changed = [
        field
        for field in _FROZEN
        if old["spec"].get(field) and old["spec"].get(field) != new["spec"].get(field)
    ]
    return [statuses.forbidden_field(f"spec.{field}", _UPDATE_REFUSED) for field in changed]


NODE: Final = kinds.KindStrategy(
    status_on_create=True,
    default=_default_node,
    validate=_validate_node,
    validate_update=_validate_node_update,
)


def _default_claim(obj: objects.JsonObject) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _validate_claim(obj: objects.JsonObject) -> list[statuses.FieldError]:
    errors = []
    if not obj["spec"].get("accessModes"):
        errors.append(statuses.required("spec.accessModes", "at least 1 access mode is required"))
    if not objects.dig(obj, "spec", "resources", "requests", "storage"):
        errors.append(statuses.required("spec.resources[storage]"))
    return errors


def _default_volume(obj: objects.JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


CLAIM: Final = kinds.KindStrategy(
    returns_deleted=True, default=_default_claim, validate=_validate_claim
)
VOLUME: Final = kinds.KindStrategy(returns_deleted=True, default=_default_volume)
