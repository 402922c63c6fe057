"""The client against the in-process API server, over HTTP."""

import threading
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from navarchos.client import (
    AlreadyExists,
    Client,
    ClientConfig,
    Conflict,
    ConnectFailed,
    Expired,
    NotFound,
    PatchType,
    Resource,
    ServerError,
    TooManyRequests,
    WatchBroken,
    WatchExpired,
    WatchStream,
)
from navarchos.errors import Stopped
from navarchos.meta import Object
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Fault

T = TypeVar("T")


class NodeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    unschedulable: bool = False


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Node)
MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)
THINGS = Resource("example.com", "v1", "things", "Thing", namespaced=False, type=dict)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(bookmark_interval=0.05) as server:
        server.install(
            *(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
                for number in range(7)
            )
        )
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(server.url)) as client:
        yield client


def test_an_object_lives_from_create_to_delete(client: Client) -> None:
    maps = client.resource(MAPS)
    made = maps.create({"metadata": {"name": "a"}, "data": {"k": "1"}}, "default")
    assert made.metadata.uid
    with pytest.raises(AlreadyExists):
        maps.create({"metadata": {"name": "a"}}, "default")
    assert maps.get("a", "default") == made
    version = made.metadata.resource_version
    changed = maps.patch("a", {"data": {"k": "2"}}, "default", resource_version=version)
    assert changed.data == {"k": "2"}
    with pytest.raises(Conflict):
        maps.patch("a", {"data": {"k": "3"}}, "default", resource_version=version)
    with pytest.raises(Conflict):
        maps.delete("a", "default", uid="another")
    replaced = maps.replace("a", {"metadata": {"name": "a"}, "data": {"z": "1"}}, "default")
    assert replaced.data == {"z": "1"}
    maps.delete("a", "default", uid=made.metadata.uid)
    with pytest.raises(NotFound) as caught:
        maps.get("a", "default")
    assert (caught.value.reason, caught.value.key) == ("NotFound", "default/a")


def test_a_json_patch_and_a_strategic_patch_arrive_as_such(client: Client) -> None:
    nodes = client.resource(NODES)
    operations = [{"op": "add", "path": "/spec/unschedulable", "value": True}]
    assert nodes.patch("n0", operations, type=PatchType.JSON).spec.unschedulable
    body = {"spec": {"unschedulable": None}}
    assert not nodes.patch("n0", body, type=PatchType.STRATEGIC).spec.unschedulable


def test_a_list_in_pages_is_the_whole_list(client: Client) -> None:
    nodes = client.resource(NODES)
    found = nodes.list(limit=3)
    assert [node.metadata.name for node in found.items] == [f"n{n}" for n in range(7)]
    assert found.pages == 3
    assert nodes.list(label_selector="a=b").items == []
    assert [n.metadata.name for n in nodes.list(field_selector="metadata.name=n3").items] == ["n3"]


def test_a_page_of_a_forgotten_list_is_expired(server: ApiServer, client: Client) -> None:
    nodes = client.resource(NODES)
    page = nodes.list_page(limit=3)
    nodes.patch("n0", {"metadata": {"labels": {"a": "b"}}})
    server.compact()
    with pytest.raises(Expired):
        nodes.list_page(limit=3, continue_token=page.continue_token)


def test_a_watch_follows_what_is_written(client: Client) -> None:
    maps = client.resource(MAPS)
    start = maps.list("default").resource_version
    with maps.watch("default", resource_version=start) as events:
        maps.create({"metadata": {"name": "a"}}, "default")
        maps.patch("a", {"data": {"k": "1"}}, "default")
        maps.delete("a", "default")
        found = _take(events, 3)
    assert [event.type for event in found] == ["ADDED", "MODIFIED", "DELETED"]
    assert found[1].object is not None
    assert found[1].object.data == {"k": "1"}


