"""Workloads of apps/v1 and batch/v1: defaults, and the checks that users run into."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from navarchos.testing.apiserver import kinds, objects, selectors
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.builtin.pods import default_pod_spec, validate_pod_spec

__all__ = ["CRON_JOB", "DAEMON_SET", "DEPLOYMENT", "JOB", "REPLICA_SET", "STATEFUL_SET"]

_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_WORKLOAD_STATUS_METADATA: Final = ("annotations", "finalizers")


def _default_template(spec: objects.JsonObject) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def _default_deployment(obj: objects.JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    _default_template(spec)
    obj.setdefault("status", {})


def _default_replica_set(obj: objects.JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _default_template(spec)
    obj.setdefault("status", {"replicas": 0})


def _default_stateful_set(obj: objects.JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    update = spec.setdefault("updateStrategy", {})
    if update.setdefault("type", "RollingUpdate") == "RollingUpdate":
        update.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    _default_template(spec)
    obj.setdefault("status", {"replicas": 0, "availableReplicas": 0})


def _default_daemon_set(obj: objects.JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    update = spec.setdefault("updateStrategy", {})
    if update.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = update.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    _default_template(spec)
    counters = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled")
    obj.setdefault("status", dict.fromkeys((*counters, "numberReady"), 0))


def _begin_template_generation(obj: objects.JsonObject) -> None:
    obj["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = "1"


def _count_template_generation(new: objects.JsonObject, old: objects.JsonObject) -> None:
    now = int(objects.dig(old, "metadata", "annotations", _TEMPLATE_GENERATION, default=1))
    changed = new["spec"].get("template") != old["spec"].get("template")
    annotations = new["metadata"].setdefault("annotations", {})
    annotations[_TEMPLATE_GENERATION] = str(now + changed)


def _default_job_spec(spec: objects.JsonObject) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("manualSelector", False)
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def _default_job(obj: objects.JsonObject) -> None:
    _default_job_spec(obj.setdefault("spec", {}))
    labels = obj["spec"]["template"]["metadata"].get("labels")
    if labels and not objects.meta(obj).get("labels"):
        obj["metadata"]["labels"] = (
            labels  # upstream shares one map between both, which shows in later changes
        )
    obj.setdefault("status", {})


def _select_own_pods(obj: objects.JsonObject) -> None:
    """Set the selector and the labels that upstream generates for a new job."""
    spec = obj["spec"]
    if spec.get("manualSelector"):
        return
    uid = objects.meta(obj)["uid"]
    name = objects.meta(obj).get("name") or ""
    labels = spec["template"]["metadata"].setdefault("labels", {})
    if not objects.meta(obj).get("labels"):
        obj["metadata"]["labels"] = labels
    labels.update(
        {
            "controller-uid": uid,
            "job-name": name,
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
        }
    )
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _default_cron_job(obj: objects.JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    if isinstance(objects.dig(spec, "jobTemplate", "spec", "template", "spec"), dict):
        default_pod_spec(spec["jobTemplate"]["spec"]["template"]["spec"])
    obj.setdefault("status", {})


def _selector_errors(obj: objects.JsonObject) -> list[statuses.FieldError]:
    spec = obj.get("spec") or {}
    selector = spec.get("selector")
    errors: list[statuses.FieldError] = []
    replicas = spec.get("replicas")
    if isinstance(replicas, int) and replicas < 0:
        text = "must be greater than or equal to 0"
        errors.append(statuses.invalid_value("spec.replicas", replicas, text))
    if selector is None:
        errors.append(statuses.required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        text = "empty selector is invalid for deployment"
        errors.append(statuses.invalid_value("spec.selector", selector, text))
    labels = objects.dig(spec, "template", "metadata", "labels", default={})
    try:
        if not selectors.label_selector_matches(selector, labels):
            text = "`selector` does not match template `labels`"
            errors.append(statuses.invalid_value("spec.template.metadata.labels", labels, text))
    except ValueError as error:
        errors.append(statuses.invalid_value("spec.selector", selector, str(error)))
    return errors + validate_pod_spec(
        objects.dig(spec, "template", "spec", default={}), "spec.template.spec"
    )


def _validate_long_running(obj: objects.JsonObject) -> list[statuses.FieldError]:
    errors = _selector_errors(obj)
    policy = objects.dig(obj, "spec", "template", "spec", "restartPolicy")
    if policy not in {"Always", None}:
        field = "spec.template.spec.restartPolicy"
        errors.append(statuses.unsupported_value(field, policy, ("Always",)))
    return errors


def _validate_job(obj: objects.JsonObject) -> list[statuses.FieldError]:
    spec = obj.get("spec") or {}
    path = "spec.template.spec"
    errors = validate_pod_spec(objects.dig(spec, "template", "spec", default={}), path)
    policy = objects.dig(spec, "template", "spec", "restartPolicy")
    if policy == "Always":
        errors.append(
            statuses.required(f"{path}.restartPolicy", 'valid values: "OnFailure", "Never"')
        )
    return errors


def _validate_cron_job(obj: objects.JsonObject) -> list[statuses.FieldError]:
    return [] if objects.dig(obj, "spec", "schedule") else [statuses.required("spec.schedule")]


def _immutable(
    *paths: str,
) -> Callable[[objects.JsonObject, objects.JsonObject], list[statuses.FieldError]]:
    def check(new: objects.JsonObject, old: objects.JsonObject) -> list[statuses.FieldError]:
        return [
            statuses.invalid_value(path, objects.dig(new, *path.split(".")), "field is immutable")
            for path in paths
            if objects.dig(new, *path.split(".")) != objects.dig(old, *path.split("."))
        ]

    return check


def _workload(
    default: Callable[[objects.JsonObject], None],
    *immutable: str,
) -> kinds.KindStrategy:
    return kinds.KindStrategy(
        generation=True,
        default=default,
        validate=_validate_long_running,
        validate_update=_immutable("spec.selector", *immutable),
    )


DEPLOYMENT: Final = replace(
    _workload(_default_deployment), status_metadata=_WORKLOAD_STATUS_METADATA
)
REPLICA_SET: Final = _workload(_default_replica_set)
STATEFUL_SET: Final = _workload(
    _default_stateful_set, "spec.serviceName", "spec.podManagementPolicy"
)
DAEMON_SET: Final = replace(
    _workload(_default_daemon_set),
    prepare_create=_begin_template_generation,
    prepare_update=_count_template_generation,
)
JOB: Final = kinds.KindStrategy(
    generation=True,
    orphans=True,
    default=_default_job,
    prepare_create=_select_own_pods,
    validate=_validate_job,
    validate_update=_immutable("spec.selector", "spec.completionMode", "spec.template"),
)
CRON_JOB: Final = kinds.KindStrategy(
    generation=True, default=_default_cron_job, validate=_validate_cron_job
)
