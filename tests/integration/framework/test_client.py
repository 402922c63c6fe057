"""The client against an API server, over HTTP."""

import threading
from itertools import islice
from typing import Any

import msgspec
import pytest
from tests.integration.framework.kinds import (
    BUDGETS,
    CONFIG_MAPS,
    GIZMOS,
    LEASES,
    NAMESPACES,
    PODS,
    ConfigMap,
)
from tests.servers import Served

from navarchos.client import (
    AlreadyExists,
    ApiResource,
    BadRequest,
    Client,
    Conflict,
    Expired,
    HttpRequest,
    Invalid,
    NotFound,
    PatchType,
    Propagation,
    Resource,
    ResourceClient,
    TooManyRequests,
    WatchExpired,
)
from navarchos.client.http.pool import PooledResponse, PooledTransport
from navarchos.client.options import ListOptions, WatchOptions
from navarchos.errors import Stopped
from navarchos.stopping import StopToken

REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
    type=dict,
)
THINGS = Resource("none.example.com", "v1", "things", "Thing", namespaced=False, type=dict)


@pytest.fixture
def maps(client: Client) -> ResourceClient[ConfigMap]:
    return client.resource(CONFIG_MAPS)


@pytest.fixture
def seven(maps: ResourceClient[ConfigMap], namespace: str) -> list[str]:
    names = [f"n{number}" for number in range(7)]
    for name in names:
        maps.create({"metadata": {"name": name, "labels": {"seven": "yes"}}}, namespace)
    return names


def test_a_review_is_asked_for_without_metadata(client: Client) -> None:
    answer = client.resource(REVIEWS).create({"spec": {"nonResourceAttributes": {"verb": "get"}}})
    assert answer["status"]["allowed"] is True


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


POD_SPEC = {"containers": [{"name": "c", "image": "example.com/c:1"}]}
BOUND = POD_SPEC | {"nodeName": "nowhere", "terminationGracePeriodSeconds": 20}


def test_a_deletion_returns_the_object_if_it_still_exists(client: Client, namespace: str) -> None:
    maps, pods = client.resource(CONFIG_MAPS), client.resource(PODS)
    namespaces = client.resource(NAMESPACES)
    maps.create({"metadata": {"name": "gone"}}, namespace)
    assert maps.delete("gone", namespace) is None
    maps.create({"metadata": {"name": "kept", "finalizers": ["example.com/x"]}}, namespace)
    kept = maps.delete("kept", namespace)
    assert kept is not None
    assert kept.metadata.deletion_timestamp is not None
    assert kept == maps.get("kept", namespace)
    maps.patch("kept", {"metadata": {"finalizers": None}}, namespace)
    maps.create({"metadata": {"name": "trial"}}, namespace)
    assert maps.delete("trial", namespace, dry_run=True) is None
    waiting = maps.delete("trial", namespace, propagation=Propagation.FOREGROUND)
    assert waiting is not None
    assert waiting.metadata.finalizers == ("foregroundDeletion",)
    pods.create({"metadata": {"name": "pending"}, "spec": POD_SPEC}, namespace)
    assert pods.delete("pending", namespace) is None
    pods.create({"metadata": {"name": "bound"}, "spec": BOUND}, namespace)
    ending = pods.delete("bound", namespace)
    assert ending is not None
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 20
    assert pods.delete("bound", namespace, grace_period_seconds=0) is None
    with pytest.raises(NotFound):
        pods.get("bound", namespace)
    other = namespaces.create({"metadata": {"generateName": "framework-ending-"}})["metadata"][
        "name"
    ]
    ending = namespaces.delete(other)
    assert ending is not None
    assert ending["status"]["phase"] == "Terminating"


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
    found = maps.list(namespace, ListOptions(label_selector="seven", limit=3))
    assert [item.metadata.name for item in found.items] == seven
    assert found.pages == 3
    assert maps.list(namespace, ListOptions(label_selector="a=b")).items == []
    chosen = maps.list(namespace, ListOptions(field_selector="metadata.name=n3")).items
    assert [item.metadata.name for item in chosen] == ["n3"]


def test_a_watch_follows_what_is_written(maps: ResourceClient[ConfigMap], namespace: str) -> None:
    start = maps.list(namespace).resource_version
    with maps.watch(
        namespace, WatchOptions(resource_version=start, field_selector="metadata.name=a")
    ) as events:
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
    with maps.watch(
        namespace, WatchOptions(send_initial_events=True, label_selector="seven")
    ) as events:
        for event in events:
            if event.initial_events_end:
                assert event.resource_version
                break
            assert event.object is not None
            names.append(event.object.metadata.name)
    assert sorted(names) == seven


