"""Logs, exec, attach, port forwarding and proxies, without a kubelet behind the server."""

from typing import Any

import pytest
from tests.contract.exchanges import Http
from tests.contract.objects import pod

NODE = "contract-connections"
LOG_OPTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "nothing": ({}, 204),
    "following": ({"follow": "true"}, 204),
    "before": ({"previous": "true"}, 204),
    "a-container": ({"container": "c"}, 204),
    "no-such-container": ({"container": "none"}, 400),
    "lines-below-zero": ({"tailLines": "-1"}, 422),
    "no-seconds": ({"sinceSeconds": "0"}, 422),
    "no-bytes": ({"limitBytes": "0"}, 422),
    "twice-since": ({"sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"}, 422),
    "all-wrong": ({"sinceSeconds": "0", "tailLines": "-1", "limitBytes": "0"}, 422),
    "no-time": ({"sinceTime": "noon"}, 400),
    "no-number": ({"tailLines": "x"}, 400),
}


@pytest.fixture
def pods(http: Http, core: str) -> str:
    """Pods without a node, on a node that does not exist, and with two containers; their path."""
    two: dict[str, Any] = pod("two")
    two["spec"]["containers"].append({"name": "d", "image": "pause:3"})
    bound: dict[str, Any] = pod("bound")
    bound["spec"]["nodeName"] = "none"
    with http.unrecorded():
        for body in (pod("p"), two, bound):
            http.create(f"{core}/pods", body)
    return f"{core}/pods"


@pytest.mark.parametrize("what", LOG_OPTIONS)
def test_logs_of_a_pod_without_a_node_are_empty(http: Http, pods: str, what: str) -> None:
    query, code = LOG_OPTIONS[what]
    assert http("GET", f"{pods}/p/log", **query).code == code
    missing = 404 if code == 204 or "container" in query else code
    assert http("GET", f"{pods}/none/log", **query).code == missing


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("what", ["exec", "attach", "portforward"])
def test_a_pod_without_a_node_has_no_connections(
    http: Http, pods: str, what: str, method: str
) -> None:
    query = {"stdout": "true", "command": "ls"}
    for container in (None, "c", "none"):
        assert http(method, f"{pods}/p/{what}", container=container, **query).code == 400
    assert http(method, f"{pods}/none/{what}", **query).code == 404
    assert http(method, f"{pods}/bound/{what}", **query).code == 404
    assert http(method, f"{pods}/two/{what}", **query).code == 400


def test_a_pod_with_several_containers_needs_a_container_name(http: Http, pods: str) -> None:
    reply = http("GET", f"{pods}/two/log")
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert reply.message.endswith("choose one of: [c d]")
    assert http("GET", f"{pods}/two/log", container="d").code == 204


def test_logs_of_a_pod_on_a_missing_node_are_not_found(http: Http, pods: str) -> None:
    assert http("GET", f"{pods}/bound/log").code == 404


@pytest.mark.parametrize(
    ("method", "what"),
    [("POST", "log"), ("DELETE", "log"), ("PUT", "exec"), ("DELETE", "attach")],
)
def test_only_some_methods_are_allowed(http: Http, pods: str, method: str, what: str) -> None:
    assert http(method, f"{pods}/p/{what}").code == 405


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_pods_without_an_address_have_no_proxy(http: Http, pods: str, method: str) -> None:
    for path in ("p/proxy", "p/proxy/x", "p:80/proxy/", "https:p:443/proxy/x"):
        assert http(method, f"{pods}/{path}").code == 400
    assert http(method, f"{pods}/none/proxy").code == 404


@pytest.mark.parametrize("name", ["s", "s:80", "s:web", "s:81", "https:s:80", "none"])
def test_services_without_endpoints_have_no_proxy(http: Http, core: str, name: str) -> None:
    spec = {"ports": [{"name": "web", "port": 80}], "clusterIP": "None"}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}
    with http.unrecorded():
        http.create(f"{core}/services", body)
    code = 503 if name == "s:81" else 404
    assert http("GET", f"{core}/services/{name}/proxy").code == code
    assert http("GET", f"{core}/services/{name}/proxy/x").code == code


def test_nodes_without_addresses_are_unreachable(http: Http, core: str) -> None:
    nodes = "/api/v1/nodes"
    bound: dict[str, Any] = pod("p")
    bound["spec"]["nodeName"] = NODE
    with http.unrecorded():
        http("DELETE", f"{nodes}/{NODE}")
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        http.create(nodes, body)
        http.create(f"{core}/pods", bound)
    for path in ("proxy", "proxy/metrics"):
        assert http("GET", f"{nodes}/{NODE}/{path}").code == 500
        assert http("GET", f"{nodes}/{NODE}:10250/{path}").code == 500
        assert http("GET", f"{nodes}/none/{path}").code == 404
    for what in ("log", "exec", "attach", "portforward"):
        assert http("GET", f"{core}/pods/p/{what}", stdout="true", command="ls").code == 500
    with http.unrecorded():
        http("DELETE", f"{nodes}/{NODE}")
