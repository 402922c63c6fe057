"""The client against a server of either kind, over HTTP."""

import threading
from collections.abc import Iterator, Mapping
from itertools import islice

import pytest
from tests.servers import Served

from navarchos.client import (
    AlreadyExists,
    Client,
    Conflict,
    Invalid,
    NotFound,
    PatchType,
    Resource,
    ResourceClient,
    TooManyRequests,
)
from navarchos.errors import Stopped
from navarchos.meta import Object
from navarchos.stopping import StopToken

pytestmark = pytest.mark.unrecorded("other cases ask for the same over HTTP")


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Object)
BUDGETS: Resource[dict[str, object]] = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, type=dict
)
THINGS = Resource("none.example.com", "v1", "things", "Thing", namespaced=False, type=dict)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.config) as client:
        yield client


@pytest.fixture
def maps(client: Client) -> ResourceClient[ConfigMap]:
    return client.resource(MAPS)


@pytest.fixture
def seven(maps: ResourceClient[ConfigMap], namespace: str) -> list[str]:
    names = [f"n{number}" for number in range(7)]
    for name in names:
        maps.create({"metadata": {"name": name, "labels": {"seven": "yes"}}}, namespace)
    return names


def test_an_object_lives_from_create_to_delete(
    maps: ResourceClient[ConfigMap], namespace: str
) -> None:
    made = maps.create({"metadata": {"name": "a"}, "data": {"k": "1"}}, namespace)
    assert made.metadata.uid
    with pytest.raises(AlreadyExists):
        maps.create({"metadata": {"name": "a"}}, namespace)
    assert maps.get("a", namespace) == made
    version = made.metadata.resource_version
    changed = maps.patch("a", {"data": {"k": "2"}}, namespace, resource_version=version)
    assert changed.data == {"k": "2"}
    with pytest.raises(Conflict):
        maps.patch("a", {"data": {"k": "3"}}, namespace, resource_version=version)
    with pytest.raises(Conflict):
        maps.delete("a", namespace, uid="another")
    replaced = maps.replace("a", {"metadata": {"name": "a"}, "data": {"z": "1"}}, namespace)
    assert replaced.data == {"z": "1"}
    maps.delete("a", namespace, uid=made.metadata.uid)
    with pytest.raises(NotFound) as caught:
        maps.get("a", namespace)
    assert (caught.value.reason, caught.value.key) == ("NotFound", f"{namespace}/a")


def test_a_json_patch_and_a_strategic_patch_arrive_as_such(
    maps: ResourceClient[ConfigMap], namespace: str
) -> None:
    maps.create({"metadata": {"name": "a"}, "data": {"k": "1"}}, namespace)
    operations = [{"op": "add", "path": "/data/z", "value": "2"}]
    assert maps.patch("a", operations, namespace, type=PatchType.JSON).data["z"] == "2"
    body = {"data": {"z": None}}
    assert maps.patch("a", body, namespace, type=PatchType.STRATEGIC).data == {"k": "1"}


def test_a_refusal_carries_its_causes(maps: ResourceClient[ConfigMap], namespace: str) -> None:
    with pytest.raises(Invalid) as caught:
        maps.create({"metadata": {"name": "A"}}, namespace)
    assert caught.value.status == 422
    assert [cause.field for cause in caught.value.causes] == ["metadata.name"]


def test_a_list_in_pages_is_the_whole_list(
    maps: ResourceClient[ConfigMap], namespace: str, seven: list[str]
) -> None:
    found = maps.list(namespace, label_selector="seven", limit=3)
    assert [item.metadata.name for item in found.items] == seven
    assert found.pages == 3
    assert maps.list(namespace, label_selector="a=b").items == []
    chosen = maps.list(namespace, field_selector="metadata.name=n3").items
    assert [item.metadata.name for item in chosen] == ["n3"]


def test_a_watch_follows_what_is_written(maps: ResourceClient[ConfigMap], namespace: str) -> None:
    start = maps.list(namespace).resource_version
    with maps.watch(namespace, resource_version=start, field_selector="metadata.name=a") as events:
        maps.create({"metadata": {"name": "a"}}, namespace)
        maps.patch("a", {"data": {"k": "1"}}, namespace)
        maps.delete("a", namespace)
        found = list(islice(events, 3))
    assert [event.type for event in found] == ["ADDED", "MODIFIED", "DELETED"]
    assert found[1].object is not None
    assert found[1].object.data == {"k": "1"}


def test_a_streaming_list_ends_with_its_bookmark(
    maps: ResourceClient[ConfigMap], namespace: str, seven: list[str]
) -> None:
    names = []
    with maps.watch(namespace, send_initial_events=True, label_selector="seven") as events:
        for event in events:
            if event.initial_events_end:
                assert event.resource_version
                break
            assert event.object is not None
            names.append(event.object.metadata.name)
    assert sorted(names) == seven


def test_stop_frees_a_quiet_watch(maps: ResourceClient[ConfigMap], namespace: str) -> None:
    stop = StopToken()
    timer = threading.Timer(0.05, stop.stop)
    with maps.watch(namespace, bookmarks=False, label_selector="none", stop=stop) as events:
        timer.start()
        with pytest.raises(Stopped):
            next(events)
    timer.join()


def test_an_eviction_is_refused_by_a_budget_that_nobody_has_looked_at(
    client: Client, namespace: str
) -> None:
    pod = {
        "metadata": {"name": "p", "labels": {"app": "web"}},
        "spec": {"nodeName": "nowhere", "containers": [{"name": "c", "image": "pause:3"}]},
    }
    pods = client.resource(PODS)
    pods.create(pod, namespace)
    pods.patch("p", {"status": {"phase": "Running"}}, namespace, subresource="status")
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    client.resource(BUDGETS).create(budget, namespace)
    with pytest.raises(TooManyRequests) as caught:
        pods.evict("p", namespace)
    assert caught.value.retry_after == 10.0


@pytest.mark.rule("CL-16")
def test_kinds_are_discovered(client: Client) -> None:
    assert client.server_version().startswith("v1.")
    assert client.has_kind(MAPS)
    assert client.has_kind(BUDGETS)
    assert not client.has_kind(THINGS)