def test_a_watch_that_the_server_ended_is_resumed_where_it_was(
    maps: ResourceClient[ConfigMap], namespace: str
) -> None:
    maps.create({"metadata": {"name": "a"}}, namespace)
    with maps.watch(namespace, WatchOptions(resource_version="0", timeout_seconds=1)) as events:
        found = [event for event in events if event.object is not None]
    assert [name_of(event.object) for event in found] == ["a"]
    for name in ("b", "c"):
        maps.create({"metadata": {"name": name}}, namespace)
    last = found[-1].resource_version
    with maps.watch(namespace, WatchOptions(resource_version=last, timeout_seconds=1)) as events:
        rest = [(event.type, name_of(event.object)) for event in events if event.object]
    assert rest == [("ADDED", "b"), ("ADDED", "c")]


def name_of(found: ConfigMap | None) -> str:
    assert found is not None
    return found.metadata.name


def test_selectors_choose_on_the_server(maps: ResourceClient[ConfigMap], namespace: str) -> None:
    for name, labels in {"a": {"tier": "web"}, "b": {"tier": "db"}, "c": {}}.items():
        maps.create({"metadata": {"name": name, "labels": labels}}, namespace)

    def names(**selectors: Any) -> str:
        return "".join(
            each.metadata.name for each in maps.list(namespace, ListOptions(**selectors)).items
        )

    assert names(label_selector="tier") == "ab"
    assert names(label_selector="!tier") == "c"
    assert names(label_selector="tier=web") == "a"
    assert names(label_selector="tier!=web") == "bc"
    assert names(label_selector="tier in (web,db)") == "ab"
    assert names(label_selector="tier notin (db)") == "ac"
    assert names(label_selector="tier,tier!=db") == "a"
    assert names(field_selector="metadata.name=b") == "b"
    assert names(field_selector="metadata.name!=b,metadata.name!=c") == "a"
    assert names(label_selector="tier", field_selector="metadata.name!=a") == "b"
    with pytest.raises(BadRequest, match=r"spec\.colour"):
        names(field_selector="spec.colour=red")


def test_a_page_of_a_forgotten_list_is_expired(
    our_server: Served, maps: ResourceClient[ConfigMap], namespace: str, seven: list[str]
) -> None:
    page = maps.list_page(namespace, ListOptions(limit=3))
    assert [each.metadata.name for each in page.items] == seven[:3]
    maps.patch(seven[0], {"data": {"k": "1"}}, namespace)
    our_server.forget()
    with pytest.raises(Expired):
        maps.list_page(namespace, ListOptions(limit=3, continue_token=page.continue_token))


def test_a_watch_from_a_forgotten_version_is_expired(
    our_server: Served, maps: ResourceClient[ConfigMap], namespace: str
) -> None:
    start = maps.list(namespace).resource_version
    for name in "ab":
        maps.create({"metadata": {"name": name}}, namespace)
    our_server.forget()
    with (
        pytest.raises((WatchExpired, Expired)),
        maps.watch(options=WatchOptions(resource_version=start)) as events,
    ):
        next(events)


def test_stop_frees_a_quiet_watch(maps: ResourceClient[ConfigMap], namespace: str) -> None:
    stop = StopToken()
    timer = threading.Timer(0.05, stop.stop)
    with maps.watch(
        namespace, WatchOptions(bookmarks=False, label_selector="none"), stop=stop
    ) as events:
        timer.start()
        with pytest.raises(Stopped):
            next(events)
    timer.join()


def test_an_eviction_is_refused_by_an_unprocessed_budget(client: Client, namespace: str) -> None:
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
    assert client.has_kind(CONFIG_MAPS)
    assert client.has_kind(BUDGETS)
    assert not client.has_kind(THINGS)


def test_aggregated_discovery_equals_discovery_of_each_group(
    client: Client, gizmos_served: None
) -> None:
    """The client asks for the aggregated form, which no server needs to offer."""
    groups = msgspec.json.decode(client.raw("GET", "/apis").body)["groups"]
    versions = [v["groupVersion"] for group in groups for v in group["versions"]]
    assert GIZMOS.api_version in versions
    for version in ["v1", *versions]:
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        entries = msgspec.json.decode(client.raw("GET", path).body)["resources"]
        found = client.api_resources(*version.rpartition("/")[::2])
        assert {e.name: e for e in found} == {
            e["name"]: msgspec.convert(e, ApiResource, strict=False) for e in entries
        }


def test_all_groups_are_asked_for_once(served: Served) -> None:
    asked: list[str] = []

    class Recording(PooledTransport):
        def send(self, request: HttpRequest) -> PooledResponse:
            asked.append(request.target)
            return super().send(request)

    with Client(served.config, transport=Recording(served.config)) as client:
        assert client.has_kind(BUDGETS)
        assert client.has_kind(LEASES)
        assert client.has_kind(CONFIG_MAPS)
    assert asked == ["/apis", "/api"]
