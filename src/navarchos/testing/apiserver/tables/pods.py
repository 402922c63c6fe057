"""Pods: the STATUS column is a small story, told here as printPod tells it."""

from collections.abc import Sequence
from typing import Any, Final

from navarchos.testing.apiserver.objects import (
    JsonObject,
    JsonValue,
    dig,
    is_condition_true,
    meta,
)
from navarchos.testing.apiserver.store import BucketId
from navarchos.testing.apiserver.tables.cells import (
    AGE,
    NAME,
    Column,
    Printer,
    age_since,
    cell_age,
    cell_name,
    field_cell,
    wide,
)

__all__ = ["POD_PRINTERS"]


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
            Column("Ready"),
            Column("Status"),
            Column("Restarts"),
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
"""By what they show."""
