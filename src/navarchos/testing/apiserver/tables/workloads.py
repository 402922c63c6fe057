"""Deployments and the other workloads."""

from datetime import UTC, datetime
from typing import Final

from navarchos.testing.apiserver.objects import JsonObject, JsonValue, conditions_of, dig, meta
from navarchos.testing.apiserver.store import BucketId
from navarchos.testing.apiserver.tables.cells import (
    AGE,
    NAME,
    Cell,
    Column,
    Printer,
    age_since,
    cell_age,
    cell_name,
    field_cell,
    human_duration,
    selector_text,
    wide,
)

__all__ = ["WORKLOAD_PRINTERS"]

_PODS: Final = ("spec", "template", "spec", "containers")
_EXTRA: Final = (wide("Containers"), wide("Images"), wide("Selector"))


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


_CRON_PODS: Final = ("spec", "jobTemplate", "spec", "template", "spec", "containers")

WORKLOAD_PRINTERS: Final = {
    BucketId("deployments", "apps"): Printer(
        (NAME, Column("Ready"), Column("Up-to-date"), Column("Available"), AGE, *_EXTRA),
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
            Column("Desired", "integer"),
            Column("Current", "integer"),
            Column("Ready", "integer"),
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
        (NAME, Column("Ready"), AGE, wide("Containers"), wide("Images")),
        (cell_name, _ready_of_wanted, cell_age, *_EXTRA_CELLS[:2]),
    ),
    BucketId("daemonsets", "apps"): Printer(
        (
            NAME,
            Column("Desired", "integer"),
            Column("Current", "integer"),
            Column("Ready", "integer"),
            Column("Up-to-date", "integer"),
            Column("Available", "integer"),
            Column("Node Selector"),
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
        (NAME, Column("Status"), Column("Completions"), Column("Duration"), AGE, *_EXTRA),
        (cell_name, _job_status, _completions, _job_duration, cell_age, *_EXTRA_CELLS),
    ),
    BucketId("cronjobs", "batch"): Printer(
        (
            NAME,
            Column("Schedule"),
            Column("Timezone"),
            Column("Suspend", "boolean"),
            Column("Active", "integer"),
            Column("Last Schedule"),
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
        (NAME, Column("Revision"), AGE),
        (cell_name, field_cell("revision", default=0), cell_age),
    ),
}
"""By what they show."""
