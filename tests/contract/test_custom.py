"""Custom kinds: schemas, defaults, pruning, rules, columns."""

from copy import deepcopy
from typing import Any

import pytest
from tests.cases.waiting import wait_for
from tests.contract.conftest import DEFINITIONS, defined
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import GROUP, Make, widget_definition
from tests.contract.widgets import WIDGETS

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def body(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"generateName": "w-"},
        "spec": spec,
    }


def test_absent_fields_get_defaults(widget: Make) -> None:
    spec = widget(parts=[{"name": "a"}])["spec"]
    assert spec["colour"] == "red"
    assert spec["parts"] == [{"name": "a", "weight": 1}]


def test_unknown_fields_are_pruned_except_where_preserved(widget: Make) -> None:
    spec = widget(unknown=1, free={"any": {"thing": 1}}, tags={"a": "b"})["spec"]
    assert "unknown" not in spec
    assert spec["free"] == {"any": {"thing": 1}}
    assert spec["tags"] == {"a": "b"}


def test_a_null_gets_the_default(widget: Make) -> None:
    spec = widget(colour=None, maybe=None)["spec"]
    assert spec["colour"] == "red"
    assert spec["maybe"] is None


def test_a_null_is_dropped_if_not_nullable(widget: Make) -> None:
    spec = widget(code=None, tags={"a": None, "b": "c"}, parts=[{"name": "a", "weight": None}])
    spec = spec["spec"]
    assert "code" not in spec
    assert spec["tags"] == {"b": "c"}
    assert spec["parts"] == [{"name": "a", "weight": 1}]


@pytest.mark.parametrize(
    ("spec", "field", "reason", "text"),
    [
        ({}, "spec.size", "FieldValueRequired", "Required value"),
        ({"size": "x"}, "spec.size", "FieldValueTypeInvalid", "must be of type integer"),
        ({"size": 0}, "spec.size", "FieldValueInvalid", "greater than or equal to 1"),
        ({"size": 11}, "spec.size", "FieldValueInvalid", "less than or equal to 10"),
        (
            {"size": 1, "colour": "blue"},
            "spec.colour",
            "FieldValueNotSupported",
            'Unsupported value: "blue": supported values: "red", "green"',
        ),
        ({"size": 1, "code": "A1"}, "spec.code", "FieldValueInvalid", "should match '^[a-z]+$'"),
        ({"size": 1, "code": "abcdef"}, "spec.code", "FieldValueTooLong", "Too long: may not be"),
        ({"size": 1, "label": "a"}, "spec.label", "FieldValueInvalid", "at least 2 chars long"),
        ({"size": 1, "at": "noon"}, "spec.at", "FieldValueTypeInvalid", "of type date-time"),
        ({"size": 1, "amount": True}, "spec.amount", "FieldValueTypeInvalid", "must be of type"),
        ({"size": 1, "tags": {"a": 1}}, "spec.tags.a", "FieldValueTypeInvalid", "of type string"),
        ({"size": 1, "names": ["a", "a"]}, "spec.names[1]", "FieldValueDuplicate", "Duplicate"),
        ({"size": 1, "names": list("abcd")}, "spec.names", "FieldValueTooMany", "at most 3 items"),
        (
            {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
            "spec.parts[1]",
            "FieldValueDuplicate",
            'Duplicate value: {"name":"a"}',
        ),
        ({"size": 1, "parts": [{}]}, "spec.parts[0].name", "FieldValueRequired", "Required value"),
        ({"size": 7}, "spec", "FieldValueInvalid", "seven is unlucky"),
    ],
)
def test_values_are_validated(
    http: Http, widgets: str, spec: dict[str, Any], field: str, reason: str, text: str
) -> None:
    reply = http("POST", widgets, body(**spec))
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
    assert any(
        c["field"] == field and c["reason"] == reason and text in c["message"] for c in reply.causes
    ), reply.causes


@pytest.mark.parametrize("amount", [1, "50%"])
def test_int_or_string_takes_both(widget: Make, amount: object) -> None:
    assert widget(amount=amount)["spec"]["amount"] == amount


def test_strict_validation_names_the_unknown_field(http: Http, widgets: str) -> None:
    reply = http("POST", widgets, body(size=1, foo=1), fieldValidation="Strict")
    assert reply.code == 400
    assert reply.message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field'
        ' "spec.foo"'
    )


def test_a_transition_rule_guards_a_field(http: Http, widgets: str, widget: Make) -> None:
    name = widget(fixed="a")["metadata"]["name"]
    reply = http.merge(f"{widgets}/{name}", {"spec": {"fixed": "b"}})
    assert reply.code == 422
    assert reply.causes[0]["field"] == "spec.fixed"
    assert "fixed is immutable" in reply.message
    assert http.merge(f"{widgets}/{name}", {"spec": {"size": 2}}).code == 200


