"""Plans evaluate the gates of a rollout now, and send the requests themselves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.operator.conftest import Make
from tests.unit.operator.preflight.conftest import Cluster

from navarchos.client import Client, Resource
from navarchos.clock import SYSTEM_CLOCK
from navarchos.operator.api.v1alpha1 import NodeReplacement, OwnerKey
from navarchos.operator.gates import GateChecker, PrometheusReader
from navarchos.operator.gates.alerts import AlertQuery, query_of_gate
from navarchos.testing.apiserver import ApiServer, Fault

REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True, type=dict)

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


@pytest.mark.rule("NP-31")
def test_a_plan_waits_for_a_gate_that_is_open_but_not_stable(
    make_cluster: Callable[[], Cluster],
) -> None:
    cluster = make_cluster()
    deployment(cluster, "True")
    gate = {"name": "web", "object": WEB, "for": "condition=Available"}
    cluster.spec["gates"] = [{**gate, "stableSeconds": 3600}]
    (predicted,) = cluster.plan_on_server().nodes
    assert predicted.starts == "Gate"
    assert predicted.message == "gate web is open, but not yet for 3600 seconds"


def missing(**fields: Any) -> dict[str, Any]:
    return {"name": "g", "object": {**WEB, **fields}, "for": "condition=Available"}


PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "object": (missing(name="absent"), "Deployment shop/absent does not exist"),
    "selected": (
        {
            "name": "g",
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "selector": {"matchLabels": {"app": "x"}},
            },
            "for": "condition=Ready",
        },
        "Pod (with the labels of selector) does not exist",
    ),
    "version": (missing(apiVersion="shop/v1"), "the server has no kind Deployment in shop/v1"),
    "namespace": (
        missing(namespace=""),
        "Deployment of apps/v1 has a namespace: set object.namespace",
    ),
    "no-namespace": (
        missing(apiVersion="v1", kind="Node", name="old"),
        "Node of v1 has no namespace: remove object.namespace",
    ),
    "expression": (
        {**missing(), "for": "jsonpath={.a[x]}"},
        "for='jsonpath={.a[x]}': the path cannot be read from '[x]'",
    ),
    "nodes": (
        {"name": "g", "nodes": {"maxUnready": 0}},
        "1 nodes are not Ready, more than maxUnready (0): dead",
    ),
}


@pytest.mark.rule("NP-31")
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_plan_says_what_closes_a_gate_of_each_kind(
    make_cluster: Callable[[], Cluster], problem: str
) -> None:
    cluster = make_cluster()
    deployment(cluster, "True")
    cluster.node("dead", "a", ready=False)
    gate, message = PROBLEMS[problem]
    starts, found = plan(cluster, gate)
    assert starts == "Gate"
    assert list(found.values()) == [f"gate g is closed: {message}"]


@pytest.mark.rule("NP-31")
def test_a_plan_without_a_permission_or_an_answer_says_so(
    make_cluster: Callable[[], Cluster],
) -> None:
    cluster = make_cluster()
    deployment(cluster, "True")
    cluster.faults = [Fault(verb="list", resource="deployments", status=403)]
    starts, found = plan(cluster, missing())
    assert starts == "Gate"
    assert found == {
        "Blocks": "gate g is closed: this account has no permission to list Deployment of apps/v1, "
        "which the gate needs"
    }
    cluster.faults = [Fault(verb="list", resource="deployments", status=400, reason="BadRequest")]
    starts, found = plan(cluster, missing())
    assert starts == "Gate"
    assert "injected fault" in found["Blocks"]


@pytest.fixture
def shop() -> Iterator[Client]:
    """A server with two ReplicaSets of two pods each, of which none is Ready."""
    labels = {"app": "web"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pods}
    with ApiServer() as server, server.client() as client:
        server.install(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
            *(
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "metadata": {"name": name, "namespace": "shop"},
                    "spec": spec,
                }
                for name in ("web", "other")
            ),
        )
        yield client


@pytest.mark.rule("NP-31")
def test_a_plan_counts_only_the_pods_that_the_rollout_has_evicted(shop: Client, make: Make) -> None:
    sets = shop.resource(REPLICA_SETS)
    uid = sets.get("web", "shop")["metadata"]["uid"]
    rollout = make.rollout(gates=[{"name": "pods", "evictedPods": {}}])
    owner = OwnerKey(namespace="shop", kind="ReplicaSet", name="web", uid=uid)
    evicted = make.replacement("a", status={"evicted_owners": (owner,)})
    another = make.replacement("a", rollout="other", status={"evicted_owners": (owner,)})
    checker = GateChecker(shop, PrometheusReader(SYSTEM_CLOCK), SYSTEM_CLOCK)

    def verdict(replacement: NodeReplacement) -> tuple[str, str]:
        found = checker.check(rollout, (), (replacement,))["pods"].verdict
        return found.state.value, found.message

    assert verdict(another) == ("Open", "")
    assert verdict(evicted) == ("Closed", "ReplicaSet shop/web: 0 of 2 pods Ready")
    status = {"replicas": 2, "readyReplicas": 2}
    sets.patch("web", {"status": status}, "shop", subresource="status")
    assert verdict(evicted) == ("Open", "")


@pytest.mark.rule("RB-65")
def test_a_plan_queries_alerts(make_cluster: Callable[[], Cluster]) -> None:
    alerts = {"name": "alerts", "alerts": {"url": "http://127.0.0.1:9"}}
    starts, found = plan(make_cluster(), alerts)
    assert starts == "Gate"
    assert found["Delays"].startswith("gate alerts is closed: AlertQueryFailed: http://127.0.0.1:9")


@pytest.mark.rule("RB-65")
def test_a_plan_names_active_alerts(shop: Client, make: Make) -> None:
    alerts = {"url": "http://prometheus", "filter": "^Wanted$"}
    rollout = make.rollout(gates=[{"name": "alerts", "alerts": alerts}])
    active: list[str] = []
    queries: list[AlertQuery] = []

    def read(query: AlertQuery) -> tuple[str, ...]:
        queries.append(query)
        return tuple(active)

    checker = GateChecker(shop, read, SYSTEM_CLOCK)

    def verdict() -> tuple[str, str]:
        found = checker.check(rollout, (), ())["alerts"].verdict
        assert not found.is_broken
        return found.state.value, found.message

    assert verdict() == ("Open", "")
    active += ["DiskFull", "Slow"]
    assert verdict() == ("Closed", "alerts: DiskFull, Slow")
    (gate,) = rollout.spec.gates
    assert gate.alerts is not None
    assert queries == [query_of_gate(gate.alerts)] * 2