def test_a_streaming_list_ends_with_its_bookmark(client: Client) -> None:
    with client.resource(NODES).watch(send_initial_events=True) as events:
        names = []
        for event in events:
            if event.initial_events_end:
                assert event.resource_version
                break
            assert event.object is not None
            names.append(event.object.metadata.name)
    assert sorted(names) == [f"n{number}" for number in range(7)]


def test_a_watch_from_a_forgotten_version_is_expired(server: ApiServer, client: Client) -> None:
    nodes = client.resource(NODES)
    start = nodes.list().resource_version
    for value in "ab":
        nodes.patch("n0", {"metadata": {"labels": {"a": value}}})
    server.compact()
    with pytest.raises((WatchExpired, Expired)), nodes.watch(resource_version=start) as events:
        next(events)


@pytest.mark.parametrize("fault", ["half_close_after", "truncate_after", "stall_after"])
def test_a_watch_that_goes_wrong_is_broken_and_can_be_resumed(
    server: ApiServer, client: Client, fault: str
) -> None:
    nodes = client.resource(NODES)
    start = nodes.list().resource_version
    # Seen to send bookmarks, the server is not given long when it falls silent.
    with nodes.watch(resource_version=start) as events:
        assert next(e for e in events if e.type == "BOOKMARK").resource_version
    server.faults.add(Fault(verb="watch", **{fault: 1}))  # type: ignore[arg-type]  # numbers all
    labels: list[str] = []
    versions = [start]

    def follow(events: WatchStream[Node]) -> None:
        for event in events:
            versions.append(event.resource_version)
            if event.object is not None:
                labels.append(event.object.metadata.labels["a"])
                if labels[-1] == "c":
                    return

    def follow_and_change() -> None:
        with nodes.watch(resource_version=start, idle_timeout=0.3) as events:
            for value in "abc":
                nodes.patch("n0", {"metadata": {"labels": {"a": value}}})
            follow(events)

    with pytest.raises(WatchBroken):
        follow_and_change()
    with nodes.watch(resource_version=versions[-1]) as events:
        follow(events)
    assert labels == ["a", "b", "c"]


def test_stop_frees_a_quiet_watch(client: Client) -> None:
    stop = StopToken()
    timer = threading.Timer(0.05, stop.stop)
    with client.resource(MAPS).watch("default", bookmarks=False, stop=stop) as events:
        timer.start()
        with pytest.raises(Stopped):
            next(events)
    timer.join()


def test_refusals_and_resets_are_what_they_are(server: ApiServer, client: Client) -> None:
    maps = client.resource(MAPS)
    server.faults.add(Fault(verb="create", status=429, retry_after=7))
    with pytest.raises(TooManyRequests) as caught:
        maps.create({"metadata": {"name": "a"}}, "default")
    assert caught.value.retry_after == 7.0
    server.faults.add(Fault(verb="create", status=500))
    with pytest.raises(ServerError):
        maps.create({"metadata": {"name": "a"}}, "default")
    server.faults.add(Fault(verb="create", reset=True))
    with pytest.raises(ConnectFailed):
        maps.create({"metadata": {"name": "a"}}, "default")
    maps.list("default")
    # On a kept connection a reset looks like a server that closed it as idle.
    server.faults.add(Fault(verb="list", reset=True))
    assert maps.list("default").items == []


def test_a_read_waits_as_long_as_it_is_told(server: ApiServer, client: Client) -> None:
    server.faults.add(Fault(verb="get", status=429, retry_after=1))
    assert client.resource(NODES).get("n0").metadata.name == "n0"
    assert server.requests["get"] == 2


@pytest.mark.rule("CL-16")
def test_kinds_are_discovered(client: Client) -> None:
    assert client.server_version().startswith("v1.")
    assert client.has_kind(NODES)
    assert not client.has_kind(THINGS)


def test_the_servers_own_kubeconfig_leads_to_it(server: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    with Client.from_config(kubeconfig=path) as client:
        assert client.resource(NODES).get("n0").metadata.uid


def _take(events: Iterator[T], count: int) -> list[T]:
    return list(islice(events, count))
