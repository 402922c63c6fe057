"""Dry runs and field validation, for every verb that writes."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import GROUP, Make, config_map, pod

APPLY_PATCH = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

UNKNOWN = {"metadata": {"labels": {"a": "b"}}, "colour": 1}
ADDED = [
    {"op": "add", "path": "/colour", "value": 1},
    {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
]
WIDGET = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "spec": {"size": 3, "shape": 1}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}}
JSON = "application/json"

# Method, fixture of the path, suffix, body and format. A PUT changes the stored object.
WRITES: dict[str, tuple[str, str, str, Any, str]] = {
    "create": ("POST", "maps", "", {**config_map("n"), "colour": 1}, JSON),
    "create-custom": (
        "POST",
        "widgets",
        "",
        {**WIDGET, "metadata": {"name": "n"}, "colour": 1},
        JSON,
    ),
    "update": ("PUT", "a_pod", "", {"colour": 1}, JSON),
    "update-custom": ("PUT", "a_widget", "", {"spec": {"size": 2, "shape": 1}}, JSON),
    "json-patch": ("PATCH", "a_pod", "", ADDED, JSON_PATCH),
    "merge-patch": ("PATCH", "a_pod", "", UNKNOWN, MERGE_PATCH),
    "strategic-patch": ("PATCH", "a_pod", "", UNKNOWN, STRATEGIC_PATCH),
    "json-patch-custom": ("PATCH", "a_widget", "", ADDED, JSON_PATCH),
    "merge-patch-custom": ("PATCH", "a_widget", "", WIDGET, MERGE_PATCH),
    "evict": ("POST", "a_pod", "/eviction", EVICTION, JSON),
    "bind": ("POST", "a_pod", "/binding", {**BINDING, "target": {"name": "n"}}, JSON),
    "scale": ("PUT", "deployment", "/scale", {"spec": {"replicas": 5}}, JSON),
    "status": ("PUT", "a_pod", "/status", {"status": {"phase": "Failed"}}, JSON),
}
# An apply with an unknown field is always refused.
APPLIES: dict[str, tuple[str, str, str, Any, str]] = {
    "known": (
        "PATCH",
        "a_pod",
        "",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}},
        APPLY_PATCH,
    ),
    "known-custom": ("PATCH", "a_widget", "", {**WIDGET, "spec": {"size": 1}}, APPLY_PATCH),
    "unknown": ("PATCH", "a_pod", "", {"apiVersion": "v1", "kind": "Pod", **UNKNOWN}, APPLY_PATCH),
    "unknown-custom": ("PATCH", "a_widget", "", WIDGET, APPLY_PATCH),
}
SILENT = ("evict", "bind", "scale", "status")  # their bodies have no unknown field

Send = Callable[..., Reply]


@pytest.fixture
def maps(core: str) -> str:
    return f"{core}/configmaps"


@pytest.fixture
def a_pod(http: Http, core: str) -> str:
    """The path of a pod."""
    with http.unrecorded():
        http.create(f"{core}/pods", pod("a"))
    return f"{core}/pods/a"


@pytest.fixture
def a_widget(widgets: str, http: Http, widget: Make) -> str:
    """The path of a custom object."""
    with http.unrecorded():
        widget("a")
    return f"{widgets}/a"


@pytest.fixture
def send(http: Http, request: pytest.FixtureRequest) -> Send:
    """Sends one of the writes above, with a query."""

    def send(write: tuple[str, str, str, Any, str], **query: Any) -> Reply:
        method, whose, suffix, body, media = write
        path = f"{request.getfixturevalue(whose)}{suffix}"
        if method == "PUT":
            with http.unrecorded():
                body = {**http("GET", path).body, **body}
        return http(method, path, body, content_type=media, **query)

    return send


@pytest.fixture
def stored(http: Http, core: str, widgets: str, namespace: str) -> Callable[[], list[Any]]:
    """Returns all objects that a case may have changed."""
    workloads = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    paths = (f"{core}/pods", f"{core}/configmaps", workloads, widgets)

    def stored() -> list[Any]:
        with http.unrecorded():
            return [http("GET", path).body["items"] for path in paths]

    return stored


@pytest.mark.parametrize("what", WRITES)
def test_a_dry_run_responds_and_stores_nothing(
    send: Send, stored: Callable[[], list[Any]], what: str
) -> None:
    assert send(WRITES[what], dryRun="Some").code == 422
    before = stored()
    assert send(WRITES[what], dryRun="All").code in {200, 201}
    assert stored() == before


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore", "Maybe"])
@pytest.mark.parametrize("what", WRITES)
def test_every_verb_refuses_or_warns_of_unknown_fields(
    send: Send, validation: str, what: str
) -> None:
    reply = send(WRITES[what], fieldValidation=validation, dryRun="All")
    if validation == "Maybe":
        assert reply.code == 422
    elif what in SILENT:
        assert reply.code in {200, 201}
    elif validation == "Strict":
        assert reply.code in {400, 422}
    else:
        assert reply.code in {200, 201}
        assert ("Warning" in reply.headers) is (validation == "Warn")


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore", "Maybe"])
@pytest.mark.parametrize("what", APPLIES)
def test_an_apply_with_unknown_fields_is_always_refused(
    send: Send, stored: Callable[[], list[Any]], validation: str, what: str
) -> None:
    query = {"fieldManager": "me", "fieldValidation": validation}
    send(
        APPLIES[what], dryRun="Some", fieldManager="me"
    )  # for some of these writes, it also creates the object
    before = stored()
    code = 422 if validation == "Maybe" else 500 if "unknown" in what else 200
    assert send(APPLIES[what], dryRun="All", **query).code == code
    assert stored() == before
