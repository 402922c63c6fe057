"""Lists by every combination of version, match, limit and page."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.exchanges import Http, Reply
from tests.contract.shared import FUTURE, Shared

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
VERSIONS = ("unset", "any", "known", "malformed")  # and the future, which takes its time
MATCHES = ("unset", "Exact", "NotOlderThan", "Sometimes")
LIMITS: dict[str, int | None] = {"all": None, "pages": 2, "negative": -1}

CODES = {
    ("unset", "unset"): 200,
    ("any", "unset"): 200,
    ("any", "NotOlderThan"): 200,
    ("known", "unset"): 200,
    ("known", "Exact"): 200,
    ("known", "NotOlderThan"): 200,
    ("malformed", "unset"): 400,
    ("malformed", "Exact"): 400,
    ("malformed", "NotOlderThan"): 400,
}
"""What is answered; 422 to all others."""


def names(reply: Reply) -> str:
    return "".join(item["metadata"]["name"] for item in reply.body["items"])


def token(**fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("which", VERSIONS)
def test_a_list_takes_a_version_as_it_is_to_be_matched(
    http: Http, shared: Shared, which: str, match: str
) -> None:
    for size, limit in LIMITS.items():
        reply = http(
            "GET",
            shared.path,
            resourceVersion=shared.version_as(which),
            resourceVersionMatch=None if match == "unset" else match,
            limit=limit,
        )
        assert reply.code == CODES.get((which, match), 422), (size, reply.body)
        if reply.code == 200:
            # Any version is answered from memory, whole.
            cut = size == "pages" and which != "any"
            assert names(reply) == ("ab" if cut else "abc")
            assert ("remainingItemCount" in reply.body["metadata"]) is cut


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("which", [*VERSIONS, "future"])
def test_a_page_has_the_version_of_its_first(
    http: Http, shared: Shared, which: str, match: str
) -> None:
    with http.unrecorded():
        page = http("GET", shared.path, limit=1).body["metadata"]["continue"]
    for limit in LIMITS.values():
        reply = http(
            "GET",
            shared.path,
            resourceVersion=shared.version_as(which),
            resourceVersionMatch=None if match == "unset" else match,
            limit=limit,
            **{"continue": page},
        )
        expected = 422 if match != "unset" else 200 if which in {"unset", "any"} else 400
        assert reply.code == expected, reply.body
        if reply.code == 200:
            assert names(reply) == "bc"


@pytest.mark.parametrize("accept", ["application/json", TABLE, PARTIAL])
def test_a_custom_list_says_that_it_does_not_go_on(
    http: Http, shared_widgets: Shared, accept: str
) -> None:
    """Upstream keeps lists of custom kinds as maps, which have the key even when it is empty."""
    path, last = shared_widgets.path, "" if accept == "application/json" else None
    assert http("GET", path, accept=accept).body["metadata"].get("continue") == last
    assert http("GET", path, accept=accept, limit=2).body["metadata"]["continue"]
    assert http("GET", path, labelSelector="none").body["metadata"]["continue"] == ""


def test_a_page_ends_where_its_last_object_was_found_whatever_follows(
    http: Http, changed_maps: str
) -> None:
    """Upstream does not look whether what follows is selected."""
    with http.unrecorded():
        http.merge(f"{changed_maps}/a", {"metadata": {"labels": {"seen": "yes"}}})
    first = http("GET", changed_maps, limit=1, labelSelector="seen=yes")
    assert names(first) == "a"
    assert "remainingItemCount" not in first.body["metadata"]
    rest = http(
        "GET",
        changed_maps,
        limit=1,
        labelSelector="seen=yes",
        **{"continue": first.body["metadata"]["continue"]},
    )
    assert names(rest) == ""
    assert "continue" not in rest.body["metadata"]


@pytest.mark.parametrize(
    "token",
    [
        "%%%",
        token(v="meta.k8s.io/v2", rv=5, start="a"),
        token(v="meta.k8s.io/v1", rv=0, start="a"),
        token(v="meta.k8s.io/v1", rv=5, start=""),
        token(v="meta.k8s.io/v1", rv=5, start="../secrets/a"),
        token(v="meta.k8s.io/v1", rv="5", start="a"),
        token(v="meta.k8s.io/v1"),
    ],
    ids=["no-base64", "another-form", "no-version", "no-key", "a-way-out", "a-text", "nothing"],
)
def test_a_token_that_no_list_gave_is_refused(http: Http, path: str, token: str) -> None:
    reply = http("GET", path, limit=1, **{"continue": token})
    assert (reply.code, reply.reason) == (400, "BadRequest")


def test_a_page_below_version_zero_is_of_what_is_there_now(http: Http, changed: str) -> None:
    """That is what goes on after a token that has expired."""
    page = token(v="meta.k8s.io/v1", rv=-1, start="a\0")
    with http.unrecorded():
        http("DELETE", f"{changed}/b")
    reply = http("GET", changed, limit=1, **{"continue": page})
    assert names(reply) == "c"


@pytest.mark.parametrize("limit", ["x", "1.5", ""])
def test_a_limit_is_a_number(http: Http, path: str, limit: str) -> None:
    assert http("GET", path, limit=limit).code == 400


@pytest.mark.parametrize("what", ["", "false", "true", "FALSE", "0", "x"])
def test_a_list_sends_no_initial_events(http: Http, path: str, what: str) -> None:
    reply = http("GET", path, sendInitialEvents=what)
    assert (reply.code, reply.reason) == (422, "Invalid")


@pytest.mark.parametrize("which", VERSIONS)
def test_one_object_is_at_least_as_new_as_asked(http: Http, shared: Shared, which: str) -> None:
    version = shared.version_as(which)
    reply = http("GET", f"{shared.path}/a", resourceVersion=version)
    assert reply.code == {"malformed": 500}.get(which, 200), reply.body
    reply = http("GET", f"{shared.path}/none", resourceVersion=version)
    assert reply.code == {"malformed": 500}.get(which, 404), reply.body


@pytest.mark.parametrize("which", VERSIONS)
def test_a_list_of_one_name_takes_a_version_too(http: Http, shared: Shared, which: str) -> None:
    version = shared.version_as(which)
    reply = http("GET", shared.path, fieldSelector="metadata.name=b", resourceVersion=version)
    assert reply.code == {"malformed": 400}.get(which, 200), reply.body


def test_a_version_of_the_future_is_waited_for_in_vain(
    http: Http, shared_maps: Shared, shared_widgets: Shared
) -> None:
    """All at once: a real server gives up after three seconds."""

    def ask(method: str, path: str, **query: Any) -> Callable[[Http], Reply]:
        return lambda http: http(method, path, resourceVersion=FUTURE, **query)

    asks: list[Callable[[Http], Reply]] = []
    for path in (shared_maps.path, shared_widgets.path):
        for match in (None, "Exact", "NotOlderThan"):
            asks += [
                ask("GET", path, resourceVersionMatch=match, limit=limit)
                for limit in LIMITS.values()
            ]
        asks += [ask("GET", f"{path}/a"), ask("GET", f"{path}/none")]
        asks += [ask("GET", path, fieldSelector="metadata.name=b"), ask("DELETE", path)]
    for reply in http.in_parallel(*asks):
        assert (reply.code, reply.reason) == (504, "Timeout"), reply.body
        assert reply.causes[0]["reason"] == "ResourceVersionTooLarge"
        assert reply.body["details"]["retryAfterSeconds"] == 1
    for path in (shared_maps.path, shared_widgets.path):
        for limit in LIMITS.values():
            reply = ask("GET", path, resourceVersionMatch="Sometimes", limit=limit)(http)
            assert reply.code == 422
        assert names(http("GET", path)) == "abc"


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_what_is_deleted_as_a_collection_is_listed_by_the_same_rules(
    http: Http, changed: str, limit: int | None
) -> None:
    reply = http("DELETE", changed, limit=limit)
    assert names(reply) == "abc"[:limit]
    assert names(http("GET", changed)) == ("" if limit is None else "abc"[limit:])


@pytest.mark.parametrize("accept", [TABLE, PARTIAL])
def test_what_was_deleted_as_a_collection_is_shown_as_asked(
    http: Http, changed: str, accept: str
) -> None:
    reply = http("DELETE", changed, accept=accept, limit=2)
    assert reply.body["metadata"]["remainingItemCount"] == 1


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
        {"resourceVersion": "abc"},
        {"continue": "%%%"},
        {"sendInitialEvents": "true"},
        {"resourceVersion": "0", "limit": 1, "dryRun": "All"},
    ],
    ids="-".join,
)
def test_a_collection_is_deleted_as_far_as_it_can_be_listed(
    http: Http, path: str, query: dict[str, Any]
) -> None:
    http("DELETE", path, **query)
    assert names(http("GET", path)) == "abc"


def test_a_collection_that_holds_on_is_shown_as_it_was_before(
    http: Http, changed_maps: str
) -> None:
    with http.unrecorded():
        http.merge(f"{changed_maps}/a", {"metadata": {"finalizers": ["example.com/hold"]}})
    first, *_ = http("DELETE", changed_maps).body["items"]
    assert "deletionTimestamp" not in first["metadata"]
    assert http("GET", f"{changed_maps}/a").body["metadata"]["deletionTimestamp"]
    with http.unrecorded():
        http.merge(f"{changed_maps}/a", {"metadata": {"finalizers": None}})
