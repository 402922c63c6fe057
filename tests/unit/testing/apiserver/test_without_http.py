"""A client gets the same responses from a server that listens and from one that does not."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cases.waiting import wait_for

from navarchos.client import (
    Client,
    ConnectFailed,
    Forbidden,
    NotFound,
    Resource,
    TooManyRequests,
    WatchBroken,
)
from navarchos.client.options import WatchOptions
from navarchos.errors import ConfigError, Stopped
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.threads import ThreadGroup

NODES: Resource[dict[str, Any]] = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict)
MAPS: Resource[dict[str, Any]] = Resource(
    "", "v1", "configmaps", "ConfigMap", namespaced=True, type=dict
)
LIMIT = 30.0


@pytest.fixture(params=["over HTTP", "without"])
def server(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    server = ApiServer()
    if request.param == "over HTTP":
        server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client(user_agent="someone") as client:
        yield client


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def test_responses_and_the_audit_log_are_the_same(server: ApiServer, client: Client) -> None:
    nodes = client.resource(NODES)
    created = nodes.create(node("a"))
    assert nodes.patch("a", {"spec": {"unschedulable": True}})["spec"]["unschedulable"]
    assert [found["metadata"]["name"] for found in nodes.list().items] == ["a"]
    nodes.delete("a", uid=created["metadata"]["uid"])
    with pytest.raises(NotFound):
        nodes.get("a")
    found = [(record.verb, record.name, record.code) for record in server.audit]
    assert found == [
        ("create", "", 201), ("patch", "a", 200), ("list", "", 200), ("delete", "a", 200),
        ("get", "a", 404),
    ]  # fmt: skip
    assert server.requests_by("someone")["delete"] == 1


def test_paths_without_a_resource_have_the_same_headers(client: Client) -> None:
    answer = client.raw("GET", "/readyz")
    assert (answer.status, answer.body) == (200, b"ok")
    assert answer.headers["content-type"].startswith("text/plain")
    assert client.raw("GET", "/nowhere").status == 404


def test_a_long_body_is_refused(client: Client) -> None:
    answer = client.raw("POST", "/api/v1/nodes", body=b" " * (3 * 1024 * 1024 + 1))
    assert answer.status == 413
    assert b"RequestEntityTooLarge" in answer.body


def test_dependents_are_deleted_with_their_owner(server: ApiServer, client: Client) -> None:
    maps = client.resource(MAPS)
    owner = maps.create(node("owner"), "default")["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    maps.create({"metadata": {"name": "owned", "ownerReferences": [reference]}}, "default")
    maps.delete("owner", "default")
    wait_for("the owned one to go", lambda: not server.list("configmaps", "default"), LIMIT)


def test_a_refusal_may_have_a_retry_after(server: ApiServer, client: Client) -> None:
    server.faults.add(Fault(verb="create", status=429, retry_after=7))
    with pytest.raises(TooManyRequests) as refused:
        client.resource(NODES).create(node("a"))
    assert refused.value.retry_after == 7


def test_a_reset_connection_has_done_nothing(server: ApiServer, client: Client) -> None:
    server.faults.add(Fault(verb="create", reset=True))
    with pytest.raises(ConnectFailed) as broken:
        client.resource(NODES).create(node("a"))
    assert broken.value.sent
    assert server.list("nodes") == []
    assert [record.code for record in server.audit] == [0]


def test_a_lost_response_is_of_a_request_that_was_served(server: ApiServer, client: Client) -> None:
    server.faults.add(Fault(verb="create", lose_answer=True))
    with pytest.raises(ConnectFailed):
        client.resource(NODES).create(node("a"))
    assert server.get("nodes", "a")


def watched(client: Client, **options: Any) -> Iterator[str]:
    """Yield the names in the events of a watch, from the first one."""
    with client.resource(NODES).watch(options=WatchOptions(**options)) as stream:
        for event in stream:
            if event.object is not None:
                yield event.object["metadata"]["name"]


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (Fault(drop_after=2), ["n0", "n1"]),
        (Fault(lose=2, drop_after=4), ["n0", "n2", "n3"]),
        (Fault(duplicate=2, drop_after=3), ["n0", "n1", "n1", "n2"]),
    ],
    ids=["dropped", "lost", "reported twice"],
)
def test_a_watch_that_a_fault_ends_properly_returns_its_events(
    server: ApiServer, client: Client, fault: Fault, seen: list[str]
) -> None:
    server.install(*({"apiVersion": "v1", "kind": "Node", **node(f"n{n}")} for n in range(4)))
    server.faults.add(fault)
    assert list(watched(client)) == seen


@pytest.mark.parametrize(
    "fault", [Fault(truncate_after=1), Fault(half_close_after=1)], ids=["cut", "half-closed"]
)
def test_a_watch_that_a_fault_cuts_returns_the_events_before(
    server: ApiServer, client: Client, fault: Fault
) -> None:
    server.install(*({"apiVersion": "v1", "kind": "Node", **node(f"n{n}")} for n in range(2)))
    server.faults.add(fault)
    names = watched(client)
    assert next(names) == "n0"
    with pytest.raises(WatchBroken):
        next(names)


def test_a_watch_ends_at_its_timeout_with_the_events_before(
    server: ApiServer, client: Client
) -> None:
    names = watched(client, timeout_seconds=1)
    server.install({"apiVersion": "v1", "kind": "Node", **node("late")})
    assert list(names) == ["late"]


def test_a_blocked_watch_is_freed_by_its_token(server: ApiServer, client: Client) -> None:
    stop, ended = StopToken(), StopToken()
    version = client.resource(NODES).list().resource_version
    stream = client.resource(NODES).watch(
        options=WatchOptions(resource_version=str(version)), stop=stop
    )
    threads = ThreadGroup("reader", stop=ended)

    def read() -> None:
        with pytest.raises(Stopped):
            next(stream)

    threads.start("", read)
    stop.stop("enough")
    assert threads.join(LIMIT)
    threads.raise_failure()
    stream.close()
    wait_for("the record of the watch", lambda: server.requests["watch"], LIMIT)


def test_a_closed_client_sends_no_requests(client: Client) -> None:
    client.close()
    with pytest.raises(Stopped):
        client.resource(NODES).list()


def test_roles_apply_without_http_too() -> None:
    pytest.importorskip("cryptography")
    server = ApiServer(rbac=True)
    with server.client() as boss, server.client(user="ann") as ann:
        boss.resource(NODES).create(node("a"))
        with pytest.raises(Forbidden):
            ann.resource(NODES).get("a")


def test_without_rbac_there_are_no_users() -> None:
    with pytest.raises(ConfigError):
        ApiServer().client(user="ann")
