"""Discovery."""

import json

import pytest
from tests.unit.client.wire import Connect

from navarchos.client import BufferedResponse, DecodeError, HttpRequest, Resource
from navarchos.testing import FakeClock

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

THINGS = Resource("example.com", "v1", "things", "Thing", namespaced=False, type=dict)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)


class Server:
    """Serves `/version`, and the groups that a test installs.

    Args:
        answer: What it says of all groups at once: `aggregated`, `legacy` (their names,
            as servers before 1.27), or a status.
    """

    def __init__(self, answer: str | int = "legacy") -> None:
        self.answer = answer
        self.stale: set[str] = set()
        self.groups: dict[str, list[dict[str, object]]] = {
            "/api/v1": [{"name": "pods", "kind": "Pod", "namespaced": True, "shortNames": None}]
        }
        self.asked: list[str] = []

    def __call__(self, request: HttpRequest) -> BufferedResponse:
        self.asked.append(request.target)
        if request.target == "/version":
            return BufferedResponse(200, {}, b'{"major":"1","gitVersion":"v1.34.1"}')
        if request.target in {"/api", "/apis"}:
            return self.all(request)
        if request.target not in self.groups:
            return BufferedResponse(404, {}, b"404 page not found")
        body = json.dumps({"resources": self.groups[request.target]}).encode()
        return BufferedResponse(200, {}, body)

    def all(self, request: HttpRequest) -> BufferedResponse:
        if isinstance(self.answer, int):
            return BufferedResponse(self.answer, {}, b"")
        accepted = request.headers["Accept"].split(",")
        if self.answer == "legacy":
            assert "application/json" in accepted
            return BufferedResponse(200, {}, b'{"kind":"APIGroupList","groups":[{"name":"x"}]}')
        assert accepted[0] == AGGREGATED
        items = [
            {"metadata": {"name": group}, "versions": [self.version(path, entries)]}
            for path, entries in self.groups.items()
            if path.startswith(request.target + "/")
            for group in ["" if path.count("/") == 2 else path.split("/")[2]]
        ]
        body = {"kind": "APIGroupDiscoveryList", "items": items}
        return BufferedResponse(200, {"Content-Type": AGGREGATED}, json.dumps(body).encode())

    def version(self, path: str, entries: list[dict[str, object]]) -> dict[str, object]:
        resources = [
            {
                "resource": entry["name"],
                "responseKind": {"kind": entry["kind"]},
                "scope": "Namespaced" if entry.get("namespaced") else "Cluster",
            }
            for entry in entries
        ]
        stale = path in self.stale
        return {
            "version": path.rpartition("/")[2],
            "freshness": "Stale" if stale else "Current",
            "resources": None if stale else resources,
        }


def test_the_version_is_the_servers(connect: Connect) -> None:
    assert connect(Server()).server_version() == "v1.34.1"


@pytest.mark.rule("CL-16")
@pytest.mark.parametrize("answer", ["legacy", "aggregated", 403, 404])
def test_a_kind_installed_after_start_is_found(
    connect: Connect, fake_clock: FakeClock, answer: str | int
) -> None:
    server = Server(answer)
    client = connect(server, clock=fake_clock)
    assert not client.has_kind(THINGS)
    server.groups["/apis/example.com/v1"] = [{"name": "others", "kind": "Other"}]
    assert not client.has_kind(THINGS)
    server.groups["/apis/example.com/v1"].append({"name": "things", "kind": "Thing"})
    assert client.has_kind(THINGS)


@pytest.mark.parametrize(
    ("answer", "asked"),
    [("legacy", ["/api", "/api/v1"]), (404, ["/api", "/api/v1"]), ("aggregated", ["/api"])],
)
def test_a_kind_that_is_served_is_asked_for_once_in_a_while(
    connect: Connect, fake_clock: FakeClock, answer: str | int, asked: list[str]
) -> None:
    server = Server(answer)
    client = connect(server, clock=fake_clock)
    assert client.has_kind(PODS)
    assert client.has_kind(PODS)
    assert server.asked == asked
    fake_clock.advance(31.0)
    assert client.has_kind(PODS)
    assert server.asked == asked * 2


def test_waiting_for_a_kind_requests_its_group_only(
    connect: Connect, fake_clock: FakeClock
) -> None:
    server = Server("aggregated")
    client = connect(server, clock=fake_clock)
    for _ in range(3):
        assert not client.has_kind(THINGS)
    assert server.asked == ["/apis", *["/apis/example.com/v1"] * 3]


def test_one_response_describes_all_groups(connect: Connect) -> None:
    server = Server("aggregated")
    server.groups["/apis/example.com/v1"] = [{"name": "things", "kind": "Thing"}]
    server.groups["/apis/example.org/v1"] = [{"name": "others", "kind": "Other"}]
    client = connect(server)
    assert client.has_kind(THINGS)
    assert [each.name for each in client.api_resources("example.org", "v1")] == ["others"]
    assert server.asked == ["/apis"]


def test_an_unreachable_aggregated_api_is_requested_directly(connect: Connect) -> None:
    server = Server("aggregated")
    server.groups["/apis/example.com/v1"] = [{"name": "things", "kind": "Thing"}]
    server.stale = {"/apis/example.com/v1"}
    assert [each.name for each in connect(server).api_resources("example.com", "v1")] == ["things"]
    assert server.asked == ["/apis", "/apis/example.com/v1"]


@pytest.mark.rule("CL-16")
@pytest.mark.parametrize("answer", ["legacy", "aggregated"])
def test_a_group_that_is_gone_is_dropped(
    connect: Connect, fake_clock: FakeClock, answer: str
) -> None:
    server = Server(answer)
    client = connect(server, clock=fake_clock)
    assert [entry.name for entry in client.api_resources("", "v1")] == ["pods"]
    del server.groups["/api/v1"]
    assert not client.has_kind(NODES)
    assert (
        list(client.api_resources("", "v1")) == []
    )  # although the previous response has not expired
    fake_clock.advance(31.0)
    assert list(client.api_resources("", "v1")) == []
    assert not client.has_kind(PODS)


def test_an_invalid_discovery_document_is_a_decode_error(connect: Connect) -> None:
    client = connect(lambda _: BufferedResponse(200, {}, b"<html>"))
    with pytest.raises(DecodeError):
        client.server_version()
