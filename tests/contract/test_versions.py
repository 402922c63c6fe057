"""Custom kinds in several versions: objects, warnings, selectable fields."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.cases.waiting import wait_for
from tests.contract.conftest import DEFINITIONS, defined
from tests.contract.exchanges import Http
from tests.contract.objects import GROUP, widget_definition

SPEC = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "colour": {"type": "string"},
                "size": {"type": "integer"},
                "is-old": {"type": "boolean"},
            },
        }
    },
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def knob_versions() -> dict[str, Any]:
    """Return a definition with three versions: deprecated, with its own warning, and stored."""
    definition = widget_definition("knobs", SPEC)
    (version,) = definition["spec"]["versions"]
    # Equal versions share one schema, and then upstream refuses selectable fields of one version.
    wider = {**SPEC, "description": "Knobs that are turned."}
    definition["spec"]["versions"] = [
        {**version, "name": "v1alpha1", "storage": False, "deprecated": True},
        {
            **version,
            "name": "v1beta1",
            "storage": False,
            "deprecated": True,
            "deprecationWarning": "knobs are turned in v1 now",
        },
        {
            **version,
            "schema": {"openAPIV3Schema": wider},
            "additionalPrinterColumns": [
                {"name": "Colour", "type": "string", "jsonPath": ".spec.colour"}
            ],
            "selectableFields": [{"jsonPath": ".spec.colour"}, {"jsonPath": ".spec.size"}],
        },
        {**version, "name": "v2", "storage": False, "served": False},
    ]
    return definition


def is_served(http: Http, path: str) -> bool:
    return http("GET", path).code == 200


@pytest.fixture(scope="module")
def knobs(admin: Http) -> Iterator[str]:
    with defined(admin, knob_versions()) as path:
        for version in ("v1alpha1", "v1beta1"):
            in_it = path.replace("/v1/", f"/{version}/")
            wait_for(f"version {version}", partial(is_served, admin, in_it))
        yield path


@pytest.fixture
def two_knobs(http: Http, admin: Http, knobs: str) -> Iterator[str]:
    with http.unrecorded():
        for name, colour in (("a", "red"), ("b", "blue")):
            body = {
                "apiVersion": f"{GROUP}/v1",
                "kind": "Knob",
                "metadata": {"name": name},
                "spec": {"colour": colour, "size": 3},
            }
            http.create(knobs, body)
    yield knobs
    for name in "ab":
        admin("DELETE", f"{knobs}/{name}")


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1"])
def test_each_version_shows_objects_stored_in_another(
    http: Http, two_knobs: str, version: str
) -> None:
    path = two_knobs.replace("/v1/", f"/{version}/")
    shown = http("GET", f"{path}/a")
    assert shown.body["apiVersion"] == f"{GROUP}/{version}"
    assert shown.body["spec"] == {"colour": "red", "size": 3}
    listed = http("GET", path)
    assert [item["apiVersion"] for item in listed.body["items"]] == [f"{GROUP}/{version}"] * 2
    for reply in (shown, listed):
        assert ("Warning" in reply.headers) == (version != "v1")


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1"])
def test_watches_of_a_deprecated_version_warn_of_it_before_their_first_event(
    http: Http, two_knobs: str, version: str
) -> None:
    path = two_knobs.replace("/v1/", f"/{version}/")
    http.watch(path, 2)
    refused = http("GET", path, watch="true", sendInitialEvents="true")
    assert refused.code == 422
    for exchange in http.exchanges:
        assert ("Warning" in exchange.headers) == (version != "v1")


def test_a_version_that_is_not_served_is_not_found(http: Http, two_knobs: str) -> None:
    assert http("GET", two_knobs.replace("/v1/", "/v2/")).code == 404


@pytest.mark.parametrize("version", ["v1beta1", "v1"])
def test_columns_belong_to_a_version(http: Http, two_knobs: str, version: str) -> None:
    table = http("GET", two_knobs.replace("/v1/", f"/{version}/"), accept=TABLE).body
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == (["Name", "Colour"] if version == "v1" else ["Name", "Age"])


@pytest.mark.parametrize(
    "selector",
    ["spec.colour=red", "spec.colour!=red", "spec.size=3", "spec.colour=", "metadata.name=b"],
)
def test_objects_are_selected_by_the_versions_selectable_fields(
    http: Http, two_knobs: str, selector: str
) -> None:
    assert http("GET", two_knobs, fieldSelector=selector).code == 200


@pytest.mark.parametrize("selector", ["spec.is-old=true", "spec.colour=red"])
def test_other_fields_cannot_be_selected(http: Http, two_knobs: str, selector: str) -> None:
    refused = http("GET", two_knobs.replace("/v1/", "/v1beta1/"), fieldSelector=selector)
    assert (refused.code, refused.reason) == (400, "BadRequest")


STRANGE: dict[str, dict[str, Any]] = {
    "no-type": {"properties": {"spec": {"type": "object"}}},
    "no-type-inside": {"type": "object", "properties": {"spec": {"properties": {}}}},
    "items-without-type": {
        "type": "object",
        "properties": {"spec": {"type": "array", "items": {}}},
    },
    "type-in-any-of": {"type": "object", "anyOf": [{"type": "object"}]},
    "preserve-and-embed": {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-embedded-resource": True}},
    },
    "metadata-restricted": {
        "type": "object",
        "properties": {
            "metadata": {
                "type": "object",
                "properties": {"labels": {"type": "object", "minProperties": 1}},
            }
        },
    },
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_schema_that_is_not_structural_is_refused(http: Http, what: str) -> None:
    refused = http("POST", DEFINITIONS, widget_definition("oddments", STRANGE[what]))
    assert (refused.code, refused.reason) == (422, "Invalid")


@pytest.mark.parametrize(
    "fields",
    [["spec.colour"], [".spec.nothing"], [".spec.colour", ".spec.colour"], [".metadata.name"]],
    ids=["no-path", "unknown", "twice", "metadata"],
)
def test_malformed_selectable_fields_are_refused(http: Http, fields: list[str]) -> None:
    chosen = [{"jsonPath": field} for field in fields]
    definition = widget_definition("oddments", SPEC, selectableFields=chosen)
    refused = http("POST", DEFINITIONS, definition)
    assert (refused.code, refused.reason) == (422, "Invalid")


def test_two_stored_versions_are_refused(http: Http) -> None:
    definition = widget_definition("oddments", SPEC)
    (version,) = definition["spec"]["versions"]
    definition["spec"]["versions"] = [version, {**version, "name": "v2"}]
    refused = http("POST", DEFINITIONS, definition)
    assert (refused.code, refused.reason) == (422, "Invalid")


def test_a_warning_without_deprecation_is_refused(http: Http) -> None:
    definition = widget_definition("oddments", SPEC, deprecationWarning="not yet")
    refused = http("POST", DEFINITIONS, definition)
    assert (refused.code, refused.reason) == (422, "Invalid")
