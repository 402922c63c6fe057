"""Columns of pods and workloads.

The status of a pod follows kubectl's `printPod`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from navarchos.testing.apiserver import objects
from navarchos.testing.apiserver.store import BucketId
from navarchos.testing.apiserver.tables import columns

__all__ = ["POD_PRINTERS", "WORKLOAD_PRINTERS"]
_PODS: Final = ("spec", "template", "spec", "containers")
_EXTRA: Final = (columns.wide("Containers"), columns.wide("Images"), columns.wide("Selector"))
_CRON_PODS: Final = ("spec", "jobTemplate", "spec", "template", "spec", "containers")


def _statuses(pod: objects.JsonObject) -> Sequence[objects.JsonObject]:
    found: Sequence[objects.JsonObject] = objects.dig(
        pod, "status", "containerStatuses", default=[]
    )
    return found


def _ready(pod: objects.JsonObject) -> str:
    ready = sum(bool(status.get("ready")) for status in _statuses(pod))
    return f"{ready}/{len(objects.dig(pod, 'spec', 'containers', default=[]))}"


def _status(pod: objects.JsonObject) -> str:
    reason: str = objects.dig(pod, "status", "reason") or objects.dig(
        pod, "status", "phase", default="Unknown"
    )
    reason = _init_reason(pod) or _container_reason(pod, reason)
    if objects.meta(pod).get("deletionTimestamp"):
        phase = objects.dig(pod, "status", "phase")
        if objects.dig(pod, "status", "reason") == "NodeLost":
            return "Unknown"
        return reason if phase in {"Succeeded", "Failed"} else "Terminating"
    return reason


def _init_reason(pod: objects.JsonObject) -> str:
    statuses = objects.dig(pod, "status", "initContainerStatuses", default=[])
    for index, status in enumerate(statuses):
        state = status.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or 'ExitCode:' + str(ended.get('exitCode'))}"
        waiting = objects.dig(state, "waiting", "reason", default="")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(objects.dig(pod, 'spec', 'initContainers', default=[]))}"
    return ""


def _container_reason(pod: objects.JsonObject, reason: str) -> str:
    running = False
    for status in reversed(_statuses(pod)):
        state = status.get("state") or {}
        if found := objects.dig(state, "waiting", "reason"):
            reason = found
        elif state.get("terminated") is not None:
            reason = _ended(state["terminated"])
        elif status.get("ready") and state.get("running") is not None:
            running = True
    if reason == "Completed" and running:
        return "Running" if objects.is_condition_true(pod, "Ready") else "NotReady"
    return reason


def _ended(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _restarts(pod: objects.JsonObject) -> objects.JsonValue:
    count = sum(int(status.get("restartCount") or 0) for status in _statuses(pod))
    ends = [objects.dig(s, "lastState", "terminated", "finishedAt") for s in _statuses(pod)]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({columns.age_since(last)} ago)" if count and last else str(count)


def _gates(pod: objects.JsonObject) -> str:
    gates = objects.dig(pod, "spec", "readinessGates", default=[])
    if not gates:
        return "<none>"
    met = sum(objects.is_condition_true(pod, gate.get("conditionType", "")) for gate in gates)
    return f"{met}/{len(gates)}"


POD_PRINTERS: Final = {
    BucketId("pods", ""): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Ready"),
            columns.TableColumn("Status"),
            columns.TableColumn("Restarts"),
            columns.AGE,
            columns.wide("IP"),
            columns.wide("Node"),
            columns.wide("Nominated Node"),
            columns.wide("Readiness Gates"),
        ),
        (
            columns.cell_name,
            _ready,
            _status,
            _restarts,
            columns.cell_age,
            columns.field_cell("status", "podIP"),
            columns.field_cell("spec", "nodeName"),
            columns.field_cell("status", "nominatedNodeName"),
            _gates,
        ),
    )
}
"""The columns by resource."""


def _of_containers(field: str, *path: str) -> columns.Cell:
    def cell(obj: objects.JsonObject) -> str:
        return ",".join(str(c.get(field) or "") for c in objects.dig(obj, *path, default=[]))

    return cell


def _selector(obj: objects.JsonObject) -> str:
    return columns.selector_text(objects.dig(obj, "spec", "selector"))


_EXTRA_CELLS: Final[tuple[columns.Cell, ...]] = (
    _of_containers("name", *_PODS),
    _of_containers("image", *_PODS),
    _selector,
)


def _counted(field: str) -> columns.Cell:
    return columns.field_cell("status", field, default=0)


def _ready_of_wanted(obj: objects.JsonObject) -> str:
    ready = objects.dig(obj, "status", "readyReplicas", default=0)
    return f"{ready}/{objects.dig(obj, 'spec', 'replicas', default=0)}"


def _node_selector(obj: objects.JsonObject) -> str:
    selector = objects.dig(obj, "spec", "template", "spec", "nodeSelector", default={})
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"


def _job_status(job: objects.JsonObject) -> str:
    true = {c.get("type") for c in objects.conditions_of(job) if c.get("status") == "True"}
    for condition, shown in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
    ):
        if condition in true:
            return shown
    if objects.meta(job).get("deletionTimestamp"):
        return "Terminating"
    return "FailureTarget" if "FailureTarget" in true else "Running"


def _completions(job: objects.JsonObject) -> str:
    done = objects.dig(job, "status", "succeeded", default=0)
    return f"{done}/{objects.dig(job, 'spec', 'completions', default=1)}"


def _job_duration(job: objects.JsonObject) -> str:
    started = objects.dig(job, "status", "startTime")
    if not started:
        return ""
    ended = objects.dig(job, "status", "completionTime")
    end = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
    return columns.human_duration((end - datetime.fromisoformat(started)).total_seconds())


def _last_schedule(job: objects.JsonObject) -> objects.JsonValue:
    found = objects.dig(job, "status", "lastScheduleTime")
    return columns.age_since(found) if found else "<none>"


WORKLOAD_PRINTERS: Final = {
    BucketId("deployments", "apps"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Ready"),
            columns.TableColumn("Up-to-date"),
            columns.TableColumn("Available"),
            columns.AGE,
            *_EXTRA,
        ),
        (
            columns.cell_name,
            _ready_of_wanted,
            _counted("updatedReplicas"),
            _counted("availableReplicas"),
            columns.cell_age,
            *_EXTRA_CELLS,
        ),
    ),
    BucketId("replicasets", "apps"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Desired", "integer"),
            columns.TableColumn("Current", "integer"),
            columns.TableColumn("Ready", "integer"),
            columns.AGE,
            *_EXTRA,
        ),
        (
            columns.cell_name,
            columns.field_cell("spec", "replicas", default=0),
            _counted("replicas"),
            _counted("readyReplicas"),
            columns.cell_age,
            *_EXTRA_CELLS,
        ),
    ),
    BucketId("statefulsets", "apps"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Ready"),
            columns.AGE,
            columns.wide("Containers"),
            columns.wide("Images"),
        ),
        (columns.cell_name, _ready_of_wanted, columns.cell_age, *_EXTRA_CELLS[:2]),
    ),
    BucketId("daemonsets", "apps"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Desired", "integer"),
            columns.TableColumn("Current", "integer"),
            columns.TableColumn("Ready", "integer"),
            columns.TableColumn("Up-to-date", "integer"),
            columns.TableColumn("Available", "integer"),
            columns.TableColumn("Node Selector"),
            columns.AGE,
            *_EXTRA,
        ),
        (
            columns.cell_name,
            _counted("desiredNumberScheduled"),
            _counted("currentNumberScheduled"),
            _counted("numberReady"),
            _counted("updatedNumberScheduled"),
            _counted("numberAvailable"),
            _node_selector,
            columns.cell_age,
            *_EXTRA_CELLS,
        ),
    ),
    BucketId("jobs", "batch"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Status"),
            columns.TableColumn("Completions"),
            columns.TableColumn("Duration"),
            columns.AGE,
            *_EXTRA,
        ),
        (
            columns.cell_name,
            _job_status,
            _completions,
            _job_duration,
            columns.cell_age,
            *_EXTRA_CELLS,
        ),
    ),
    BucketId("cronjobs", "batch"): columns.Printer(
        (
            columns.NAME,
            columns.TableColumn("Schedule"),
            columns.TableColumn("Timezone"),
            columns.TableColumn("Suspend", "boolean"),
            columns.TableColumn("Active", "integer"),
            columns.TableColumn("Last Schedule"),
            columns.AGE,
            columns.wide("Containers"),
            columns.wide("Images"),
        ),
        (
            columns.cell_name,
            columns.field_cell("spec", "schedule", default=""),
            columns.field_cell("spec", "timeZone"),
            columns.field_cell("spec", "suspend", default=False),
            lambda job: len(objects.dig(job, "status", "active", default=[])),
            _last_schedule,
            columns.cell_age,
            _of_containers("name", *_CRON_PODS),
            _of_containers("image", *_CRON_PODS),
        ),
    ),
    BucketId("controllerrevisions", "apps"): columns.Printer(
        (columns.NAME, columns.TableColumn("Revision"), columns.AGE),
        (columns.cell_name, columns.field_cell("revision", default=0), columns.cell_age),
    ),
}
"""The columns by resource."""
