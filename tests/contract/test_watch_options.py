"""Watches with every combination of version, match and initial events."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.exchanges import Http
from tests.contract.shared import FUTURE, Shared

VERSIONS = ("unset", "any", "known", "future", "malformed")
INITIAL = ("unset", "true", "false")
CONTRADICTIONS = [
    (match, initial)
    for match in ("unset", "Exact", "NotOlderThan", "Sometimes")
    for initial in INITIAL
    if match != ("unset" if initial == "unset" else "NotOlderThan")
]
THERE = [("ADDED", name) for name in "abc"]
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def query(which: str | None, match: str, initial: str) -> dict[str, Any]:
    return {
        "resourceVersion": which,
        "resourceVersionMatch": None if match == "unset" else match,
        "sendInitialEvents": None if initial == "unset" else initial,
    }


def shown(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]


def change(http: Http, path: str) -> None:
    """Change an object, for an event."""
    with http.unrecorded():
        http.merge(f"{path}/b", {"metadata": {"labels": {"changed": "yes"}}})


@pytest.mark.parametrize(("match", "initial"), CONTRADICTIONS)
@pytest.mark.parametrize("which", VERSIONS)
def test_a_watch_whose_options_contradict_each_other_is_refused(
    http: Http,
    shared: Shared,
    which: str,
    match: str,
    initial: str,
) -> None:
    reply = http(
        "GET", shared.path, watch="true", **query(shared.version_as(which), match, initial)
    )
    assert (reply.code, reply.reason) == (422, "Invalid")


@pytest.mark.parametrize("initial", INITIAL)
def test_a_watch_from_a_malformed_version_is_refused(http: Http, path: str, initial: str) -> None:
    match = "unset" if initial == "unset" else "NotOlderThan"
    reply = http("GET", path, watch="true", **query("abc", match, initial))
    assert reply.code == 500


@pytest.mark.parametrize("bookmarks", ["true", "false"])
@pytest.mark.parametrize("initial", ["unset", "true"])
@pytest.mark.parametrize("which", ["unset", "any"])
def test_a_watch_from_any_version_begins_with_current_objects(
    http: Http, shared: Shared, which: str, initial: str, bookmarks: str
) -> None:
    match = "unset" if initial == "unset" else "NotOlderThan"
    events = http.watch(
        shared.path,
        4 if bookmarks == "true" else 3,
        allowWatchBookmarks=bookmarks,
        **query(shared.version_as(which), match, initial),
    )
    assert shown(events)[:3] == THERE
    assert [kind for kind, _ in shown(events)[3:]] == ["BOOKMARK"] * (bookmarks == "true")


@pytest.mark.parametrize("initial", INITIAL)
def test_a_watch_from_a_known_version(
    http: Http, shared: Shared, changed: str, initial: str
) -> None:
    match = "unset" if initial == "unset" else "NotOlderThan"
    asked = {"allowWatchBookmarks": "true", **query(shared.version, match, initial)}
    change(http, changed)
    http.wait_for_cache(changed, "b")
    events = http.watch(changed, 4 if initial == "true" else 1, **asked)
    if initial == "true":
        assert shown(events) == [*THERE, ("BOOKMARK", "")]
    else:
        assert shown(events) == [("MODIFIED", "b")]


@pytest.mark.parametrize("which", ["unset", "any"])
def test_a_watch_without_initial_events_begins_now(
    http: Http, changed_maps: str, which: str
) -> None:
    asked = query(None if which == "unset" else "0", "NotOlderThan", "false")
    events = http.watch(changed_maps, 1, once_open=lambda: change(http, changed_maps), **asked)
    assert shown(events) == [("MODIFIED", "b")]


def test_a_watch_may_wait_for_its_version(http: Http, maps: str) -> None:
    def wait(match: str, initial: str) -> Callable[[Http], list[dict[str, Any]]]:
        asked = {"timeoutSeconds": 1, **query(FUTURE, match, initial)}
        return lambda http: http.watch(maps, 1, **asked)

    assert http.in_parallel(wait("unset", "unset"), wait("NotOlderThan", "false")) == [[], []]


def test_initial_events_do_not_wait_for_their_version(
    http: Http, shared_maps: Shared, shared_widgets: Shared
) -> None:
    asked = query(FUTURE, "NotOlderThan", "true")
    answers = http.in_parallel(
        lambda http: http.watch(shared_maps.path, 1, **asked),
        lambda http: http.watch(shared_widgets.path, 1, **asked),
    )
    for (event,) in answers:
        assert event["type"] == "ERROR"
        assert event["object"]["code"] == 504


def test_without_bookmarks_nothing_ends_the_initial_events(http: Http, changed_maps: str) -> None:
    asked = {"fieldSelector": "metadata.name=b", **query(None, "NotOlderThan", "true")}
    events = http.watch(changed_maps, 2, once_open=lambda: change(http, changed_maps), **asked)
    assert shown(events) == [("ADDED", "b"), ("MODIFIED", "b")]


@pytest.mark.parametrize("flag", ["", "1", "TRUE", "yes"])
def test_a_flag_of_a_watch_is_true_unless_it_is_false(http: Http, maps: str, flag: str) -> None:
    events = http.watch(
        maps, 2, watch=flag, allowWatchBookmarks=flag, fieldSelector="metadata.name=a"
    )
    assert shown(events) == [("ADDED", "a"), ("BOOKMARK", "")]


@pytest.mark.parametrize("flag", ["false", "0", "False"])
def test_a_watch_flag_of_false_is_a_list(http: Http, maps: str, flag: str) -> None:
    assert http("GET", maps, watch=flag, fieldSelector="metadata.name=a").body["items"]


def test_a_watch_cannot_continue_a_page(http: Http, maps: str) -> None:
    with http.unrecorded():
        page = http("GET", maps, limit=1).body["metadata"]["continue"]
    asked = query("0", "NotOlderThan", "true")
    assert http("GET", maps, watch="true", **asked, **{"continue": page}).code == 422


@pytest.mark.parametrize("accept", [TABLE, PARTIAL])
def test_initial_events_and_their_end_have_the_requested_form(
    http: Http, path: str, accept: str
) -> None:
    asked = query(None, "NotOlderThan", "true")
    events = http.watch(path, 4, accept=accept, allowWatchBookmarks="true", **asked)
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "ADDED", "BOOKMARK"]


@pytest.mark.parametrize("timeout", ["x", "1.5", ""])
def test_a_timeout_must_be_a_number(http: Http, maps: str, timeout: str) -> None:
    assert http("GET", maps, watch="true", timeoutSeconds=timeout).code == 400
