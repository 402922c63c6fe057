"""Lists: order, pages, selectors, versions, representations."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import config_map, pod


def names(reply: Reply) -> list[str]:
    return [item["metadata"]["name"] for item in reply.body["items"]]


@pytest.fixture
def maps(http: Http, core: str) -> str:
    """Five config maps with different labels; returns the path."""
    for name, labels in (
        ("a", {"tier": "web", "track": "stable"}),
        ("b", {"tier": "web", "track": "canary"}),
        ("c", {"tier": "db"}),
        ("d", {"tier": "db", "number": "7"}),
        ("e", {}),
    ):
        body = config_map(name)
        body["metadata"]["labels"] = {"test": "lists", **labels}
        http.create(f"{core}/configmaps", body)
    return f"{core}/configmaps"


def test_a_list_has_kind_and_version(http: Http, maps: str) -> None:
    body = http("GET", maps, labelSelector="test").body
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(body["metadata"]["resourceVersion"]) > 0
    assert "kind" not in body["items"][0]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=web", "ab"),
        ("tier==web", "ab"),
        ("tier!=web", "cde"),
        ("tier in (web, db)", "abcd"),
        ("tier notin (web)", "cde"),
        ("tier", "abcd"),
        ("!tier", "e"),
        ("tier=web,track!=canary", "a"),
        ("number>6", "d"),
        ("number<7", ""),
        ("tier in (web),track in (canary,stable)", "ab"),
        ("track=", ""),
    ],
)
def test_label_selectors(http: Http, maps: str, selector: str, expected: str) -> None:
    reply = http("GET", maps, labelSelector=f"test=lists,{selector}")
    assert reply.code == 200
    assert names(reply) == list(expected)


@pytest.mark.parametrize("selector", ["a b", "=x", "tier in web", "x=not valid!", "-a"])
def test_a_malformed_label_selector_is_refused(http: Http, maps: str, selector: str) -> None:
    reply = http("GET", maps, labelSelector=selector)
    assert (reply.code, reply.reason) == (400, "BadRequest")


def test_field_selectors_know_name_and_namespace(http: Http, maps: str) -> None:
    assert names(http("GET", maps, fieldSelector="metadata.name=c")) == ["c"]
    assert "c" not in names(http("GET", maps, fieldSelector="metadata.name!=c"))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.nodeName=n1", ["p1"]),
        ("spec.nodeName=", ["p2"]),
        ("status.phase=Pending", ["p1", "p2"]),
        ("status.phase!=Pending", []),
        ("spec.schedulerName=default-scheduler,spec.nodeName!=n1", ["p2"]),
    ],
)
def test_pods_have_more_fields(
    http: Http, core: str, selector: str, expected: Sequence[str]
) -> None:
    bound: dict[str, Any] = pod("p1")
    bound["spec"]["nodeName"] = "n1"
    http.create(f"{core}/pods", bound)
    http.create(f"{core}/pods", pod("p2"))
    assert names(http("GET", f"{core}/pods", fieldSelector=selector)) == expected


def test_an_unknown_field_is_refused(http: Http, core: str) -> None:
    reply = http("GET", f"{core}/pods", fieldSelector="spec.colour=red")
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert "field label not supported: spec.colour" in reply.message
    reply = http("GET", f"{core}/configmaps", fieldSelector="data.x=1")
    assert reply.code == 400


def test_pages_are_one_snapshot(http: Http, maps: str) -> None:
    first = http("GET", maps, limit=2)
    found = names(first)
    assert len(found) == 2
    token, version = first.body["metadata"]["continue"], first.body["metadata"]["resourceVersion"]
    assert first.body["metadata"]["remainingItemCount"] >= 3
    http("DELETE", f"{maps}/e")
    http.create(maps, config_map("zz-late"))
    while token:
        page = http("GET", maps, limit=2, **{"continue": token})
        assert page.body["metadata"]["resourceVersion"] == version
        found += names(page)
        token = page.body["metadata"].get("continue")
    assert [name for name in found if len(name) == 1] == list("abcde")
    assert "zz-late" not in found


def test_a_malformed_continue_token_is_refused(http: Http, maps: str) -> None:
    reply = http("GET", maps, limit=2, **{"continue": "nonsense"})
    assert (reply.code, reply.reason) == (400, "BadRequest")


def test_resource_version_match_rules(http: Http, maps: str) -> None:
    assert http("GET", maps, resourceVersionMatch="Exact").code == 422
    assert http("GET", maps, resourceVersion="0", resourceVersionMatch="Exact").code == 422
    assert http("GET", maps, resourceVersion="1", resourceVersionMatch="Sometimes").code == 422
    assert http("GET", maps, resourceVersion="0", resourceVersionMatch="NotOlderThan").code == 200


def test_exact_shows_the_past(http: Http, maps: str) -> None:
    version = http("GET", maps, limit=1).body["metadata"]["resourceVersion"]
    http("DELETE", f"{maps}/a")
    now = http("GET", maps, labelSelector="test")
    then = http(
        "GET", maps, labelSelector="test", resourceVersion=version, resourceVersionMatch="Exact"
    )
    assert "a" not in names(now)
    assert names(then) == list("abcde")


def test_a_malformed_version_is_refused(http: Http, maps: str) -> None:
    assert http("GET", maps, resourceVersion="abc").code == 400


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def test_a_table_has_columns_and_rows(http: Http, core: str) -> None:
    http.create(f"{core}/pods", pod("p"))
    body = http("GET", f"{core}/pods", accept=TABLE).body
    assert (body["kind"], body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    shown = [c["name"] for c in body["columnDefinitions"] if not c["priority"]]
    assert shown == ["Name", "Ready", "Status", "Restarts", "Age"]
    row = body["rows"][0]
    assert row["cells"][:3] == ["p", "0/1", "Pending"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "p"


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/apis/apps/v1/deployments", ["Name", "Ready", "Up-to-date", "Available", "Age"]),
        ("/apis/apps/v1/replicasets", ["Name", "Desired", "Current", "Ready", "Age"]),
        ("/apis/apps/v1/statefulsets", ["Name", "Ready", "Age"]),
        ("/apis/batch/v1/jobs", ["Name", "Status", "Completions", "Duration", "Age"]),
        (
            "/apis/policy/v1/poddisruptionbudgets",
            ["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"],
        ),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
    ],
)
def test_tables_have_kubectls_columns(http: Http, path: str, columns: list[str]) -> None:
    body = http("GET", path, accept=TABLE, labelSelector="none").body
    assert [c["name"] for c in body["columnDefinitions"] if not c["priority"]] == columns


def test_partial_metadata_has_no_other_fields(http: Http, maps: str) -> None:
    body = http("GET", maps, accept=PARTIAL).body
    assert body["kind"] == "PartialObjectMetadataList"
    assert all("data" not in item for item in body["items"])
