"""The smallest manifests of nodes and workloads that a real server accepts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from navarchos.client import Resource
from navarchos.clock import SYSTEM_CLOCK
from navarchos.testing.cluster.nodes import machines, node_manifest
from navarchos.testing.cluster.pod_lifecycle import RUNS_FOR, STARTS_AFTER, TERMINATES_AFTER

__all__ = [
    "CASE_LABEL",
    "WIDGETS",
    "budget",
    "daemon_set",
    "deployment",
    "drain",
    "job",
    "namespace",
    "node",
    "pod",
    "ready_status",
    "replacement",
    "rollout",
    "stateful_set",
    "widget_definition",
]

JsonObject = dict[str, Any]

CASE_LABEL: Final = "navarchos-e2e"
"""Label of nodes: the case that they belong to. Its pods run nowhere else."""

API_VERSION: Final = "navarchos.pusher.com/v1alpha1"

WIDGETS: Final = Resource("example.com", "v1", "widgets", "Widget", namespaced=True, type=dict)
"""A kind of a user, which only the tests that install it have."""


def widget_definition() -> JsonObject:
    """Return the definition of `WIDGETS`, with any fields and a status."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": WIDGETS.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    plural, kind = WIDGETS.plural, WIDGETS.kind
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{WIDGETS.group}"},
        "spec": {
            "group": WIDGETS.group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [version],
        },
    }


def namespace(name: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node(name: str, case: str, **labels: str) -> JsonObject:
    """Return a node, marked for kwok where kwok runs."""
    metadata = {
        "name": name,
        "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {CASE_LABEL: case, "kubernetes.io/hostname": name, **labels},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def ready_status(name: str) -> JsonObject:
    """Return the status of a node whose kubelet is the simulator's."""
    machine = replace(machines(1, 20)[0], name=name)
    status: JsonObject = node_manifest(machine, at=SYSTEM_CLOCK.now())["status"]
    return status


def pod_spec(case: str, **spec: object) -> JsonObject:
    return {
        "nodeSelector": {CASE_LABEL: case},
        "containers": [{"name": "main", "image": "example.com/image"}],
        "terminationGracePeriodSeconds": 1,
        **spec,
    }


def template(case: str, app: str, *, ends_in: str = "0.2s", **spec: object) -> JsonObject:
    return {
        "metadata": {
            "labels": {"app": app},
            "annotations": {STARTS_AFTER: "0.2s", TERMINATES_AFTER: ends_in},
        },
        "spec": pod_spec(case, **spec),
    }


def _workload(kind: str, case: str, name: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": case},
        "spec": spec,
    }


def _selected(case: str, name: str, ends_in: str, spec: Mapping[str, object]) -> JsonObject:
    return {
        "selector": {"matchLabels": {"app": name}},
        "template": template(case, name, ends_in=ends_in, **spec),
    }


def deployment(
    case: str, name: str, replicas: int, *, ends_in: str = "0.2s", **spec: object
) -> JsonObject:
    selected = _selected(case, name, ends_in, spec)
    return _workload("Deployment", case, name, {"replicas": replicas, **selected})


def stateful_set(case: str, name: str, replicas: int, **spec: object) -> JsonObject:
    more = {"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel"}
    return _workload("StatefulSet", case, name, {**more, **_selected(case, name, "0.2s", spec)})


def daemon_set(case: str, name: str, **spec: object) -> JsonObject:
    return _workload("DaemonSet", case, name, _selected(case, name, "0.2s", spec))


def job(case: str, name: str, count: int, *, runs_for: str = "300s") -> JsonObject:
    made = template(case, name, restartPolicy="Never")
    made["metadata"]["annotations"][RUNS_FOR] = runs_for
    spec = {"completions": count, "parallelism": count, "backoffLimit": 10, "template": made}
    return _workload("Job", case, name, spec)


def pod(case: str, name: str, node_name: str = "", **metadata: object) -> JsonObject:
    """Return a pod without a controller, bound to a node if one is given."""
    made = template(case, name)
    if node_name:
        made["spec"]["nodeName"] = node_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**made["metadata"], "name": name, "namespace": case, **metadata},
        "spec": made["spec"],
    }


def budget(case: str, name: str, *, app: str = "", **spec: object) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": case},
        "spec": {"selector": {"matchLabels": {"app": app or name}}, **spec},
    }


def _ours(kind: str, name: str, spec: JsonObject) -> JsonObject:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def rollout(case: str, name: str = "", **spec: object) -> JsonObject:
    """Return a rollout over the nodes of a case, with short pauses."""
    drain_spec = spec.pop("drain", {})
    assert isinstance(drain_spec, dict)
    made: JsonObject = {
        "nodeSelectors": [{"matchLabels": {CASE_LABEL: case}}],
        "drain": {"evictionRetrySeconds": 1, **drain_spec},
    }
    return _ours("NodeRollout", name or case, made | spec)


def replacement(name: str, node_name: str, **spec: object) -> JsonObject:
    return _ours("NodeReplacement", name, {"nodeName": node_name, **spec})


def drain(name: str, node_name: str, **spec: object) -> JsonObject:
    return _ours("NodeDrain", name, {"nodeName": node_name, "evictionRetrySeconds": 1, **spec})
