"""Watches: beginning, events, end."""

from typing import Any

import pytest
from tests.contract.exchanges import Http
from tests.contract.objects import config_map


def shown(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]


@pytest.fixture
def path(core: str) -> str:
    return f"{core}/configmaps"


@pytest.fixture
def version(http: Http, path: str) -> str:
    found: str = http("GET", path).body["metadata"]["resourceVersion"]
    return found


SELECT: dict[str, Any] = {"labelSelector": "seen=yes"}


def seen(name: str, **data: str) -> dict[str, Any]:
    body = config_map(name, **data)
    body["metadata"]["labels"] = {"seen": "yes"}
    return body


def test_a_watch_shows_events_after_its_version(http: Http, path: str, version: str) -> None:
    http.create(path, seen("a"))
    http.merge(f"{path}/a", {"data": {"x": "1"}})
    http("DELETE", f"{path}/a")
    events = http.watch(path, 3, resourceVersion=version, **SELECT)
    assert shown(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(set(versions))
    assert events[0]["object"]["kind"] == "ConfigMap"


@pytest.mark.parametrize("version", ["", "0"])
def test_a_watch_without_a_version_begins_with_current_objects(
    http: Http, path: str, version: str
) -> None:
    http.create(path, seen("a"))
    http.create(path, seen("b"))
    events = http.watch(path, 2, resourceVersion=version, **SELECT)
    assert sorted(shown(events)) == [("ADDED", "a"), ("ADDED", "b")]


def test_objects_enter_and_leave_a_selection(http: Http, path: str, version: str) -> None:
    http.create(path, config_map("a"))
    http.merge(f"{path}/a", {"metadata": {"labels": {"seen": "yes"}}})
    http.merge(f"{path}/a", {"data": {"x": "1"}})
    last = http.merge(f"{path}/a", {"metadata": {"labels": {"seen": "no"}}}).body
    events = http.watch(path, 3, resourceVersion=version, **SELECT)
    assert shown(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    gone = events[-1]["object"]
    assert gone["metadata"]["labels"] == {"seen": "yes"}
    assert gone["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]


def test_field_selectors_select_one_object(http: Http, path: str, version: str) -> None:
    http.create(path, config_map("a"))
    http.create(path, config_map("b"))
    events = http.watch(path, 1, resourceVersion=version, fieldSelector="metadata.name=b")
    assert shown(events) == [("ADDED", "b")]


def test_a_watch_ends_after_its_timeout(http: Http, path: str, version: str) -> None:
    events = http.watch(path, 1, resourceVersion=version, timeoutSeconds=1, **SELECT)
    assert events == []


@pytest.mark.rule("RF-24")
@pytest.mark.rule("RF-25")
def test_a_streaming_list_ends_with_an_annotated_bookmark(http: Http, path: str) -> None:
    http.create(path, seen("a"))
    events = http.watch(
        path,
        2,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
        **SELECT,
    )
    assert shown(events)[0] == ("ADDED", "a")
    bookmark = events[1]
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) > 0


def test_a_streaming_list_needs_not_older_than(http: Http, path: str) -> None:
    reply = http("GET", path, watch="true", sendInitialEvents="true")
    assert (reply.code, reply.reason) == (422, "Invalid")


def test_resource_version_match_needs_a_streaming_list(http: Http, path: str) -> None:
    reply = http(
        "GET", path, watch="true", resourceVersion="1", resourceVersionMatch="NotOlderThan"
    )
    assert reply.code == 422


def test_a_malformed_version_is_refused(http: Http, path: str) -> None:
    assert http("GET", path, watch="true", resourceVersion="abc").code == 500
