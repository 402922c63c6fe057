"""The client and what only scripted faults of the in-process API server do to it.

What holds for each API server is in `tests/integration/framework/test_client.py`.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec
import pytest

from navarchos.client import (
    Client,
    ClientConfig,
    ConnectFailed,
    Resource,
    ServerError,
    TooManyRequests,
    WatchBroken,
    WatchStream,
)
from navarchos.client.options import WatchOptions
from navarchos.meta import Object
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


@pytest.mark.parametrize("fault", ["half_close_after", "truncate_after", "stall_after"])
def test_a_watch_that_goes_wrong_is_broken_and_can_be_resumed(
    server: ApiServer, client: Client, fault: str
) -> None:
    nodes = client.resource(NODES)
    start = nodes.list().resource_version
    # The server has sent bookmarks, so the short limit of silence applies.
    with nodes.watch(options=WatchOptions(resource_version=start)) as events:
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
        with nodes.watch(options=WatchOptions(resource_version=start, idle_timeout=0.3)) as events:
            for value in "abc":
                nodes.patch("n0", {"metadata": {"labels": {"a": value}}})
            follow(events)

    with pytest.raises(WatchBroken):
        follow_and_change()
    with nodes.watch(options=WatchOptions(resource_version=versions[-1])) as events:
        follow(events)
    assert labels == ["a", "b", "c"]


def test_refusals_and_resets_raise_the_documented_errors(server: ApiServer, client: Client) -> None:
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
    # On a pooled connection a reset looks like a server that closed an idle connection.
    server.faults.add(Fault(verb="list", reset=True))
    assert maps.list("default").items == []


def test_a_read_waits_until_its_timeout(server: ApiServer, client: Client) -> None:
    server.faults.add(Fault(verb="get", status=429, retry_after=1))
    assert client.resource(NODES).get("n0").metadata.name == "n0"
    assert server.requests["get"] == 2
