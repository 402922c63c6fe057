"""Columns of the kinds that are not workloads."""

from collections.abc import Callable
from typing import Final

from navarchos.testing.apiserver.objects import JsonObject, JsonValue, conditions_of, dig, meta
from navarchos.testing.apiserver.store import BucketId
from navarchos.testing.apiserver.tables import columns

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


def _address(kind: str) -> columns.Cell:
    def cell(node: JsonObject) -> JsonValue:
        addresses = dig(node, "status", "addresses", default=[])
        return next((a.get("address") for a in addresses if a.get("type") == kind), "<none>")

    return cell


def _info(field: str) -> columns.Cell:
    return lambda node: dig(node, "status", "nodeInfo", field, default="") or "<unknown>"


_NODES: Final = columns.Printer(
    (
        columns.NAME,
        columns.TableColumn("Status"),
        columns.TableColumn("Roles"),
        columns.AGE,
        columns.TableColumn("Version"),
        columns.wide("Internal-IP"),
        columns.wide("External-IP"),
        columns.wide("OS-Image"),
        columns.wide("Kernel-Version"),
        columns.wide("Container-Runtime"),
    ),
    (
        columns.cell_name,
        _node_status,
        _node_roles,
        columns.cell_age,
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


def _budget_bound(field: str) -> columns.Cell:
    return lambda budget: str(dig(budget, "spec", field, default="N/A"))


def _last_seen(event: JsonObject) -> str:
    series = dig(event, "series", "lastObservedTime")
    return columns.age_since(series or event.get("lastTimestamp") or event.get("eventTime"))


def _first_seen(event: JsonObject) -> str:
    return columns.age_since(event.get("firstTimestamp") or event.get("eventTime"))


def _event_object(event: JsonObject) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind') or '').lower()}/{involved.get('name')}"


def _event_source(event: JsonObject) -> str:
    source = event.get("source") or {}
    parts = [source.get("component") or event.get("reportingComponent"), source.get("host")]
    return ", ".join(part for part in parts if part)


def _event_count(event: JsonObject) -> int:
    return int(dig(event, "series", "count", default=0) or event.get("count") or 1)


_EVENTS: Final = columns.Printer(
    (
        columns.TableColumn("Last Seen"),
        columns.TableColumn("Type"),
        columns.TableColumn("Reason"),
        columns.TableColumn("Object"),
        columns.wide("Subobject"),
        columns.wide("Source"),
        columns.TableColumn("Message"),
        columns.wide("First Seen"),
        columns.wide("Count"),
        columns.TableColumn("Name", priority=1, format="name"),
    ),
    (
        _last_seen,
        lambda event: event.get("type") or "",
        lambda event: event.get("reason") or "",
        _event_object,
        columns.field_cell("involvedObject", "fieldPath", default=""),
        _event_source,
        lambda event: str(event.get("message") or "").strip(),
        _first_seen,
        _event_count,
        columns.cell_name,
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


_BINDINGS: Final = columns.Printer(
    (
        columns.NAME,
        columns.TableColumn("Role"),
        columns.AGE,
        columns.TableColumn("Users", priority=1),
        columns.TableColumn("Groups", priority=1),
        columns.TableColumn("ServiceAccounts", priority=1),
    ),
    (
        columns.cell_name,
        _binding_role,
        columns.cell_age,
        _subjects("User"),
        _subjects("Group"),
        _subjects("ServiceAccount"),
    ),
)

CLUSTER_PRINTERS: Final = {
    BucketId("nodes", ""): _NODES,
    BucketId("events", ""): _EVENTS,
    BucketId("namespaces", ""): columns.Printer(
        (columns.NAME, columns.TableColumn("Status"), columns.AGE),
        (columns.cell_name, columns.field_cell("status", "phase"), columns.cell_age),
    ),
    BucketId("services", ""): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Type"),
            columns.TableColumn("Cluster-IP"),
            columns.TableColumn("External-IP"),
            columns.TableColumn("Port(s)"),
            columns.AGE,
            columns.wide("Selector"),
        ),
        (
            columns.cell_name,
            columns.field_cell("spec", "type"),
            columns.field_cell("spec", "clusterIP"),
            columns.field_cell("spec", "externalName"),
            _service_ports,
            columns.cell_age,
            _service_selector,
        ),
    ),
    BucketId("configmaps", ""): columns.Printer(
        (columns.NAME, columns.TableColumn("Data"), columns.AGE),
        (columns.cell_name, _data_count, columns.cell_age),
    ),
    BucketId("secrets", ""): columns.Printer(
        (columns.NAME, columns.TableColumn("Type"), columns.TableColumn("Data"), columns.AGE),
        (columns.cell_name, columns.field_cell("type"), _data_count, columns.cell_age),
    ),
    BucketId("serviceaccounts", ""): columns.Printer(
        (columns.NAME, columns.AGE),
        (columns.cell_name, columns.cell_age),
    ),
    BucketId("persistentvolumeclaims", ""): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Status"),
            columns.TableColumn("Volume"),
            columns.TableColumn("Capacity"),
            columns.TableColumn("Access Modes"),
            columns.TableColumn("StorageClass"),
            columns.TableColumn("VolumeAttributesClass"),
            columns.AGE,
            columns.wide("VolumeMode"),
        ),
        (
            columns.cell_name,
            columns.field_cell("status", "phase", default=""),
            columns.field_cell("spec", "volumeName", default=""),
            _claim_capacity,
            _modes,
            columns.field_cell("spec", "storageClassName", default=""),
            columns.field_cell("spec", "volumeAttributesClassName", default="<unset>"),
            columns.cell_age,
            columns.field_cell("spec", "volumeMode", default="<unset>"),
        ),
    ),
    BucketId("persistentvolumes", ""): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Capacity"),
            columns.TableColumn("Access Modes"),
            columns.TableColumn("Reclaim Policy"),
            columns.TableColumn("Status"),
            columns.TableColumn("Claim"),
            columns.TableColumn("StorageClass"),
            columns.TableColumn("Reason"),
            columns.AGE,
            columns.wide("VolumeMode"),
        ),
        (
            columns.cell_name,
            columns.field_cell("spec", "capacity", "storage", default=""),
            _modes,
            columns.field_cell("spec", "persistentVolumeReclaimPolicy", default=""),
            columns.field_cell("status", "phase", default=""),
            _claim_of,
            columns.field_cell("spec", "storageClassName", default=""),
            columns.field_cell("status", "reason", default=""),
            columns.cell_age,
            columns.field_cell("spec", "volumeMode", default="<unset>"),
        ),
    ),
    BucketId("poddisruptionbudgets", "policy"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Min Available"),
            columns.TableColumn("Max Unavailable"),
            columns.TableColumn("Allowed Disruptions", "integer"),
            columns.AGE,
        ),
        (
            columns.cell_name,
            _budget_bound("minAvailable"),
            _budget_bound("maxUnavailable"),
            columns.field_cell("status", "disruptionsAllowed", default=0),
            columns.cell_age,
        ),
    ),
    BucketId("leases", "coordination.k8s.io"): columns.Printer(
        (columns.NAME, columns.TableColumn("Holder"), columns.AGE),
        (
            columns.cell_name,
            columns.field_cell("spec", "holderIdentity", default=""),
            columns.cell_age,
        ),
    ),
    BucketId("customresourcedefinitions", "apiextensions.k8s.io"): columns.Printer(
        (columns.NAME, columns.TableColumn("Created At", "date")),
        (columns.cell_name, lambda obj: meta(obj).get("creationTimestamp")),
    ),
    BucketId("clusterroles", "rbac.authorization.k8s.io"): columns.Printer(
        (columns.NAME, columns.TableColumn("Created At", "date")),
        (columns.cell_name, lambda obj: meta(obj).get("creationTimestamp")),
    ),
    BucketId("roles", "rbac.authorization.k8s.io"): columns.Printer(
        (columns.NAME, columns.TableColumn("Created At", "date")),
        (columns.cell_name, lambda obj: meta(obj).get("creationTimestamp")),
    ),
    BucketId("rolebindings", "rbac.authorization.k8s.io"): _BINDINGS,
    BucketId("clusterrolebindings", "rbac.authorization.k8s.io"): _BINDINGS,
    BucketId("storageclasses", "storage.k8s.io"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Provisioner"),
            columns.TableColumn("ReclaimPolicy"),
            columns.TableColumn("VolumeBindingMode"),
            columns.TableColumn("AllowVolumeExpansion"),
            columns.AGE,
        ),
        (
            columns.cell_name,
            columns.field_cell("provisioner", default=""),
            columns.field_cell("reclaimPolicy", default="Delete"),
            columns.field_cell("volumeBindingMode", default="Immediate"),
            columns.field_cell("allowVolumeExpansion", default=False),
            columns.cell_age,
        ),
    ),
    BucketId("volumeattachments", "storage.k8s.io"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Attacher"),
            columns.TableColumn("PV"),
            columns.TableColumn("Node"),
            columns.TableColumn("Attached"),
            columns.AGE,
        ),
        (
            columns.cell_name,
            columns.field_cell("spec", "attacher", default=""),
            columns.field_cell("spec", "source", "persistentVolumeName", default=""),
            columns.field_cell("spec", "nodeName", default=""),
            columns.field_cell("status", "attached", default=False),
            columns.cell_age,
        ),
    ),
    BucketId("priorityclasses", "scheduling.k8s.io"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Value", "integer"),
            columns.TableColumn("Global-Default", "boolean"),
            columns.AGE,
            columns.TableColumn("PreemptionPolicy"),
        ),
        (
            columns.cell_name,
            columns.field_cell("value", default=0),
            columns.field_cell("globalDefault", default=False),
            columns.cell_age,
            columns.field_cell("preemptionPolicy", default=""),
        ),
    ),
}
"""The columns by resource."""
