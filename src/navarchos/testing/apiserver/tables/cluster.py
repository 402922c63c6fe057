"""Columns of the kinds that are not workloads."""

from collections.abc import Callable
from typing import Final

from navarchos.testing.apiserver.objects import JsonObject, JsonValue, conditions_of, dig, meta
from navarchos.testing.apiserver.store import BucketId
from navarchos.testing.apiserver.tables.columns import (
    AGE,
    NAME,
    Cell,
    Printer,
    TableColumn,
    age_since,
    cell_age,
    cell_name,
    field_cell,
    wide,
)

__all__ = ["CLUSTER_PRINTERS"]

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"


def _node_status(node: JsonObject) -> str:
    ready = [c for c in conditions_of(node) if c.get("type") == "Ready"]
    parts = ["Ready" if c.get("status") == "True" else "NotReady" for c in ready] or ["Unknown"]
    if dig(node, "spec", "unschedulable"):
        parts.append("SchedulingDisabled")
    return ",".join(parts)


def _node_roles(node: JsonObject) -> str:
    labels = meta(node).get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    if labels.get(_ROLE_LABEL):
        roles.add(labels[_ROLE_LABEL])
    return ",".join(sorted(role for role in roles if role)) or "<none>"


def _address(kind: str) -> Cell:
    def cell(node: JsonObject) -> JsonValue:
        addresses = dig(node, "status", "addresses", default=[])
        return next((a.get("address") for a in addresses if a.get("type") == kind), "<none>")

    return cell


def _info(field: str) -> Cell:
    return lambda node: dig(node, "status", "nodeInfo", field, default="") or "<unknown>"


