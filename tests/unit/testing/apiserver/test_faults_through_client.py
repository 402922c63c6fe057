"""The effect of each fault on our own client, and on code that uses it."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from navarchos.backoff import Backoff
from navarchos.client import (
    Client,
    ClientConfig,
    ClientError,
    Conflict,
    ConnectFailed,
    Expired,
    NotFound,
    RequestTimeout,
    Resource,
    ResourceClient,
    ServerError,
    TooManyRequests,
    WatchBroken,
    WatchEvent,
    WatchExpired,
    retry_on_conflict,
)
from navarchos.client.options import ListOptions, WatchOptions
from navarchos.informers import InformerOptions, SharedInformer
from navarchos.testing.apiserver import COMMON_FAULTS, ApiServer, Fault

LIMIT = 30.0
MAPS: Resource[dict[str, Any]] = Resource(
    "", "v1", "configmaps", "ConfigMap", namespaced=True, type=dict
)
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    "status": {"observedGeneration": 1, "disruptionsAllowed": 1},
}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(bookmark_interval=0.05) as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(server.url)) as client:
        yield client


@pytest.fixture
def maps(client: Client) -> ResourceClient[dict[str, Any]]:
    return client.resource(MAPS)


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def key_of(event: WatchEvent[dict[str, Any]]) -> str:
    assert event.object is not None
    metadata = event.object["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def names(server: ApiServer) -> list[str]:
    return [found["metadata"]["name"] for found in server.list("configmaps")]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=409), Conflict),
        (Fault(status=410), Expired),
        (Fault(status=429), TooManyRequests),
        (Fault(status=500), ServerError),
        (Fault(status=503), ServerError),
        (Fault(reset=True), ConnectFailed),
    ],
    ids=str,
)
def test_a_refused_write_changes_nothing(
    server: ApiServer, maps: ResourceClient[Any], fault: Fault, error: type[ClientError]
) -> None:
    server.faults.add(fault)
    with pytest.raises(error):
        maps.create(config_map("a"), "default")
    assert names(server) == []
    maps.create(config_map("a"), "default")


@pytest.mark.parametrize(("seconds", "said"), [(0, None), (7, 7.0)])
def test_a_429_may_have_a_retry_after(
    server: ApiServer, maps: ResourceClient[Any], seconds: int, said: float | None
) -> None:
    server.faults.add(Fault(status=429, retry_after=seconds))
    with pytest.raises(TooManyRequests) as refused:
        maps.create(config_map("a"), "default")
    assert refused.value.retry_after == said


def test_a_request_with_a_lost_response_has_been_done(
    server: ApiServer, maps: ResourceClient[Any]
) -> None:
    server.faults.add(Fault(verb="create", lose_answer=True))
    with pytest.raises(ConnectFailed):
        maps.create(config_map("a"), "default")
    assert names(server) == ["a"]


def test_a_delay_may_exceed_the_deadline_of_a_call(
    server: ApiServer, maps: ResourceClient[Any]
) -> None:
    server.faults.add(Fault(verb="create", delay=LIMIT))
    with pytest.raises(RequestTimeout):
        maps.create(config_map("a"), "default", timeout=0.2)
    assert names(server) == []


def test_a_conflict_is_retried(server: ApiServer, maps: ResourceClient[Any]) -> None:
    maps.create(config_map("a"), "default")
    server.faults.add(Fault(verb="update", status=409, times=2))
    retry_on_conflict(lambda: maps.replace("a", config_map("a"), "default"))
    assert server.requests["update"] == 3


@pytest.mark.parametrize("fault", [Fault(stall_within=1), Fault(truncate_after=1)], ids=str)
def test_a_watch_that_ends_within_a_line_is_broken(
    server: ApiServer, maps: ResourceClient[Any], fault: Fault
) -> None:
    start = maps.list("default").resource_version
    # The client has seen bookmarks, so its idle timeout is short now.
    with maps.watch("default", WatchOptions(resource_version=start)) as events:
        assert next(event.type for event in events if event.type == "BOOKMARK")
    for name in "ab":
        maps.create(config_map(name), "default")
    server.faults.add(fault)
    with maps.watch("default", WatchOptions(resource_version=start, idle_timeout=0.3)) as events:
        assert key_of(next(events)) == "default/a"
        with pytest.raises(WatchBroken):
            next(events)


def test_a_watch_that_is_refused_with_410_is_expired(
    server: ApiServer, maps: ResourceClient[Any]
) -> None:
    server.faults.add(Fault(verb="watch", status=410))
    with (
        pytest.raises((WatchExpired, Expired)),
        maps.watch("default", WatchOptions(resource_version="1")) as events,
    ):
        next(events)


def test_an_expired_page_restarts_the_list(server: ApiServer, maps: ResourceClient[Any]) -> None:
    for number in range(5):
        maps.create(config_map(f"n{number}"), "default")
    server.faults.add(Fault(expire_continue=True))
    found = maps.list("default", ListOptions(limit=2))
    assert [item["metadata"]["name"] for item in found.items] == [f"n{n}" for n in range(5)]
    assert server.faults.pending == ()


def test_an_expired_token_comes_with_a_new_one(
    server: ApiServer, client: Client, maps: ResourceClient[Any]
) -> None:
    for number in range(3):
        maps.create(config_map(f"n{number}"), "default")
    path = "/api/v1/namespaces/default/configmaps"
    first = json.loads(client.raw("GET", path, query={"limit": "2"}).body)
    server.faults.add(Fault(expire_continue=True))
    token = first["metadata"]["continue"]
    gone = client.raw("GET", path, query={"limit": "2", "continue": token})
    assert gone.status == 410
    token = json.loads(gone.body)["metadata"]["continue"]
    rest = json.loads(client.raw("GET", path, query={"limit": "2", "continue": token}).body)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["n2"]


@pytest.fixture
def informer(maps: ResourceClient[Any]) -> Iterator[SharedInformer[Any]]:
    found = SharedInformer(
        maps,
        options=InformerOptions(
            streaming=False, idle_timeout=0.5, backoff=Backoff(base=0.02, cap=0.1)
        ),
    )
    yield found
    found.stop()
    assert found.join(LIMIT)


def holds(informer: SharedInformer[Any], *wanted: str) -> bool:
    return set(informer.store.keys()) == {f"default/{name}" for name in wanted}


def until_it_holds(informer: SharedInformer[Any], *wanted: str) -> None:
    changed = threading.Event()
    informer.add_handler(
        on_add=lambda *_: changed.set(),
        on_update=lambda *_: changed.set(),
        on_delete=lambda *_: changed.set(),
    )
    while not holds(informer, *wanted):
        assert changed.wait(LIMIT), "the informer never held them"
        changed.clear()


def test_a_watch_corrects_a_stale_list(server: ApiServer, informer: SharedInformer[Any]) -> None:
    for name in "ab":
        server.install(config_map(name))
    server.faults.add(Fault(verb="list", lag=60.0))
    first: list[str] = []

    def note(item: dict[str, Any], is_in_initial_list: bool) -> None:
        if is_in_initial_list:
            first.append(item["metadata"]["name"])

    informer.add_handler(on_add=note)
    informer.start()
    until_it_holds(informer, "a", "b")
    assert first == []
    assert server.faults.pending == ()


def test_an_interrupted_eviction_has_used_its_budget(server: ApiServer, client: Client) -> None:
    server.install(POD, BUDGET)
    server.faults.add(Fault(spend_budget_only=True))
    path, body = "/api/v1/namespaces/default/pods/p/eviction", {"metadata": {"name": "p"}}
    with pytest.raises(ConnectFailed):
        client.raw("POST", path, body=body)
    status = server.get("poddisruptionbudgets", "b", "default", "policy")["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p"]
    pod = server.get("pods", "p", "default")
    assert "deletionTimestamp" not in pod["metadata"]
    assert [found["type"] for found in pod["status"]["conditions"]] == ["Ready"]
    assert client.raw("POST", path, body=body).status == 429
    assert server.get("pods", "p", "default") == pod


def test_an_interrupted_eviction_without_a_budget_changes_nothing(
    server: ApiServer, client: Client
) -> None:
    server.install(POD)
    server.faults.add(Fault(spend_budget_only=True, status=504))
    path, body = "/api/v1/namespaces/default/pods/p/eviction", {"metadata": {"name": "p"}}
    assert client.raw("POST", path, body=body).status == 504
    assert client.raw("POST", path, body=body).status == 201
    with pytest.raises(NotFound):
        client.resource(Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)).get(
            "p", "default"
        )


@pytest.mark.parametrize("seed", range(3))
def test_an_informer_survives_common_faults(
    server: ApiServer, maps: ResourceClient[Any], informer: SharedInformer[Any], seed: int
) -> None:
    server.faults.inject_randomly(rate=0.3, seed=seed)
    informer.start()
    for number in range(40):
        with suppress(ClientError):  # some writes are refused, or their responses are lost
            maps.create(config_map(f"n{number:02}"), "default")
        if number % 3 == 0:
            with suppress(ClientError):
                maps.delete(f"n{number:02}", "default")
    until_it_holds(informer, *names(server))


def test_each_common_fault_can_hit_a_request() -> None:
    assert len(set(COMMON_FAULTS)) == len(COMMON_FAULTS)
    assert not [fault for fault in COMMON_FAULTS if fault.lose or fault.stall_after]
