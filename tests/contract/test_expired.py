"""Requests with a version that the server no longer keeps."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases.waiting import wait_for
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import config_map
from tests.servers import Served


@pytest.fixture
def maps(http: Http, core: str) -> str:
    """Three config maps; returns their path."""
    with http.unrecorded():
        for name in "abc":
            http.create(f"{core}/configmaps", config_map(name))
    return f"{core}/configmaps"


@pytest.fixture
def forget(served: Served, http: Http, maps: str) -> Callable[[], None]:
    """Makes all versions before now expire."""
    if served.server is None:
        pytest.skip("a server outside this suite must keep its history")

    def forget() -> None:
        with http.unrecorded():
            http.create(maps, config_map("d"))
            served.forget()
            wait_for("the server", lambda: http("GET", "/readyz").code == 200)
            http("GET", maps)  # fills the server's cache

    return forget


def names(reply: Reply) -> str:
    return "".join(item["metadata"]["name"] for item in reply.body["items"])


def test_an_expired_version_is_gone_and_its_token_continues_with_current_objects(
    http: Http, maps: str, forget: Callable[[], None]
) -> None:
    """One case for all: a real server is restarted for it."""
    with http.unrecorded():
        first = http("GET", maps, limit=1).body["metadata"]
    version, page = first["resourceVersion"], first["continue"]
    forget()

    for query in (
        {"resourceVersion": version, "resourceVersionMatch": "Exact"},
        {"resourceVersion": version, "resourceVersionMatch": "Exact", "limit": 1},
        {"resourceVersion": version, "limit": 1},
        {"continue": page},
        {"continue": page, "limit": 1},
    ):
        reply = http("GET", maps, **query)
        assert (reply.code, reply.reason) == (410, "Expired"), query
        assert ("continue" in reply.body["metadata"]) is ("continue" in query)
    for query in (
        {"resourceVersion": version},
        {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"},
        {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan", "limit": 9},
    ):
        assert names(http("GET", maps, **query)) == "abcd", query

    again = http("GET", maps, limit=1, **{"continue": page}).body["metadata"]["continue"]
    rest = http("GET", maps, limit=2, **{"continue": again})
    assert names(rest) == "bc", "the current objects, from the beginning of the page"
    last = http("GET", maps, **{"continue": rest.body["metadata"]["continue"]})
    assert names(last) == "d"

    deletion = http("DELETE", maps, **{"continue": page})
    assert deletion.code == 410

    assert http("GET", f"{maps}/a", resourceVersion=version).code == 200
    events: list[dict[str, Any]] = http.watch(maps, 1, resourceVersion=version)
    assert [event["type"] for event in events] == ["ERROR"]
    assert events[0]["object"]["code"] == 410
    events = http.watch(
        maps,
        5,
        resourceVersion=version,
        resourceVersionMatch="NotOlderThan",
        sendInitialEvents="true",
        allowWatchBookmarks="true",
    )
    assert [event["type"] for event in events] == ["ADDED"] * 4 + ["BOOKMARK"]