_NODES: Final = Printer(
    (
        NAME,
        TableColumn("Status"),
        TableColumn("Roles"),
        AGE,
        TableColumn("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ),
    (
        cell_name,
        _node_status,
        _node_roles,
        cell_age,
        lambda node: dig(node, "status", "nodeInfo", "kubeletVersion", default=""),
        _address("InternalIP"),
        _address("ExternalIP"),
        _info("osImage"),
        _info("kernelVersion"),
        _info("containerRuntimeVersion"),
    ),
)


def _service_ports(service: JsonObject) -> str:
    ports = dig(service, "spec", "ports", default=[])
    shown = [
        f"{p.get('port')}:{p['nodePort']}/{p.get('protocol')}"
        if p.get("nodePort")
        else f"{p.get('port')}/{p.get('protocol')}"
        for p in ports
    ]
    return ",".join(shown) or "<none>"


def _service_selector(service: JsonObject) -> str:
    selector = dig(service, "spec", "selector", default={})
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"


def _budget_bound(field: str) -> Cell:
    return lambda budget: str(dig(budget, "spec", field, default="N/A"))


def _last_seen(event: JsonObject) -> str:
    series = dig(event, "series", "lastObservedTime")
    return age_since(series or event.get("lastTimestamp") or event.get("eventTime"))


def _first_seen(event: JsonObject) -> str:
    return age_since(event.get("firstTimestamp") or event.get("eventTime"))


def _event_object(event: JsonObject) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind') or '').lower()}/{involved.get('name')}"


def _event_source(event: JsonObject) -> str:
    source = event.get("source") or {}
    parts = [source.get("component") or event.get("reportingComponent"), source.get("host")]
    return ", ".join(part for part in parts if part)


def _event_count(event: JsonObject) -> int:
    return int(dig(event, "series", "count", default=0) or event.get("count") or 1)


_EVENTS: Final = Printer(
    (
        TableColumn("Last Seen"),
        TableColumn("Type"),
        TableColumn("Reason"),
        TableColumn("Object"),
        wide("Subobject"),
        wide("Source"),
        TableColumn("Message"),
        wide("First Seen"),
        wide("Count"),
        TableColumn("Name", priority=1, format="name"),
    ),
    (
        _last_seen,
        lambda event: event.get("type") or "",
        lambda event: event.get("reason") or "",
        _event_object,
        field_cell("involvedObject", "fieldPath", default=""),
        _event_source,
        lambda event: str(event.get("message") or "").strip(),
        _first_seen,
        _event_count,
        cell_name,
    ),
)


def _claim_capacity(obj: JsonObject) -> JsonValue:
    return dig(obj, "status", "capacity", "storage", default="")


def _modes(obj: JsonObject) -> str:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(short.get(mode, mode) for mode in dig(obj, "spec", "accessModes", default=[]))


def _claim_of(volume: JsonObject) -> str:
    claim = dig(volume, "spec", "claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def _data_count(obj: JsonObject) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _binding_role(obj: JsonObject) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind')}/{role.get('name')}"


def _subjects(kind: str) -> Callable[[JsonObject], str]:
    def cell(obj: JsonObject) -> str:
        return ", ".join(
            f"{s['namespace']}/{s['name']}" if s.get("namespace") else s["name"]
            for s in obj.get("subjects") or ()
            if s.get("kind") == kind
        )

    return cell


_BINDINGS: Final = Printer(
    (
        NAME,
        TableColumn("Role"),
        AGE,
        TableColumn("Users", priority=1),
        TableColumn("Groups", priority=1),
        TableColumn("ServiceAccounts", priority=1),
    ),
    (
        cell_name,
        _binding_role,
        cell_age,
        _subjects("User"),
        _subjects("Group"),
        _subjects("ServiceAccount"),
    ),
)

CLUSTER_PRINTERS: Final = {
    BucketId("nodes", ""): _NODES,
    BucketId("events", ""): _EVENTS,
    BucketId("namespaces", ""): Printer(
        (NAME, TableColumn("Status"), AGE), (cell_name, field_cell("status", "phase"), cell_age)
    ),
    BucketId("services", ""): Printer(
        (
            NAME,
            TableColumn("Type"),
            TableColumn("Cluster-IP"),
            TableColumn("External-IP"),
            TableColumn("Port(s)"),
            AGE,
            wide("Selector"),
        ),
        (
            cell_name,
            field_cell("spec", "type"),
            field_cell("spec", "clusterIP"),
            field_cell("spec", "externalName"),
            _service_ports,
            cell_age,
            _service_selector,
        ),
    ),
    BucketId("configmaps", ""): Printer(
        (NAME, TableColumn("Data"), AGE), (cell_name, _data_count, cell_age)
    ),
    BucketId("secrets", ""): Printer(
        (NAME, TableColumn("Type"), TableColumn("Data"), AGE),
        (cell_name, field_cell("type"), _data_count, cell_age),
    ),
    BucketId("serviceaccounts", ""): Printer(
        (NAME, AGE),
        (cell_name, cell_age),
    ),
    BucketId("persistentvolumeclaims", ""): Printer(
        (
            NAME,
            TableColumn("Status"),
            TableColumn("Volume"),
            TableColumn("Capacity"),
            TableColumn("Access Modes"),
            TableColumn("StorageClass"),
            TableColumn("VolumeAttributesClass"),
            AGE,
            wide("VolumeMode"),
        ),
        (
            cell_name,
            field_cell("status", "phase", default=""),
            field_cell("spec", "volumeName", default=""),
            _claim_capacity,
            _modes,
            field_cell("spec", "storageClassName", default=""),
            field_cell("spec", "volumeAttributesClassName", default="<unset>"),
            cell_age,
            field_cell("spec", "volumeMode", default="<unset>"),
        ),
    ),
    BucketId("persistentvolumes", ""): Printer(
        (
            NAME,
            TableColumn("Capacity"),
            TableColumn("Access Modes"),
            TableColumn("Reclaim Policy"),
            TableColumn("Status"),
            TableColumn("Claim"),
            TableColumn("StorageClass"),
            TableColumn("Reason"),
            AGE,
            wide("VolumeMode"),
        ),
        (
            cell_name,
            field_cell("spec", "capacity", "storage", default=""),
            _modes,
            field_cell("spec", "persistentVolumeReclaimPolicy", default=""),
            field_cell("status", "phase", default=""),
            _claim_of,
            field_cell("spec", "storageClassName", default=""),
            field_cell("status", "reason", default=""),
            cell_age,
            field_cell("spec", "volumeMode", default="<unset>"),
        ),
    ),
    BucketId("poddisruptionbudgets", "policy"): Printer(
        (
            NAME,
            TableColumn("Min Available"),
            TableColumn("Max Unavailable"),
            TableColumn("Allowed Disruptions", "integer"),
            AGE,
        ),
        (
            cell_name,
            _budget_bound("minAvailable"),
            _budget_bound("maxUnavailable"),
            field_cell("status", "disruptionsAllowed", default=0),
            cell_age,
        ),
    ),
    BucketId("leases", "coordination.k8s.io"): Printer(
        (NAME, TableColumn("Holder"), AGE),
        (cell_name, field_cell("spec", "holderIdentity", default=""), cell_age),
    ),
    BucketId("customresourcedefinitions", "apiextensions.k8s.io"): Printer(
        (NAME, TableColumn("Created At", "date")),
        (cell_name, lambda obj: meta(obj).get("creationTimestamp")),
    ),
    BucketId("clusterroles", "rbac.authorization.k8s.io"): Printer(
        (NAME, TableColumn("Created At", "date")),
        (cell_name, lambda obj: meta(obj).get("creationTimestamp")),
    ),
    BucketId("roles", "rbac.authorization.k8s.io"): Printer(
        (NAME, TableColumn("Created At", "date")),
        (cell_name, lambda obj: meta(obj).get("creationTimestamp")),
    ),
    BucketId("rolebindings", "rbac.authorization.k8s.io"): _BINDINGS,
    BucketId("clusterrolebindings", "rbac.authorization.k8s.io"): _BINDINGS,
    BucketId("storageclasses", "storage.k8s.io"): Printer(
        (
            NAME,
            TableColumn("Provisioner"),
            TableColumn("ReclaimPolicy"),
            TableColumn("VolumeBindingMode"),
            TableColumn("AllowVolumeExpansion"),
            AGE,
        ),
        (
            cell_name,
            field_cell("provisioner", default=""),
            field_cell("reclaimPolicy", default="Delete"),
            field_cell("volumeBindingMode", default="Immediate"),
            field_cell("allowVolumeExpansion", default=False),
            cell_age,
        ),
    ),
    BucketId("volumeattachments", "storage.k8s.io"): Printer(
        (
            NAME,
            TableColumn("Attacher"),
            TableColumn("PV"),
            TableColumn("Node"),
            TableColumn("Attached"),
            AGE,
        ),
        (
            cell_name,
            field_cell("spec", "attacher", default=""),
            field_cell("spec", "source", "persistentVolumeName", default=""),
            field_cell("spec", "nodeName", default=""),
            field_cell("status", "attached", default=False),
            cell_age,
        ),
    ),
    BucketId("priorityclasses", "scheduling.k8s.io"): Printer(
        (
            NAME,
            TableColumn("Value", "integer"),
            TableColumn("Global-Default", "boolean"),
            AGE,
            TableColumn("PreemptionPolicy"),
        ),
        (
            cell_name,
            field_cell("value", default=0),
            field_cell("globalDefault", default=False),
            cell_age,
            field_cell("preemptionPolicy", default=""),
        ),
    ),
}
"""The columns by resource."""
