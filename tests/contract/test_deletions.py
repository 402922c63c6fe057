"""Options of a deletion, in the body or in the query."""

from typing import Any

import pytest
from tests.contract.exchanges import Http
from tests.contract.objects import config_map, pod

ANOTHER_UID = "11111111-1111-1111-1111-111111111111"

# Options with which nothing is deleted, by the status of the response.
REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "policy": ({"propagationPolicy": "Maybe"}, 422),
    "both": ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
    "dry-run": ({"dryRun": ["Some"]}, 422),
    "dry-runs": ({"dryRun": ["All", "Some"]}, 422),
    "several": ({"dryRun": ["Some"], "propagationPolicy": "Maybe"}, 422),
    "grace": ({"gracePeriodSeconds": "x"}, 400),
    "a-broken-grace": ({"gracePeriodSeconds": 1.5}, 400),
    "a-flag": ({"orphanDependents": "yes"}, 400),
    "preconditions": ({"preconditions": "yes"}, 400),
    "uid": ({"preconditions": {"uid": ANOTHER_UID}}, 409),
    "version": ({"preconditions": {"resourceVersion": "1"}}, 409),
    "both-preconditions": ({"preconditions": {"uid": ANOTHER_UID, "resourceVersion": "1"}}, 409),
    "another-kind": ({"kind": "ConfigMap", "apiVersion": "v1"}, 400),
}
REFUSED_QUERIES: dict[str, tuple[dict[str, str], int]] = {
    "policy": ({"propagationPolicy": "Maybe"}, 422),
    "both": ({"propagationPolicy": "Orphan", "orphanDependents": "true"}, 422),
    "dry-run": ({"dryRun": "Some"}, 422),
    "grace": ({"gracePeriodSeconds": "x"}, 400),
    "no-grace": ({"gracePeriodSeconds": ""}, 400),
    "uid": ({"uid": ANOTHER_UID}, 409),
    "version": ({"resourceVersion": "1"}, 409),
}
TAKEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "known": {"kind": "DeleteOptions", "apiVersion": "v1"},
    "of-meta": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
    "of-another-group": {"kind": "DeleteOptions", "apiVersion": "apps/v1"},
    "of-no-version": {"kind": "DeleteOptions", "apiVersion": "v7"},
    "unknown": {"colour": "red"},
    "grace": {"gracePeriodSeconds": 0},
    "null": {"gracePeriodSeconds": None, "preconditions": None, "dryRun": None},
    "background": {"propagationPolicy": "Background"},
    "cascade": {"orphanDependents": False},
    "a-manager": {"fieldManager": "me", "fieldValidation": "Maybe"},
}


@pytest.fixture
def path(http: Http, core: str) -> str:
    """The path of a config map."""
    with http.unrecorded():
        http.create(f"{core}/configmaps", config_map("a", x="1"))
    return f"{core}/configmaps/a"


@pytest.mark.parametrize("what", REFUSED)
def test_a_malformed_body_deletes_nothing(http: Http, path: str, what: str) -> None:
    body, code = REFUSED[what]
    assert http("DELETE", path, body).code == code
    assert http("DELETE", path.rpartition("/")[0], body).code == code
    with http.unrecorded():
        assert http("GET", path).code == 200


@pytest.mark.parametrize("what", REFUSED_QUERIES)
def test_a_malformed_query_deletes_nothing(http: Http, path: str, what: str) -> None:
    query, code = REFUSED_QUERIES[what]
    assert http("DELETE", path, **query).code == code
    with http.unrecorded():
        assert http("GET", path).code == 200


@pytest.mark.parametrize("what", TAKEN)
def test_a_body_may_omit_most_fields(http: Http, path: str, what: str) -> None:
    assert http("DELETE", path, TAKEN[what]).code == 200
    assert http("GET", path).code == 404


@pytest.mark.parametrize("query", [{"dryRun": "All"}, {"propagationPolicy": "Maybe"}])
def test_a_query_is_ignored_if_there_is_a_body(
    http: Http, path: str, query: dict[str, str]
) -> None:
    assert http("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1"}, **query).code == 200
    assert http("GET", path).code == 404


@pytest.mark.parametrize("where", ["body", "query"])
@pytest.mark.parametrize("what", ["configmaps", "pods", "collection", "held", "bound"])
def test_a_dry_run_deletes_nothing(http: Http, core: str, path: str, where: str, what: str) -> None:
    plural = "configmaps" if what == "configmaps" else "pods"
    if plural == "pods":
        path = f"{core}/pods/p"
        body: dict[str, Any] = pod("p")
        if what == "bound":
            body["spec"]["nodeName"] = "somewhere"
        if what == "held":
            body["metadata"]["finalizers"] = ["example.com/hold"]
        with http.unrecorded():
            http.create(f"{core}/pods", body)
    with http.unrecorded():
        before = http("GET", path).body
    target = path if what != "collection" else f"{core}/pods"
    said = {"dryRun": ["All"]} if where == "body" else None
    reply = http("DELETE", target, said, dryRun="All" if where == "query" else None)
    assert reply.code == 200
    with http.unrecorded():
        assert http("GET", path).body == before
        http.merge(path, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("policy", ["Foreground", "Background", "Orphan"])
def test_a_dry_run_shows_the_finalizers(http: Http, path: str, policy: str) -> None:
    reply = http("DELETE", path, {"dryRun": ["All"], "propagationPolicy": policy})
    assert reply.code == 200
    assert http("GET", path).code == 200


@pytest.mark.parametrize("grace", [-1, 0, 1, 5])
def test_only_pods_have_a_grace_period(http: Http, core: str, path: str, grace: int) -> None:
    body: dict[str, Any] = pod("p")
    body["spec"]["nodeName"] = "somewhere"
    with http.unrecorded():
        http.create(f"{core}/pods", body)
    assert http("DELETE", path, {"gracePeriodSeconds": grace}).code == 200
    assert http("DELETE", f"{core}/pods/p", {"gracePeriodSeconds": grace}).code == 200
    again = http("GET", f"{core}/pods/p")
    assert again.code == (404 if grace == 0 else 200)


def test_a_grace_period_can_only_become_shorter(http: Http, core: str) -> None:
    body: dict[str, Any] = pod("p")
    body["spec"]["nodeName"] = "somewhere"
    with http.unrecorded():
        http.create(f"{core}/pods", body)
    for grace, left in ((20, 20), (None, 20), (60, 20), (5, 5)):
        said = None if grace is None else {"gracePeriodSeconds": grace}
        found = http("DELETE", f"{core}/pods/p", said).body["metadata"]
        assert found["deletionGracePeriodSeconds"] == left
