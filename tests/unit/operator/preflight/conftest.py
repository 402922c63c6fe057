"""A healthy cluster for plans, to which tests add objects and faults."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest

from navarchos.client import Client, ClientConfig, HttpRequest, Resource
from navarchos.client.http.pool import PooledTransport
from navarchos.client.transport import BufferedResponse, Response
from navarchos.drain import BUDGETS, DAEMON_SETS
from navarchos.operator.api.v1alpha1 import GROUP, NODE_REPLACEMENTS, NODE_ROLLOUTS, NodeRollout
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.preflight import ClusterState, PredictedRollout, collect, predict
from navarchos.operator.preflight.kinds import (
    NAMESPACES,
    PERSISTENT_VOLUMES,
    PLAN_NODES,
    PLAN_PODS,
    VOLUME_CLAIMS,
)
from navarchos.testing.apiserver import ApiServer, Fault

T = TypeVar("T")

OLD = "2026-01-01T11:00:00Z"

REPLICAS = ("example.org/v1", "Replicas", "")
"""A kind that the server does not know, so that it does not garbage-collect its pods."""


class Scripted:
    """A transport that answers some paths itself: kinds that the in-process server lacks."""

    def __init__(self, inner: PooledTransport, answers: dict[str, tuple[int, Any]]) -> None:
        self._inner = inner
        self._answers = answers

    def send(self, request: HttpRequest) -> Response:
        path = request.target.partition("?")[0]
        if path not in self._answers:
            return self._inner.send(request)
        status, body = self._answers[path]
        return BufferedResponse(
            status, {"content-type": "application/json"}, json.dumps(body).encode()
        )

    def close(self) -> None:
        self._inner.close()


@dataclass
class Cluster:
    """Three nodes. The rollout replaces the node `old`, which has one evictable pod."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=lambda: {"nodeNames": [{"name": "old"}]})
    faults: list[Fault] = field(default_factory=list)
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add("v1", "Namespace", "shop", "")
        self.node("old", "a")
        self.node("other", "a")
        self.node("far", "b")
        self.daemon_set("logs")
        self.pod("web-1", "old", app="web")
        self.pod("web-2", "other", app="web")
        self.pod("logs-1", "old", owner=("apps/v1", "DaemonSet", "logs"), app="logs")
        self.budget("web", healthy=2, desired=1)

    def add(
        self, version: str, kind: str, name: str, namespace: str = "shop", **rest: Any
    ) -> dict[str, Any]:
        metadata = {
            "name": name,
            "creationTimestamp": OLD,
            **({"namespace": namespace} if namespace else {}),
            **rest.pop("metadata", {}),
        }
        made = {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}
        self.objects[kind, name] = made
        return made

    def node(
        self,
        name: str,
        zone: str,
        *,
        ready: bool = True,
        cpu: str = "4",
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        every = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        self.add(
            "v1",
            "Node",
            name,
            "",
            metadata={"labels": {**every, **(labels or {})}},
            spec=spec,
            status={
                "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
            },
        )

    def daemon_set(self, name: str) -> None:
        labels = {"app": name}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        self.add(
            "apps/v1",
            "DaemonSet",
            name,
            metadata={"uid": f"uid-DaemonSet-{name}"},
            spec={"selector": {"matchLabels": labels}, "template": template},
        )

    def pod(
        self,
        name: str,
        node: str = "old",
        *,
        owner: tuple[str, str, str] | None = REPLICAS,
        app: str = "",
        ready: bool = True,
        cpu: str = "100m",
        metadata: dict[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        app = app or name
        owners = []
        if owner is not None:
            version, kind, of = owner
            owners = [
                {
                    "apiVersion": version,
                    "kind": kind,
                    "name": of or app,
                    "uid": f"uid-{kind}-{of or app}",
                    "controller": True,
                }
            ]
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        self.add(
            "v1",
            "Pod",
            name,
            metadata={"labels": {"app": app}, "ownerReferences": owners, **(metadata or {})},
            spec={"nodeName": node, "containers": [container], **spec},
            status={
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        )

    def budget(
        self,
        name: str,
        *,
        app: str = "",
        healthy: int,
        desired: int,
        expected: int = 0,
        observed: int = 1,
        policy: str | None = None,
    ) -> None:
        spec: dict[str, Any] = {
            "selector": {"matchLabels": {"app": app or name}},
            "minAvailable": desired,
        }
        if policy is not None:
            spec["unhealthyPodEvictionPolicy"] = policy
        self.add(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            metadata={"generation": 1},
            spec=spec,
            status={
                "observedGeneration": observed,
                "disruptionsAllowed": max(0, healthy - desired),
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected or max(healthy, desired),
            },
        )

    def rollout(self, name: str, **spec: Any) -> dict[str, Any]:
        return self.add(f"{GROUP}/v1alpha1", "NodeRollout", name, "", spec=spec)

    def plan(self) -> PredictedRollout:
        """Predict from the objects, without a server."""
        metadata = {"name": "roll", "uid": "uid-roll"}
        rollout = msgspec.convert({"metadata": metadata, "spec": self.spec}, NodeRollout)
        claims, volumes = self._of(VOLUME_CLAIMS), self._of(PERSISTENT_VOLUMES)
        state = ClusterState(
            nodes=self._of(PLAN_NODES),
            pods=self._of(PLAN_PODS),
            budgets=self._of(BUDGETS),
            daemon_sets=frozenset(("shop", d.metadata.name) for d in self._of(DAEMON_SETS)),
            terminating=frozenset(
                n.metadata.name for n in self._of(NAMESPACES) if n.metadata.deletion_timestamp
            ),
            rollouts=self._of(NODE_ROLLOUTS),
            replacements=self._of(NODE_REPLACEMENTS),
            claims={(c.metadata.namespace, c.metadata.name): c for c in claims},
            volumes={volume.metadata.name: volume for volume in volumes},
        )
        (predicted,) = predict([rollout], state, datetime.now(UTC))
        return predicted

    def _of(self, resource: Resource[T]) -> list[T]:
        found = [made for (kind, _), made in self.objects.items() if kind == resource.kind]
        named = [{**o, "metadata": {"uid": o["metadata"]["name"], **o["metadata"]}} for o in found]
        return [msgspec.convert(each, resource.type) for each in named]

    def plan_on_server(self) -> PredictedRollout:
        """Install the objects on a server, and predict from what `collect` returns."""
        with ApiServer(crds=manifests()) as server:
            server.install(*self.objects.values())
            for fault in self.faults:
                server.faults.add(fault)
            config = ClientConfig(host=server.url)
            transport = Scripted(PooledTransport(config), self.answers)
            with Client(config, transport=transport) as client:
                made = client.resource(NODE_ROLLOUTS).create(
                    {"metadata": {"name": "roll"}, "spec": self.spec}, dry_run=True
                )
                now = datetime.now(UTC)
                (predicted,) = predict([made], collect(client, [made], now), now)
            self.requests = dict(server.requests)
        return predicted


@pytest.fixture(scope="session")
def make_cluster() -> Callable[[], Cluster]:
    return Cluster
