"""The cluster of a model run: nodes, workloads, and the actors that move pods.

A few actors with one step per second stand for the controllers, the scheduler and the
kubelets. The operator sees only their changes of pods, nodes and budgets.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import msgspec
from tests.model.scheduling import Scheduler
from tests.model.serving import Server
from tests.registering import MANAGERS

from navarchos.meta import format_time
from navarchos.operator.nodes import CONTROL_PLANE_LABEL
from navarchos.testing.cluster.budgets import required_health, status_of
from navarchos.testing.cluster.options import Agent

__all__ = ["Cluster", "Workload"]

JsonObject = dict[str, Any]

_APP: Final = "app"
_SHORTEST_END, _LONGEST_END = 1.0, 6.0


@dataclass(slots=True)
class Workload:
    """A set of equal pods.

    Attributes:
        name: The name of the ReplicaSet and of its budget.
        replicas: The number of its pods.
        budget: The rule of its budget; empty for none.
    """

    name: str
    replicas: int
    budget: Mapping[str, int] = field(default_factory=dict)


class Cluster:
    """Nodes and pods of a run.

    Attributes:
        endless: Whether deleted pods do not terminate.
        hopeless: Whether new pods never become ready.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        server: Server,
        rand: random.Random,
        nodes: int,
        workloads: Sequence[Workload],
        *,
        control_plane: int = 0,
    ) -> None:
        self.endless = False
        self.hopeless = False
        self.workloads = {workload.name: workload for workload in workloads}
        self._scheduler = scheduler
        self._server = server
        self._rand = rand
        self._made = 0
        self._due: dict[str, float] = {}  # by the uid of the pod
        self._control_plane = control_plane
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        for position, name in enumerate(self.names):
            self.add_node(name, age=1000.0 * (nodes - position))
        self._install_daemon_set()
        for workload in workloads:
            self._install(workload)
        for _ in range(12):
            self.step()
            self._scheduler.sleep(1.0)

    def add_node(self, name: str, *, age: float = 0.0) -> None:
        """Add a machine."""
        made = self._scheduler.now() - timedelta(seconds=age)
        number = self.names.index(name)
        labels = {"zone": "ab"[number % 2]}
        if number < self._control_plane:
            labels[CONTROL_PLANE_LABEL] = ""
        self._server.install(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": labels,
                    "creationTimestamp": format_time(made),
                    "managedFields": MANAGERS,
                },
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
        )

    def step(self) -> None:
        """Let every actor do the steps that are due."""
        pods = self._server.list("pods")
        nodes = {node["metadata"]["name"]: node for node in self._server.list("nodes")}
        self._end_pods(pods, nodes)
        for workload in self.workloads.values():
            self._replace(workload, pods)
        self._schedule(nodes)
        self._start_pods()
        self.count_budgets()
        while self._server.has_garbage:
            self._server.collect()

    def count_budgets(self) -> None:
        """Let the disruption controller update the status of budgets."""
        pods = self._server.list("pods")
        for budget in self._server.list("poddisruptionbudgets", "policy"):
            name, spec = budget["metadata"]["name"], budget["spec"]
            mine = [pod for pod in pods if pod["metadata"]["labels"].get(_APP) == name]
            workload = self.workloads[name]
            health = required_health(
                min_available=spec.get("minAvailable"),
                max_unavailable=spec.get("maxUnavailable"),
                pods=len(mine),
                scale=lambda workload=workload: workload.replicas,  # type: ignore[misc]
            )
            healthy = sum(map(_is_healthy, mine))
            generation = budget["metadata"].get("generation", 1)
            status = msgspec.to_builtins(status_of(health, healthy, {}, generation))
            del status["disruptedPods"]  # evictions are granted and executed in one step
            known = budget.get("status") or {}
            if all(known.get(key) == value for key, value in status.items()):
                continue
            path = f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}/status"
            self._write("PATCH", path, {"status": status})

    def set_budget(self, name: str, rule: Mapping[str, int] | None) -> None:
        """Make, replace or remove the budget of a workload."""
        path = f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}"
        self._write("DELETE", path)
        self.workloads[name].budget = rule or {}
        if rule is not None:
            self._install_budget(self.workloads[name])

    def _install(self, workload: Workload) -> None:
        labels = {_APP: workload.name}
        self._server.install(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": workload.name, "namespace": "default"},
                "spec": {
                    "replicas": workload.replicas,
                    "selector": {"matchLabels": labels},
                    "template": _template(labels),
                },
            }
        )
        if workload.budget:
            self._install_budget(workload)

    def _install_budget(self, workload: Workload) -> None:
        self._server.install(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": workload.name, "namespace": "default"},
                "spec": {"selector": {"matchLabels": {_APP: workload.name}}, **workload.budget},
            }
        )

    def _install_daemon_set(self) -> None:
        labels = {_APP: "agent"}
        self._server.install(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": "agent", "namespace": "kube-system"},
                "spec": {"selector": {"matchLabels": labels}, "template": _template(labels)},
            }
        )
        for name in self.names:
            self._add_pod("kube-system", "DaemonSet", "agent", labels, node=name)

    def _add_pod(
        self, namespace: str, kind: str, owner: str, labels: Mapping[str, str], node: str = ""
    ) -> None:
        plural = f"{kind.lower()}s"
        owners = self._server.list(plural, "apps")
        uid = next(o["metadata"]["uid"] for o in owners if o["metadata"]["name"] == owner)
        self._made += 1
        template = _template(labels)
        spec = {**template["spec"], **({"nodeName": node} if node else {})}
        reference = {
            "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": uid, "controller": True,
        }  # fmt: skip
        self._server.install(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{owner}-{self._made}",
                    "namespace": namespace,
                    "labels": dict(labels),
                    "ownerReferences": [reference],
                },
                "spec": spec,
                "status": _running() if node else {"phase": "Pending"},
            }
        )

    def _end_pods(self, pods: Sequence[JsonObject], nodes: Mapping[str, JsonObject]) -> None:
        for pod in pods:
            node = pod["spec"].get("nodeName")
            is_lost = bool(node) and node not in nodes
            is_told = bool(pod["metadata"].get("deletionTimestamp")) and not self.endless
            if is_lost or (is_told and self._is_due(pod, "end", _SHORTEST_END, _LONGEST_END)):
                self._remove(pod)

    def _replace(self, workload: Workload, pods: Sequence[JsonObject]) -> None:
        mine = [
            pod
            for pod in pods
            if pod["metadata"]["labels"].get(_APP) == workload.name
            and not pod["metadata"].get("deletionTimestamp")
        ]
        for _ in range(workload.replicas - len(mine)):
            self._add_pod("default", "ReplicaSet", workload.name, {_APP: workload.name})

    def _schedule(self, nodes: Mapping[str, JsonObject]) -> None:
        free = [name for name, node in nodes.items() if not node["spec"].get("unschedulable")]
        for pod in self._server.list("pods"):
            if pod["spec"].get("nodeName") or not free:
                continue
            target = {"apiVersion": "v1", "kind": "Node", "name": self._rand.choice(free)}
            body = {
                "apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]}, "target": target,
            }  # fmt: skip
            self._write("POST", f"{_path(pod)}/binding", body)

    def _start_pods(self) -> None:
        for pod in self._server.list("pods"):
            status = pod.get("status") or {}
            if status.get("phase") != "Pending" or not pod["spec"].get("nodeName"):
                continue
            if not self.hopeless and self._is_due(pod, "start", 1.0, 3.0):
                self._write("PATCH", f"{_path(pod)}/status", {"status": _running()})

    def _is_due(self, pod: JsonObject, what: str, low: float, high: float) -> bool:
        key = f"{what} {pod['metadata']['uid']}"
        if key not in self._due:
            self._due[key] = self._scheduler.seconds + self._rand.uniform(low, high)
        return self._scheduler.seconds >= self._due[key]

    def _remove(self, pod: JsonObject) -> None:
        self._write("DELETE", _path(pod), {"gracePeriodSeconds": 0})

    def _write(self, method: str, path: str, body: Any = None) -> None:
        self._server.request(method, path, body, agent=Agent.CONTROLLERS)


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _template(labels: Mapping[str, str]) -> JsonObject:
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


def _running() -> JsonObject:
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def _is_healthy(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")
