"""Pods under drain, built from the few facts that a test is about."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from navarchos.drain import Action, Finding, PlannedPod, Pod, Reason

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

_REASONS = {
    Action.EVICT: Reason.ORDINARY,
    Action.WAIT: Reason.TERMINATING,
    Action.IGNORE: Reason.DAEMON_SET,
    Action.REFUSE: Reason.UNMANAGED,
}


def planned(
    name: str,
    namespace: str = "default",
    *,
    action: Action = Action.EVICT,
    ready: bool = True,
    labels: Mapping[str, str] | None = None,
    owner: str = "web",
    terminating_at: str = "",
    uid: str = "",
) -> PlannedPod:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "labels": labels or {},
    }
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner,
                "uid": f"uid-{owner}",
                "controller": True,
            }
        ]
    if terminating_at:
        metadata["deletionTimestamp"] = terminating_at
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    wire = {"metadata": metadata, "status": {"phase": "Running", "conditions": conditions}}
    return PlannedPod(msgspec.convert(wire, Pod), Finding(action, _REASONS[action], "a message"))


@pytest.fixture(scope="session")
def plan_pod() -> Callable[..., PlannedPod]:
    return planned


@pytest.fixture(scope="session")
def now() -> datetime:
    return NOW
