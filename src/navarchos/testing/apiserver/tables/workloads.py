"""Columns of pods and workloads.

The status of a pod follows kubectl's `printPod`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from navarchos.testing.apiserver.objects import (
    JsonObject,
    JsonValue,
    conditions_of,
    dig,
    is_condition_true,
    meta,
)
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
    human_duration,
    selector_text,
    wide,
)

__all__ = ["POD_PRINTERS", "WORKLOAD_PRINTERS"]
_PODS: Final = ("spec", "template", "spec", "containers")
_EXTRA: Final = (wide("Containers"), wide("Images"), wide("Selector"))
_CRON_PODS: Final = ("spec", "jobTemplate", "spec", "template", "spec", "containers")


def _statuses(pod: JsonObject) -> Sequence[JsonObject]:
    found: Sequence[JsonObject] = dig(pod, "status", "containerStatuses", default=[])
    return found


def _ready(pod: JsonObject) -> str:
    ready = sum(bool(status.get("ready")) for status in _statuses(pod))
    return f"{ready}/{len(dig(pod, 'spec', 'containers', default=[]))}"


def _status(pod: JsonObject) -> str:
    reason: str = dig(pod, "status", "reason") or dig(pod, "status", "phase", default="Unknown")
    reason = _init_reason(pod) or _container_reason(pod, reason)
    if meta(pod).get("deletionTimestamp"):
        phase = dig(pod, "status", "phase")
        if dig(pod, "status", "reason") == "NodeLost":
            return "Unknown"
        return reason if phase in {"Succeeded", "Failed"} else "Terminating"
    return reason


def _init_reason(pod: JsonObject) -> str:
    statuses = dig(pod, "status", "initContainerStatuses", default=[])
    for index, status in enumerate(statuses):
        state = status.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or 'ExitCode:' + str(ended.get('exitCode'))}"
        waiting = dig(state, "waiting", "reason", default="")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(dig(pod, 'spec', 'initContainers', default=[]))}"
    return ""


def _container_reason(pod: JsonObject, reason: str) -> str:
    running = False
    for status in reversed(_statuses(pod)):
        state = status.get("state") or {}
        if found := dig(state, "waiting", "reason"):
            reason = found
        elif state.get("terminated") is not None:
            reason = _ended(state["terminated"])
        elif status.get("ready") and state.get("running") is not None:
            running = True
    if reason == "Completed" and running:
        return "Running" if is_condition_true(pod, "Ready") else "NotReady"
    return reason


def _ended(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _restarts(pod: JsonObject) -> JsonValue:
    count = sum(int(status.get("restartCount") or 0) for status in _statuses(pod))
    ends = [dig(s, "lastState", "terminated", "finishedAt") for s in _statuses(pod)]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({age_since(last)} ago)" if count and last else str(count)


def _gates(pod: JsonObject) -> str:
    gates = dig(pod, "spec", "readinessGates", default=[])
    if not gates:
        return "<none>"
    met = sum(is_condition_true(pod, gate.get("conditionType", "")) for gate in gates)
    return f"{met}/{len(gates)}"


POD_PRINTERS: Final = {
    BucketId("pods", ""): Printer(
        (
            NAME,
            TableColumn("Ready"),
            TableColumn("Status"),
            TableColumn("Restarts"),
            AGE,
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ),
        (
            cell_name,
            _ready,
            _status,
            _restarts,
            cell_age,
            field_cell("status", "podIP"),
            field_cell("spec", "nodeName"),
            field_cell("status", "nominatedNodeName"),
            _gates,
        ),
    )
}
"""The columns by resource."""


def _of_containers(field: str, *path: str) -> Cell:
    def cell(obj: JsonObject) -> str:
        return ",".join(str(c.get(field) or "") for c in dig(obj, *path, default=[]))

    return cell


def _selector(obj: JsonObject) -> str:
    return selector_text(dig(obj, "spec", "selector"))


_EXTRA_CELLS: Final[tuple[Cell, ...]] = (
    _of_containers("name", *_PODS),
    _of_containers("image", *_PODS),
    _selector,
)


def _counted(field: str) -> Cell:
    return field_cell("status", field, default=0)


def _ready_of_wanted(obj: JsonObject) -> str:
    ready = dig(obj, "status", "readyReplicas", default=0)
    return f"{ready}/{dig(obj, 'spec', 'replicas', default=0)}"


def _node_selector(obj: JsonObject) -> str:
    selector = dig(obj, "spec", "template", "spec", "nodeSelector", default={})
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"


def _job_status(job: JsonObject) -> str:
    true = {c.get("type") for c in conditions_of(job) if c.get("status") == "True"}
    for condition, shown in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
    ):
        if condition in true:
            return shown
    if meta(job).get("deletionTimestamp"):
        return "Terminating"
    return "FailureTarget" if "FailureTarget" in true else "Running"


def _completions(job: JsonObject) -> str:
    done = dig(job, "status", "succeeded", default=0)
    return f"{done}/{dig(job, 'spec', 'completions', default=1)}"


def _job_duration(job: JsonObject) -> str:
    started = dig(job, "status", "startTime")
    if not started:
        return ""
    ended = dig(job, "status", "completionTime")
    end = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
    return human_duration((end - datetime.fromisoformat(started)).total_seconds())


def _last_schedule(job: JsonObject) -> JsonValue:
    found = dig(job, "status", "lastScheduleTime")
    return age_since(found) if found else "<none>"


WORKLOAD_PRINTERS: Final = {
    BucketId("deployments", "apps"): Printer(
        (
            NAME,
            TableColumn("Ready"),
            TableColumn("Up-to-date"),
            TableColumn("Available"),
            AGE,
            *_EXTRA,
        ),
        (
            cell_name,
            _ready_of_wanted,
            _counted("updatedReplicas"),
            _counted("availableReplicas"),
            cell_age,
            *_EXTRA_CELLS,
        ),
    ),
    BucketId("replicasets", "apps"): Printer(
        (
            NAME,
            TableColumn("Desired", "integer"),
            TableColumn("Current", "integer"),
            TableColumn("Ready", "integer"),
            AGE,
            *_EXTRA,
        ),
        (
            cell_name,
            field_cell("spec", "replicas", default=0),
            _counted("replicas"),
            _counted("readyReplicas"),
            cell_age,
            *_EXTRA_CELLS,
        ),
    ),
    BucketId("statefulsets", "apps"): Printer(
        (NAME, TableColumn("Ready"), AGE, wide("Containers"), wide("Images")),
        (cell_name, _ready_of_wanted, cell_age, *_EXTRA_CELLS[:2]),
    ),
    BucketId("daemonsets", "apps"): Printer(
        (
            NAME,
            TableColumn("Desired", "integer"),
            TableColumn("Current", "integer"),
            TableColumn("Ready", "integer"),
            TableColumn("Up-to-date", "integer"),
            TableColumn("Available", "integer"),
            TableColumn("Node Selector"),
            AGE,
            *_EXTRA,
        ),
        (
            cell_name,
            _counted("desiredNumberScheduled"),
            _counted("currentNumberScheduled"),
            _counted("numberReady"),
            _counted("updatedNumberScheduled"),
            _counted("numberAvailable"),
            _node_selector,
            cell_age,
            *_EXTRA_CELLS,
        ),
    ),
    BucketId("jobs", "batch"): Printer(
        (
            NAME,
            TableColumn("Status"),
            TableColumn("Completions"),
            TableColumn("Duration"),
            AGE,
            *_EXTRA,
        ),
        (cell_name, _job_status, _completions, _job_duration, cell_age, *_EXTRA_CELLS),
    ),
    BucketId("cronjobs", "batch"): Printer(
        (
            NAME,
            TableColumn("Schedule"),
            TableColumn("Timezone"),
            TableColumn("Suspend", "boolean"),
            TableColumn("Active", "integer"),
            TableColumn("Last Schedule"),
            AGE,
            wide("Containers"),
            wide("Images"),
        ),
        (
            cell_name,
            field_cell("spec", "schedule", default=""),
            field_cell("spec", "timeZone"),
            field_cell("spec", "suspend", default=False),
            lambda job: len(dig(job, "status", "active", default=[])),
            _last_schedule,
            cell_age,
            _of_containers("name", *_CRON_PODS),
            _of_containers("image", *_CRON_PODS),
        ),
    ),
    BucketId("controllerrevisions", "apps"): Printer(
        (NAME, TableColumn("Revision"), AGE),
        (cell_name, field_cell("revision", default=0), cell_age),
    ),
}
"""The columns by resource."""
