"""Plans evaluate the gates of a rollout now, with requests of their own."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.operator.preflight.conftest import Cluster

WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"}


def deployment(cluster: Cluster, available: str) -> None:
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    cluster.add(
        "apps/v1",
        "Deployment",
        "web",
        spec={"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        status={"conditions": [{"type": "Available", "status": available}]},
    )


def plan(cluster: Cluster, *gates: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return when the node starts, and the messages of findings about gates, by severity."""
    cluster.spec["gates"] = list(gates)
    predicted = cluster.plan_on_server()
    found = [each for each in predicted.findings if each.reason == "GateClosed"]
    return predicted.nodes[0].starts, {str(each.severity): each.message for each in found}


@pytest.mark.rule("NP-31")
def test_a_plan_names_each_closed_gate(make_cluster: Callable[[], Cluster]) -> None:
    cluster = make_cluster()
    deployment(cluster, "False")
    gate = {"name": "web", "object": WEB, "for": "condition=Available"}
    absent = {"name": "absent", "object": {**WEB, "kind": "Absent"}, "for": "condition=Available"}
    starts, found = plan(cluster, gate, absent)
    assert starts == "Gate"
    assert found == {
        "Delays": "gate web is closed: Deployment shop/web: Available=False",
        "Blocks": "gate absent is closed: the server has no kind Absent in apps/v1",
    }


@pytest.mark.rule("NP-31")
def test_a_plan_lets_nodes_start_at_open_gates(make_cluster: Callable[[], Cluster]) -> None:
    cluster = make_cluster()
    deployment(cluster, "True")
    gates = [
        {"name": "web", "object": WEB, "for": "condition=Available"},
        {"name": "nodes", "nodes": {"maxUnready": 0}},
        {"name": "pods", "evictedPods": {}},
    ]
    assert plan(cluster, *gates) == ("Now", {})


@pytest.mark.rule("RB-65")
def test_a_plan_queries_alerts(make_cluster: Callable[[], Cluster]) -> None:
    alerts = {"name": "alerts", "alerts": {"url": "http://127.0.0.1:9"}}
    starts, found = plan(make_cluster(), alerts)
    assert starts == "Gate"
    assert found["Delays"].startswith("gate alerts is closed: AlertQueryFailed: http://127.0.0.1:9")
