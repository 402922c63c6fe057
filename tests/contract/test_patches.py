"""The patch formats."""

from typing import Any

import pytest
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import Make, config_map, pod

JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def patch(http: Http, path: str, body: object, media: str) -> Reply:
    return http("PATCH", path, body, content_type=media)


def test_merge_patch_removes_with_null(http: Http, core: str) -> None:
    http.create(f"{core}/configmaps", config_map("a", x="1", y="2"))
    reply = http.merge(f"{core}/configmaps/a", {"data": {"x": None, "z": "3"}})
    assert reply.body["data"] == {"y": "2", "z": "3"}


def test_a_patch_with_an_old_version_conflicts(http: Http, core: str) -> None:
    old = http.create(f"{core}/configmaps", config_map("a"))["metadata"]["resourceVersion"]
    http.merge(f"{core}/configmaps/a", {"data": {"x": "1"}})
    reply = http.merge(
        f"{core}/configmaps/a", {"metadata": {"resourceVersion": old}, "data": {"x": "2"}}
    )
    assert (reply.code, reply.reason) == (409, "Conflict")


def test_json_patch_steps(http: Http, core: str) -> None:
    http.create(f"{core}/configmaps", config_map("a", x="1"))
    steps = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "2"},
        {"op": "copy", "from": "/data/x", "path": "/data/y"},
        {"op": "move", "from": "/data/x", "path": "/data/z"},
        {"op": "replace", "path": "/data/y", "value": "9"},
    ]
    reply = patch(http, f"{core}/configmaps/a", steps, JSON)
    assert reply.body["data"] == {"y": "9", "z": "1"}
    assert reply.body["metadata"]["annotations"] == {"a/b": "2"}


@pytest.mark.parametrize(
    "step",
    [
        {"op": "test", "path": "/data/x", "value": "2"},
        {"op": "remove", "path": "/data/none"},
        {"op": "replace", "path": "/none/x", "value": "1"},
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_invalid(
    http: Http, core: str, step: dict[str, Any]
) -> None:
    http.create(f"{core}/configmaps", config_map("a", x="1"))
    reply = patch(http, f"{core}/configmaps/a", [step], JSON)
    assert (reply.code, reply.reason) == (422, "Invalid")


def test_an_unknown_patch_format_is_unsupported(http: Http, core: str) -> None:
    http.create(f"{core}/configmaps", config_map("a"))
    reply = patch(http, f"{core}/configmaps/a", {}, "application/json")
    assert (reply.code, reply.reason) == (415, "UnsupportedMediaType")


def test_a_patch_of_a_missing_object_is_not_found(http: Http, core: str) -> None:
    assert http.merge(f"{core}/configmaps/none", {}).code == 404


def test_strategic_patch_merges_conditions_by_type(http: Http, core: str) -> None:
    http.create(f"{core}/pods", pod("p"))
    status = f"{core}/pods/p/status"

    def condition(kind: str, value: str) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": kind, "status": value}]}}

    patch(http, status, condition("Ready", "False"), STRATEGIC)
    patch(http, status, condition("Custom", "True"), STRATEGIC)
    found = patch(http, status, condition("Ready", "True"), STRATEGIC).body
    held = {c["type"]: c["status"] for c in found["status"]["conditions"]}
    assert held["Ready"] == "True"
    assert held["Custom"] == "True"


def test_strategic_patch_unites_and_removes_finalizers(http: Http, core: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/a"]
    http.create(f"{core}/configmaps", body)
    path = f"{core}/configmaps/a"
    patch(http, path, {"metadata": {"finalizers": ["example.com/b"]}}, STRATEGIC)
    found = http("GET", path).body["metadata"]["finalizers"]
    assert sorted(found) == ["example.com/a", "example.com/b"]
    removal = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    assert patch(http, path, removal, STRATEGIC).body["metadata"]["finalizers"] == ["example.com/b"]
    http.merge(path, {"metadata": {"finalizers": None}})


def test_strategic_patch_changes_one_container(http: Http, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    container = {"name": "c", "image": "x:1", "env": [{"name": "A", "value": "1"}]}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [container, {"name": "side", "image": "y:1"}]},
            },
        },
    }
    http.create(path, body)
    changed = {"name": "c", "image": "x:2", "env": [{"name": "B", "value": "2"}]}
    change: dict[str, Any] = {"spec": {"template": {"spec": {"containers": [changed]}}}}
    found = patch(http, f"{path}/d", change, STRATEGIC).body["spec"]["template"]["spec"][
        "containers"
    ]
    held = {c["name"]: c for c in found}
    assert held["c"]["image"] == "x:2"
    assert held["side"]["image"] == "y:1"
    assert {e["name"] for e in held["c"]["env"]} == {"A", "B"}
    gone = {"name": "side", "$patch": "delete"}
    change = {"spec": {"template": {"spec": {"containers": [gone]}}}}
    found = patch(http, f"{path}/d", change, STRATEGIC).body["spec"]["template"]["spec"][
        "containers"
    ]
    assert [c["name"] for c in found] == ["c"]


def test_custom_kinds_have_no_strategic_patch(http: Http, widgets: str, widget: Make) -> None:
    name = widget()["metadata"]["name"]
    reply = patch(http, f"{widgets}/{name}", {"spec": {"size": 2}}, STRATEGIC)
    assert reply.code == 415


def test_an_error_of_an_unknown_field_names_the_patch(
    http: Http, widgets: str, widget: Any
) -> None:
    name = widget()["metadata"]["name"]
    reply = http.merge(f"{widgets}/{name}", {"spec": {"foo": 1}}, fieldValidation="Strict")
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes[0]["field"] == "patch"
    assert 'strict decoding error: unknown field "spec.foo"' in reply.message


def test_an_error_of_a_wrong_type_names_the_patch(http: Http, core: str) -> None:
    http.create(f"{core}/configmaps", config_map("a"))
    reply = http.merge(f"{core}/configmaps/a", {"data": {"x": 1}})
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes[0]["field"] == "patch"
    assert "cannot unmarshal number" in reply.message
