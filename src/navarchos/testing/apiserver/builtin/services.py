"""Namespaces, services, config maps and secrets."""

import base64
import ipaddress
from typing import Final

from navarchos.testing.apiserver.kinds import Strategy
from navarchos.testing.apiserver.names import config_key, dns_label
from navarchos.testing.apiserver.objects import JsonObject, dig, meta
from navarchos.testing.apiserver.status import FieldError, forbidden_field, invalid_value, required

__all__ = ["CONFIG_MAP", "NAMESPACE", "SECRET", "SERVICE"]

_CLUSTER_NETWORK: Final = ipaddress.ip_network("10.96.0.0/16")
_NAME_LABEL: Final = "kubernetes.io/metadata.name"


def _default_namespace(obj: JsonObject) -> None:
    obj.setdefault("spec", {})
    obj.setdefault("status", {}).setdefault("phase", "Active")
    if name := meta(obj).get("name"):
        obj["metadata"].setdefault("labels", {})[_NAME_LABEL] = name


def _prepare_namespace(obj: JsonObject) -> None:
    finalizers = obj["spec"].setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    obj["status"] = {"phase": "Active"}


def _keep_namespace_finalizers(new: JsonObject, old: JsonObject) -> None:
    new["spec"] = {**new.get("spec", {}), "finalizers": dig(old, "spec", "finalizers", default=[])}


def _default_service(obj: JsonObject) -> None:
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


def _allocate_address(obj: JsonObject) -> None:
    spec = obj["spec"]
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        # Spread by uid: good enough where no packet is ever sent.
        offset = int(meta(obj)["uid"].replace("-", "")[:8], 16) % 65000
        spec["clusterIP"] = str(_CLUSTER_NETWORK[offset + 2])
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _keep_address(new: JsonObject, old: JsonObject) -> None:
    for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if field in old["spec"]:
            new["spec"].setdefault(field, old["spec"][field])


def _validate_service(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    ports = spec.get("ports") or []
    errors = []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        errors.append(required("spec.ports"))
    for index, port in enumerate(ports):
        number = port.get("port")
        if not isinstance(number, int) or not 0 < number < 65536:
            text = "must be between 1 and 65535, inclusive"
            errors.append(invalid_value(f"spec.ports[{index}].port", number or 0, text))
        if len(ports) > 1 and not port.get("name"):
            errors.append(required(f"spec.ports[{index}].name"))
    return errors


def _default_secret(obj: JsonObject) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None) or {}
    for key, value in plain.items():
        obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def _validate_keys(obj: JsonObject) -> list[FieldError]:
    return [
        invalid_value(f"{field}[{key}]", key, why)
        for field in ("data", "binaryData")
        for key in obj.get(field) or {}
        for why in config_key(key)
    ]


def _frozen_data(new: JsonObject, old: JsonObject) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = []
    text = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        errors.append(forbidden_field("immutable", text))
    changed = [field for field in ("data", "binaryData") if new.get(field) != old.get(field)]
    return errors + [forbidden_field(field, text) for field in changed]


NAMESPACE: Final = Strategy(
    name_rule=dns_label,
    default=_default_namespace,
    prepare_create=_prepare_namespace,
    prepare_update=_keep_namespace_finalizers,
)
SERVICE: Final = Strategy(
    name_rule=dns_label,
    returns_deleted=True,
    default=_default_service,
    prepare_create=_allocate_address,
    prepare_update=_keep_address,
    validate=_validate_service,
)
CONFIG_MAP: Final = Strategy(validate=_validate_keys, validate_update=_frozen_data)
SECRET: Final = Strategy(
    default=_default_secret, validate=_validate_keys, validate_update=_frozen_data
)
