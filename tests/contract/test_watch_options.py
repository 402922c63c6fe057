"""Watches by every combination of version, match and initial events."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.exchanges import Http
from tests.contract.objects import config_map

FUTURE = "999999999999"
VERSIONS = ("unset", "any", "known", "future", "malformed")
INITIAL = ("unset", "true", "false")
CONTRADICTIONS = [
    (match, initial)
    for match in ("unset", "Exact", "NotOlderThan", "Sometimes")
    for initial in INITIAL
    if match != ("unset" if initial == "unset" else "NotOlderThan")
]
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
def maps(http: Http, core: str) -> str:
    """Two config maps, and what else there was."""
    with http.silent():
        for name in "ab":
            http.create(f"{core}/configmaps", config_map(name))
    http.let_cache_catch_up(f"{core}/configmaps", "b")
    return f"{core}/configmaps"


@pytest.fixture
def two_widgets(http: Http, widgets: str, widget: Callable[..., dict[str, Any]]) -> str:
    with http.silent():
        for name in "ab":
            widget(name)
    http.let_cache_catch_up(widgets, "b")
    return widgets


@pytest.fixture(params=["maps", "two_widgets"])
def path(request: pytest.FixtureRequest) -> str:
    """A collection of two objects: of a built-in kind, and of a custom one."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def version(http: Http, path: str) -> Callable[[str], str | None]:
    """Says a version by what it is."""
    with http.silent():  # after this, even who asks for any version sees both objects
        known = http("GET", path).body["metadata"]["resourceVersion"]
    texts = {"any": "0", "known": known, "future": FUTURE, "malformed": "abc"}
    return texts.get


def query(which: str | None, match: str, initial: str) -> dict[str, object]:
    return {
        "resourceVersion": which,
        "resourceVersionMatch": None if match == "unset" else match,
        "sendInitialEvents": None if initial == "unset" else initial,
    }


def shown(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]


@pytest.mark.parametrize(("match", "initial"), CONTRADICTIONS)
@pytest.mark.parametrize("which", VERSIONS)
def test_a_watch_whose_options_contradict_each_other_is_refused(
    http: Http,
    path: str,
    version: Callable[[str], str | None],
    which: str,
    match: str,
    initial: str,
) -> None:
    reply = http("GET", path, watch="true", **query(version(which), match, initial))
    assert (reply.code, reply.reason) == (422, "Invalid")


@pytest.mark.parametrize("initial", INITIAL)
def test_a_watch_from_no_version_at_all_is_refused(http: Http, path: str, initial: str) -> None:
    match = "unset" if initial == "unset" else "NotOlderThan"
    reply = http("GET", path, watch="true", **query("abc", match, initial))
    assert reply.code == 500


@pytest.mark.parametrize("bookmarks", ["true", "false"])
@pytest.mark.parametrize("initial", ["unset", "true"])
@pytest.mark.parametrize("which", ["unset", "any"])
def test_a_watch_from_any_version_begins_with_what_is_there(
    http: Http,
    path: str,
    version: Callable[[str], str | None],
    which: str,
    initial: str,
    bookmarks: str,
) -> None:
    match = "unset" if initial == "unset" else "NotOlderThan"
    events = http.watch(
        path,
        3 if bookmarks == "true" else 2,
        allowWatchBookmarks=bookmarks,
        **query(version(which), match, initial),
    )
    assert shown(events)[:2] == [("ADDED", "a"), ("ADDED", "b")]
    assert [kind for kind, _ in shown(events)[2:]] == ["BOOKMARK"] * (bookmarks == "true")


@pytest.mark.parametrize("initial", INITIAL)
def test_a_watch_from_a_known_version(
    http: Http, path: str, version: Callable[[str], str | None], initial: str
) -> None:
    match = "unset" if initial == "unset" else "NotOlderThan"
    asked = {"allowWatchBookmarks": "true", **query(version("known"), match, initial)}
    with http.silent():
        http.merge(f"{path}/b", {"metadata": {"labels": {"changed": "yes"}}})
    http.let_cache_catch_up(path, "b")
    events = http.watch(path, 3 if initial == "true" else 1, **asked)
    if initial == "true":
        assert shown(events) == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")]
    else:
        assert shown(events) == [("MODIFIED", "b")]


@pytest.mark.parametrize("which", ["unset", "any"])
def test_a_watch_without_initial_events_begins_now(http: Http, maps: str, which: str) -> None:
    asked = query(None if which == "unset" else "0", "NotOlderThan", "false")
    assert http.watch(maps, 1, timeoutSeconds=1, **asked) == []


@pytest.mark.parametrize("initial", ["unset", "false"])
def test_a_watch_may_wait_for_its_version(http: Http, maps: str, initial: str) -> None:
    match = "unset" if initial == "unset" else "NotOlderThan"
    assert http.watch(maps, 1, timeoutSeconds=1, **query(FUTURE, match, initial)) == []


def test_initial_events_do_not_wait_for_their_version(http: Http, path: str) -> None:
    (event,) = http.watch(path, 1, **query(FUTURE, "NotOlderThan", "true"))
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 504


def test_without_bookmarks_nothing_ends_the_initial_events(http: Http, maps: str) -> None:
    asked = query(None, "NotOlderThan", "true")
    events = http.watch(maps, 3, timeoutSeconds=1, fieldSelector="metadata.name=a", **asked)
    assert shown(events) == [("ADDED", "a")]


@pytest.mark.parametrize("flag", ["", "1", "TRUE", "yes"])
def test_what_is_said_of_a_watch_is_true_unless_it_says_not(
    http: Http, maps: str, flag: str
) -> None:
    events = http.watch(
        maps, 2, watch=flag, allowWatchBookmarks=flag, fieldSelector="metadata.name=a"
    )
    assert shown(events) == [("ADDED", "a"), ("BOOKMARK", "")]


@pytest.mark.parametrize("flag", ["false", "0", "False"])
def test_a_watch_that_is_none_is_a_list(http: Http, maps: str, flag: str) -> None:
    assert http("GET", maps, watch=flag, fieldSelector="metadata.name=a").body["items"]


def test_a_watch_does_not_go_on_from_a_page(http: Http, maps: str) -> None:
    with http.silent():
        page = http("GET", maps, limit=1).body["metadata"]["continue"]
    asked = query("0", "NotOlderThan", "true")
    assert http("GET", maps, watch="true", **asked, **{"continue": page}).code == 422


@pytest.mark.parametrize("accept", [TABLE, PARTIAL])
def test_initial_events_and_their_end_are_shown_as_asked(
    http: Http, path: str, accept: str
) -> None:
    asked = query(None, "NotOlderThan", "true")
    events = http.watch(path, 3, accept=accept, allowWatchBookmarks="true", **asked)
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]


@pytest.mark.parametrize("timeout", ["x", "1.5", ""])
def test_a_timeout_is_a_number(http: Http, maps: str, timeout: str) -> None:
    assert http("GET", maps, watch="true", timeoutSeconds=timeout).code == 400
