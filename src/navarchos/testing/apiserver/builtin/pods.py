"""Pods and pod templates: defaults, quality of service, immutable fields."""

from collections.abc import Iterator
from typing import Final

from navarchos.testing.apiserver import kinds, objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.names import dns_label, dns_subdomain, validate_labels

__all__ = ["POD", "default_pod_spec", "is_pod_ready", "validate_pod_spec"]

_MUTABLE_SPEC: Final = frozenset(
    {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"}
)
_UPDATE_REFUSED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions"
    " to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it"
    " was previously negative)"
)
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def is_pod_ready(pod: objects.JsonObject) -> bool:
    """Return whether the condition `Ready` is true."""
    conditions = objects.dig(pod, "status", "conditions", default=[])
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _containers(spec: objects.JsonObject) -> Iterator[tuple[str, objects.JsonObject]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or []):
            yield f"{field}[{index}]", container


def default_pod_spec(spec: objects.JsonObject) -> None:
    """Set the defaults of a pod or of a pod template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for _, container in _containers(spec):
        _default_container(container)
    for volume in spec.get("volumes") or []:
        _default_volume(volume)


def _default_container(container: objects.JsonObject) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    resources = container["resources"]
    for name, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)
    for probe in filter(None, (container.get(name) for name in _PROBES)):
        _default_probe(probe)
    for variable in container.get("env") or []:
        reference = objects.dig(variable, "valueFrom", "fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")


def _pull_policy(image: str) -> str:
    name = image.rpartition("/")[2]
    latest = name.endswith(":latest") or (":" not in name and "@" not in name)
    return "Always" if latest else "IfNotPresent"


def _default_probe(probe: objects.JsonObject) -> None:
    for name, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(name, value)
    if isinstance(probe.get("httpGet"), dict):
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _default_volume(volume: objects.JsonObject) -> None:
    for source in ("secret", "configMap", "projected", "downwardAPI"):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", 420)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    if not set(volume) - {"name"}:
        volume["emptyDir"] = {}


def _default(pod: objects.JsonObject) -> None:
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    pod.setdefault("status", {}).setdefault("phase", "Pending")
    pod["status"].setdefault("qosClass", _quality(spec))


def _prepare_create(pod: objects.JsonObject) -> None:
    spec = pod["spec"]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    _tolerate_unreachable_nodes(spec)


def _tolerate_unreachable_nodes(spec: objects.JsonObject) -> None:
    """Add the tolerations of the admission plugin DefaultTolerationSeconds."""
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if any(
            t.get("key") in {key, None, ""} and t.get("effect") in {"NoExecute", None, ""}
            for t in tolerations
        ):
            continue
        tolerations.append(
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        )


def _quality(spec: objects.JsonObject) -> str:
    requests: list[tuple[objects.JsonValue, objects.JsonValue]] = []
    guaranteed = True
    for _, container in _containers(spec):
        resources = container.get("resources") or {}
        for name in ("cpu", "memory"):
            request = objects.dig(resources, "requests", name)
            limit = objects.dig(resources, "limits", name)
            requests += [(request, limit)] if request or limit else []
            guaranteed = guaranteed and limit is not None and request == limit
    if not requests:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")


def validate_pod_spec(spec: objects.JsonObject, path: str) -> list[statuses.FieldError]:
    """Return the errors of the spec of a pod or of a template; `path` is the spec's path."""
    errors = []
    containers = spec.get("containers") or []
    if not containers:
        errors.append(statuses.required(f"{path}.containers"))
    names: set[str] = set()
    for at, container in _containers(spec):
        errors += _container_errors(container, f"{path}.{at}", names)
    policy = spec.get("restartPolicy")
    if policy not in {"Always", "OnFailure", "Never"}:
        errors.append(
            statuses.unsupported_value(
                f"{path}.restartPolicy", policy, ("Always", "OnFailure", "Never")
            )
        )
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        errors.append(
            statuses.invalid_value(
                f"{path}.terminationGracePeriodSeconds", grace,
                "must be greater than or equal to 0",
            )
        )  # fmt: skip
    if node := spec.get("nodeName"):
        errors += [
            statuses.invalid_value(f"{path}.nodeName", node, why) for why in dns_subdomain(node)
        ]
    errors += validate_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    return errors + _volume_errors(spec, path)


def _container_errors(
    container: objects.JsonObject, at: str, names: set[str]
) -> list[statuses.FieldError]:
    errors = []
    name = container.get("name") or ""
    if not name:
        errors.append(statuses.required(f"{at}.name"))
    elif name in names:
        errors.append(statuses.duplicate(f"{at}.name", name))
    else:
        errors += [statuses.invalid_value(f"{at}.name", name, why) for why in dns_label(name)]
    names.add(name)
    if not container.get("image"):
        errors.append(statuses.required(f"{at}.image"))
    policy = container.get("imagePullPolicy")
    if policy not in {None, *_PULL_POLICIES}:
        errors.append(statuses.unsupported_value(f"{at}.imagePullPolicy", policy, _PULL_POLICIES))
    for index, port in enumerate(container.get("ports") or []):
        number = port.get("containerPort")
        if not isinstance(number, int) or not 0 < number < 65536:
            field = f"{at}.ports[{index}].containerPort"
            errors.append(
                statuses.invalid_value(field, number, "must be between 1 and 65535, inclusive")
                if number
                else statuses.required(field)
            )
    return errors


def _volume_errors(spec: objects.JsonObject, path: str) -> list[statuses.FieldError]:
    errors = []
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        at = f"{path}.volumes[{index}].name"
        name = volume.get("name") or ""
        if not name:
            errors.append(statuses.required(at))
        elif name in names:
            errors.append(statuses.duplicate(at, name))
        names.add(name)
    for at, container in _containers(spec):
        for index, mount in enumerate(container.get("volumeMounts") or []):
            if mount.get("name") not in names:
                text = f'Not found: "{mount.get("name")}"'
                field = f"{path}.{at}.volumeMounts[{index}].name"
                errors.append(statuses.FieldError("FieldValueNotFound", field, text))
    return errors


def _validate(pod: objects.JsonObject) -> list[statuses.FieldError]:
    return validate_pod_spec(pod.get("spec") or {}, "spec")


def _validate_update(new: objects.JsonObject, old: objects.JsonObject) -> list[statuses.FieldError]:
    if _frozen_part(new["spec"]) == _frozen_part(old["spec"]):
        return []
    return [statuses.forbidden_field("spec", _UPDATE_REFUSED)]


def _frozen_part(spec: objects.JsonObject) -> objects.JsonObject:
    kept = {k: v for k, v in spec.items() if k not in _MUTABLE_SPEC}
    for field in ("containers", "initContainers"):
        if kept.get(field):
            kept[field] = [{**container, "image": ""} for container in kept[field]]
    return kept


def _prepare_update(new: objects.JsonObject, old: objects.JsonObject) -> None:
    # The quality of service is decided when a pod is created, and does not change.
    if "qosClass" in (old.get("status") or {}):
        new.setdefault("status", {})["qosClass"] = old["status"]["qosClass"]


POD: Final = kinds.KindStrategy(
    generation=True,
    status_metadata=("labels", "annotations", "finalizers"),
    returns_deleted=True,
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
)
