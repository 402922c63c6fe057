"""Builders of nodes, pods and workloads."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from navarchos.testing.cluster.kinds import Node, Pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def json_pod(
    name: str = "web-1",
    *,
    namespace: str = "shop",
    uid: str = "",
    node: str = "node-1",
    ready: bool = True,
    phase: str = "Running",
    terminating: bool = False,
    grace: int = 30,
    labels: Mapping[str, str] | None = None,
    owner: tuple[str, str] | None = ("ReplicaSet", "web"),
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, object] | None = None,
    created: str = "2026-01-01T00:00:00Z",
) -> dict[str, Any]:
    """Return a pod as JSON."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "creationTimestamp": created,
        "labels": dict(labels or {"app": "web"}),
        "annotations": dict(annotations or {}),
    }
    if owner is not None:
        kind, of = owner
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": of, "uid": f"uid-{of}"}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T12:00:30Z"
        metadata["deletionGracePeriodSeconds"] = grace
    status = "True" if ready else "False"
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [{"name": "web"}], **(spec or {})},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": status}],
        },
    }


@pytest.fixture
def raw_pod() -> Callable[..., dict[str, Any]]:
    """Return a builder of pods as JSON; see `json_pod`."""
    return json_pod


@pytest.fixture
def make_pod() -> Callable[..., Pod]:
    """Return a builder of decoded pods; see `json_pod`."""
    return lambda *args, **options: msgspec.convert(json_pod(*args, **options), Pod)


@pytest.fixture
def make_node() -> Callable[..., Node]:
    """Return a builder of ready nodes with capacity for `pods` pods and `cpu` processors."""

    def node(
        name: str = "node-1",
        *,
        ready: bool = True,
        pods: int = 10,
        cpu: str = "4",
        created: str = "2026-01-01T00:00:00Z",
        labels: Mapping[str, str] | None = None,
        **spec: object,
    ) -> Node:
        room = {"pods": str(pods), "cpu": cpu, "memory": "8Gi"}
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        return msgspec.convert(
            {
                "metadata": {
                    "name": name,
                    "uid": f"uid-{name}",
                    "creationTimestamp": created,
                    "labels": dict(labels or {}),
                },
                "spec": spec,
                "status": {"allocatable": room, "conditions": conditions},
            },
            Node,
        )

    return node


@pytest.fixture
def now() -> datetime:
    """Return the current time of these tests."""
    return NOW
