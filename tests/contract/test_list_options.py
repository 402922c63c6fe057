"""Lists by every combination of version, match, limit and page."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import config_map

FUTURE = "999999999999"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
VERSIONS = ("unset", "any", "known", "future", "malformed")
MATCHES = ("unset", "Exact", "NotOlderThan", "Sometimes")
LIMITS: dict[str, int | None] = {"all": None, "pages": 2, "negative": -1}

CODES = {
    ("unset", "unset"): 200,
    ("any", "unset"): 200,
    ("any", "NotOlderThan"): 200,
    ("known", "unset"): 200,
    ("known", "Exact"): 200,
    ("known", "NotOlderThan"): 200,
    ("future", "unset"): 504,
    ("future", "Exact"): 504,
    ("future", "NotOlderThan"): 504,
    ("malformed", "unset"): 400,
    ("malformed", "Exact"): 400,
    ("malformed", "NotOlderThan"): 400,
}
"""What is answered; 422 to all others."""


@pytest.fixture
def maps(http: Http, core: str) -> str:
    """Three config maps; returns their path."""
    with http.silent():
        for name in "abc":
            http.create(f"{core}/configmaps", config_map(name))
    http.let_cache_catch_up(f"{core}/configmaps", "c")
    return f"{core}/configmaps"


@pytest.fixture
def three_widgets(widgets: str, widget: Callable[..., dict[str, Any]], http: Http) -> str:
    """Three custom objects; returns their path."""
    with http.silent():
        for name in "abc":
            widget(name)
    http.let_cache_catch_up(widgets, "c")
    return widgets


@pytest.fixture(params=["maps", "three_widgets"])
def path(request: pytest.FixtureRequest) -> str:
    """A collection of three objects: of a built-in kind, and of a custom one."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def version(http: Http, path: str) -> Callable[[str], str | None]:
    """Says a version by what it is."""
    with http.silent():
        known = http("GET", path).body["metadata"]["resourceVersion"]
    texts = {"any": "0", "known": known, "future": FUTURE, "malformed": "abc"}
    return texts.get


def names(reply: Reply) -> str:
    return "".join(item["metadata"]["name"] for item in reply.body["items"])


def token(**fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("which", VERSIONS)
def test_a_list_takes_a_version_as_it_is_to_be_matched(
    http: Http, path: str, version: Callable[[str], str | None], which: str, match: str
) -> None:
    for size, limit in LIMITS.items():
        reply = http(
            "GET",
            path,
            resourceVersion=version(which),
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
@pytest.mark.parametrize("which", VERSIONS)
def test_a_page_has_the_version_of_its_first(
    http: Http, path: str, version: Callable[[str], str | None], which: str, match: str
) -> None:
    with http.silent():
        page = http("GET", path, limit=1).body["metadata"]["continue"]
    for limit in LIMITS.values():
        reply = http(
            "GET",
            path,
            resourceVersion=version(which),
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
    http: Http, three_widgets: str, accept: str
) -> None:
    """Upstream keeps lists of custom kinds as maps, which have the key even when it is empty."""
    last = "" if accept == "application/json" else None
    assert http("GET", three_widgets, accept=accept).body["metadata"].get("continue") == last
    assert http("GET", three_widgets, accept=accept, limit=2).body["metadata"]["continue"]
    assert http("GET", three_widgets, labelSelector="none").body["metadata"]["continue"] == ""


def test_a_page_ends_where_its_last_object_was_found_whatever_follows(
    http: Http, maps: str
) -> None:
    """Upstream does not look whether what follows is selected."""
    with http.silent():
        http.merge(f"{maps}/a", {"metadata": {"labels": {"seen": "yes"}}})
    first = http("GET", maps, limit=1, labelSelector="seen=yes")
    assert names(first) == "a"
    assert "remainingItemCount" not in first.body["metadata"]
    rest = http(
        "GET",
        maps,
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


def test_a_page_below_version_zero_is_of_what_is_there_now(http: Http, path: str) -> None:
    """That is what goes on after a token that has expired."""
    page = token(v="meta.k8s.io/v1", rv=-1, start="a\0")
    with http.silent():
        http("DELETE", f"{path}/b")
    reply = http("GET", path, limit=1, **{"continue": page})
    assert names(reply) == "c"


@pytest.mark.parametrize("limit", ["x", "1.5", ""])
def test_a_limit_is_a_number(http: Http, path: str, limit: str) -> None:
    assert http("GET", path, limit=limit).code == 400


@pytest.mark.parametrize("what", ["", "false", "true", "FALSE", "0", "x"])
def test_a_list_sends_no_initial_events(http: Http, path: str, what: str) -> None:
    reply = http("GET", path, sendInitialEvents=what)
    assert (reply.code, reply.reason) == (422, "Invalid")


@pytest.mark.parametrize("which", VERSIONS)
def test_one_object_is_at_least_as_new_as_asked(
    http: Http, path: str, version: Callable[[str], str | None], which: str
) -> None:
    reply = http("GET", f"{path}/a", resourceVersion=version(which))
    assert reply.code == {"future": 504, "malformed": 500}.get(which, 200), reply.body
    reply = http("GET", f"{path}/none", resourceVersion=version(which))
    assert reply.code == {"future": 504, "malformed": 500}.get(which, 404), reply.body


@pytest.mark.parametrize("which", VERSIONS)
def test_a_list_of_one_name_takes_a_version_too(
    http: Http, path: str, version: Callable[[str], str | None], which: str
) -> None:
    reply = http("GET", path, fieldSelector="metadata.name=b", resourceVersion=version(which))
    assert reply.code == {"future": 504, "malformed": 400}.get(which, 200), reply.body


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_what_is_deleted_as_a_collection_is_listed_by_the_same_rules(
    http: Http, path: str, limit: int | None
) -> None:
    reply = http("DELETE", path, limit=limit)
    assert names(reply) == "abc"[:limit]
    assert names(http("GET", path)) == ("" if limit is None else "abc"[limit:])


@pytest.mark.parametrize("accept", [TABLE, PARTIAL])
def test_what_was_deleted_as_a_collection_is_shown_as_asked(
    http: Http, path: str, accept: str
) -> None:
    reply = http("DELETE", path, accept=accept, limit=2)
    assert reply.body["metadata"]["remainingItemCount"] == 1


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
        {"resourceVersion": "abc"},
        {"resourceVersion": FUTURE},
        {"continue": "%%%"},
        {"sendInitialEvents": "true"},
        {"resourceVersion": "0", "limit": 1, "dryRun": "All"},
    ],
    ids="-".join,
)
def test_a_collection_is_deleted_as_far_as_it_can_be_listed(
    http: Http, path: str, query: dict[str, object]
) -> None:
    http("DELETE", path, **query)
    assert names(http("GET", path)) == "abc"


def test_a_collection_that_holds_on_is_shown_as_it_was_before(http: Http, maps: str) -> None:
    with http.silent():
        http.merge(f"{maps}/a", {"metadata": {"finalizers": ["example.com/hold"]}})
    first, *_ = http("DELETE", maps).body["items"]
    assert "deletionTimestamp" not in first["metadata"]
    assert http("GET", f"{maps}/a").body["metadata"]["deletionTimestamp"]
    with http.silent():
        http.merge(f"{maps}/a", {"metadata": {"finalizers": None}})
