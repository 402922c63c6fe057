"""Lists with every combination of version, match, limit and page."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.exchanges import Http, Reply
from tests.contract.shared import FUTURE, Shared

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
VERSIONS = (
    "unset",
    "any",
    "known",
    "malformed",
)  # a version in the future is tested in parallel below, because it takes seconds
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
"""The status of each combination; all others get 422."""


def names(reply: Reply) -> str:
    return "".join(item["metadata"]["name"] for item in reply.body["items"])


def token(**fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("which", VERSIONS)
def test_a_list_follows_the_version_match(
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
            # Any version is served from memory, without a limit.
            cut = size == "pages" and which != "any"
            assert names(reply) == ("ab" if cut else "abc")
            assert ("remainingItemCount" in reply.body["metadata"]) is cut


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("which", [*VERSIONS, "future"])
def test_every_page_has_the_version_of_the_first(
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
def test_a_custom_list_has_an_empty_continue_token(
    http: Http, shared_widgets: Shared, accept: str
) -> None:
    """Upstream keeps lists of custom kinds as maps, which have the key even if it is empty."""
    path, last = shared_widgets.path, "" if accept == "application/json" else None
    assert http("GET", path, accept=accept).body["metadata"].get("continue") == last
    assert http("GET", path, accept=accept, limit=2).body["metadata"]["continue"]
    assert http("GET", path, labelSelector="none").body["metadata"]["continue"] == ""


def test_a_page_ends_at_its_last_object_even_if_no_selected_one_follows(
    http: Http, changed_maps: str
) -> None:
    """Upstream does not check whether later objects are selected."""
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
def test_a_made_up_token_is_refused(http: Http, path: str, token: str) -> None:
    reply = http("GET", path, limit=1, **{"continue": token})
    assert (reply.code, reply.reason) == (400, "BadRequest")


def test_a_token_with_a_negative_version_continues_with_current_objects(
    http: Http, changed: str
) -> None:
    """An expired token continues with the current objects in this way."""
    page = token(v="meta.k8s.io/v1", rv=-1, start="a\0")
    with http.unrecorded():
        http("DELETE", f"{changed}/b")
    reply = http("GET", changed, limit=1, **{"continue": page})
    assert names(reply) == "c"


@pytest.mark.parametrize("limit", ["x", "1.5", ""])
def test_a_limit_must_be_a_number(http: Http, path: str, limit: str) -> None:
    assert http("GET", path, limit=limit).code == 400


@pytest.mark.parametrize("what", ["", "false", "true", "FALSE", "0", "x"])
def test_a_list_sends_no_initial_events(http: Http, path: str, what: str) -> None:
    reply = http("GET", path, sendInitialEvents=what)
    assert (reply.code, reply.reason) == (422, "Invalid")


@pytest.mark.parametrize("which", VERSIONS)
def test_an_object_is_at_least_as_new_as_requested(http: Http, shared: Shared, which: str) -> None:
    version = shared.version_as(which)
    reply = http("GET", f"{shared.path}/a", resourceVersion=version)
    assert reply.code == {"malformed": 500}.get(which, 200), reply.body
    reply = http("GET", f"{shared.path}/none", resourceVersion=version)
    assert reply.code == {"malformed": 500}.get(which, 404), reply.body


@pytest.mark.parametrize("which", VERSIONS)
def test_a_list_of_one_name_follows_the_version(http: Http, shared: Shared, which: str) -> None:
    version = shared.version_as(which)
    reply = http("GET", shared.path, fieldSelector="metadata.name=b", resourceVersion=version)
    assert reply.code == {"malformed": 400}.get(which, 200), reply.body


def test_a_version_in_the_future_times_out(
    http: Http, shared_maps: Shared, shared_widgets: Shared
) -> None:
    """In parallel: a real server waits for three seconds."""

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
def test_a_deletion_of_a_collection_follows_the_limit(
    http: Http, changed: str, limit: int | None
) -> None:
    reply = http("DELETE", changed, limit=limit)
    assert names(reply) == "abc"[:limit]
    assert names(http("GET", changed)) == ("" if limit is None else "abc"[limit:])


@pytest.mark.parametrize("accept", [TABLE, PARTIAL])
def test_a_deleted_collection_is_shown_in_the_requested_form(
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
def test_a_collection_that_cannot_be_listed_is_not_deleted(
    http: Http, path: str, query: dict[str, Any]
) -> None:
    http("DELETE", path, **query)
    assert names(http("GET", path)) == "abc"


def test_a_collection_with_finalizers_is_shown_in_its_old_state(
    http: Http, changed_maps: str
) -> None:
    with http.unrecorded():
        http.merge(f"{changed_maps}/a", {"metadata": {"finalizers": ["example.com/hold"]}})
    first, *_ = http("DELETE", changed_maps).body["items"]
    assert "deletionTimestamp" not in first["metadata"]
    assert http("GET", f"{changed_maps}/a").body["metadata"]["deletionTimestamp"]
    with http.unrecorded():
        http.merge(f"{changed_maps}/a", {"metadata": {"finalizers": None}})