def test_status_and_spec_are_written_separately(http: Http, widgets: str, widget: Make) -> None:
    name = widget()["metadata"]["name"]
    http.merge(f"{widgets}/{name}", {"status": {"phase": "Done"}})
    assert "status" not in http("GET", f"{widgets}/{name}").body
    change = {"status": {"phase": "Done"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    reply = http.merge(f"{widgets}/{name}/status", change)
    assert reply.code == 200
    found = http("GET", f"{widgets}/{name}").body
    assert found["status"] == {"phase": "Done"}
    assert found["spec"]["size"] == 1
    assert found["metadata"]["generation"] == 1
    assert "labels" not in found["metadata"]


def test_generation_counts_spec_changes(http: Http, widgets: str, widget: Make) -> None:
    name = widget()["metadata"]["name"]
    http.merge(f"{widgets}/{name}", {"metadata": {"labels": {"a": "b"}}})
    assert http("GET", f"{widgets}/{name}").body["metadata"]["generation"] == 1
    http.merge(f"{widgets}/{name}", {"spec": {"size": 2}})
    assert http("GET", f"{widgets}/{name}").body["metadata"]["generation"] == 2


def test_an_update_needs_a_version(http: Http, widgets: str, widget: Make) -> None:
    found = widget()
    del found["metadata"]["resourceVersion"]
    reply = http("PUT", f"{widgets}/{found['metadata']['name']}", found)
    assert reply.code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified" in reply.message


def test_columns_come_from_the_definition(http: Http, widgets: str, widget: Make) -> None:
    name = widget(size=3)["metadata"]["name"]
    table = http("GET", f"{widgets}/{name}", accept=TABLE).body
    assert [(c["name"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Size", 0),
        ("Phase", 0),
        ("Colour", 1),
        ("Age", 0),
    ]
    assert table["rows"][0]["cells"][:4] == [name, 3, None, "red"]


def test_the_definition_is_established(http: Http, widgets: str) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{GROUP}"
    status = http("GET", path).body["status"]
    held = {c["type"]: c["status"] for c in status["conditions"]}
    assert held == {"NamesAccepted": "True", "Established": "True"}
    assert status["storedVersions"] == ["v1"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {"name": "wrong.example.com"}}, "metadata.name"),
        ({"scope": "Everywhere"}, "spec.scope"),
    ],
)
def test_a_malformed_definition_is_invalid(http: Http, change: dict[str, Any], field: str) -> None:
    definition = widget_definition("gizmos", {"type": "object"})
    definition["metadata"].update(change.pop("metadata", {}))
    definition["spec"].update(change)
    reply = http("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert field in [c["field"] for c in reply.causes]


def test_a_stored_version_cannot_be_removed(http: Http) -> None:
    definition = widget_definition("sprockets", {"type": "object"})
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    (version,) = definition["spec"]["versions"]
    later = {**version, "name": "v2"}

    def change(*versions: dict[str, Any]) -> Reply:
        body = {"spec": {"versions": versions}}
        return http("PATCH", path, body, content_type="application/merge-patch+json")

    with defined(http, definition):
        refused = change(later)
        assert (refused.code, refused.reason) == (422, "Invalid")
        assert "status.storedVersions[0]" in [cause["field"] for cause in refused.causes]
        with http.unrecorded():  # its conditions and defaults are compared in another case
            both = change({**version, "storage": False}, later)
            assert both.body["status"]["storedVersions"] == ["v1", "v2"]
            assert change({**version, "storage": True}).code == 422


def test_discovery_shows_custom_kinds(http: Http, admin: Http) -> None:
    """With a separate group, because a real server may show deleted kinds for minutes."""
    group = f"discovery.{GROUP}"
    definition = deepcopy(WIDGETS)
    definition["metadata"]["name"] = f"widgets.{group}"
    definition["spec"]["group"] = group

    def names() -> set[str]:
        return {r["name"] for r in http("GET", f"/apis/{group}/v1").body.get("resources", ())}

    with defined(admin, definition):
        with http.unrecorded():  # a real server shows new kinds a moment later
            wait_for("the kind to be shown", lambda: names() == {"widgets", "widgets/status"})
        assert names() == {"widgets", "widgets/status"}
        with http.unrecorded():  # clusters differ in the kinds that they serve
            groups = http("GET", "/apis").body["groups"]
        assert group in [g["name"] for g in groups]


def test_a_definition_with_a_rule_that_does_not_compile_is_invalid(http: Http) -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "x-kubernetes-validations": [{"rule": "self.x =="}]}
        },
    }
    definition = widget_definition("gizmos", schema)
    reply = http("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert reply.code == 422
    assert any("x-kubernetes-validations[0].rule" in c["field"] for c in reply.causes)
    assert "compilation failed" in reply.message
