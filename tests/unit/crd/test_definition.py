"""Definitions: the manifests that they give, and the mistakes that they refuse."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from navarchos.client import Resource
from navarchos.crd import Column, Definition, Version, custom_resource_definition
from navarchos.errors import ConfigError
from navarchos.meta import Object


class Note(msgspec.Struct, frozen=True):
    text: str = ""


class Spec(msgspec.Struct, frozen=True):
    size: int = 1
    notes: tuple[Note, ...] = ()
    labels: dict[str, str] = {}


class Widget(Object, frozen=True):
    spec: Spec = Spec()


WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=True, type=Widget)


def version_of(**facts: Any) -> dict[str, Any]:
    definition = Definition(versions=(Version(resource=WIDGETS, **facts),))
    spec: Any = custom_resource_definition(definition)["spec"]
    found: dict[str, Any] = spec["versions"][0]
    return found


def test_the_kind_is_named_in_all_its_forms() -> None:
    definition = Definition(
        versions=(Version(resource=WIDGETS),), short_names=("wd",), categories=("all",)
    )
    manifest: Any = custom_resource_definition(definition)
    assert manifest["metadata"]["name"] == "widgets.example.com"
    assert manifest["spec"]["scope"] == "Namespaced"
    assert manifest["spec"]["names"] == {
        "kind": "Widget",
        "listKind": "WidgetList",
        "plural": "widgets",
        "singular": "widget",
        "shortNames": ["wd"],
        "categories": ["all"],
    }


def test_a_column_contains_only_fields_that_differ_from_the_defaults() -> None:
    columns = (Column("Size", ".spec.size", "integer"), Column("Age", ".metadata.name", priority=1))
    assert version_of(columns=columns)["additionalPrinterColumns"] == [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Age", "type": "string", "jsonPath": ".metadata.name", "priority": 1},
    ]


def test_status_is_a_subresource_by_default() -> None:
    assert version_of()["subresources"] == {"status": {}}
    assert "subresources" not in version_of(status=False)


@pytest.mark.parametrize("path", [".spec.notes[*].text", ".spec.notes[0].text", ".spec.labels.a"])
def test_a_column_may_lead_through_lists_and_maps(path: str) -> None:
    assert version_of(columns=(Column("X", path),))


def test_a_column_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"column Size='\.spec\.sise': widgets\.example\.com must have"
    ):
        version_of(columns=(Column("Size", ".spec.sise"),))


def test_a_column_path_begins_with_a_dot() -> None:
    with pytest.raises(ConfigError, match="must begin with a dot"):
        Column("Size", "spec.size")


@pytest.mark.parametrize("path", [".spec.sise", ".spec.notes", ".spec"])
def test_only_plain_values_are_selectable(path: str) -> None:
    with pytest.raises(ConfigError, match="selectable field"):
        version_of(selectable_fields=(path,))
    assert version_of(selectable_fields=(".spec.size",))["selectableFields"]


V1 = Version(resource=WIDGETS)
V2 = Version(resource=replace(WIDGETS, version="v2"), storage=False)


def test_rules_about_the_whole_object_belong_to_the_root_of_the_schema() -> None:
    rule = {"rule": "self.spec.size > 0", "message": "it must have a size"}
    schema = version_of(rules=(rule,))["schema"]["openAPIV3Schema"]
    assert schema["x-kubernetes-validations"] == [rule]
    plain = version_of()["schema"]["openAPIV3Schema"]
    assert schema == {**plain, "x-kubernetes-validations": [rule]}


def test_several_versions_of_one_kind_have_one_stored_one() -> None:
    manifest: Any = custom_resource_definition(Definition(versions=(V1, V2)))
    versions = manifest["spec"]["versions"]
    assert [(v["name"], v["storage"]) for v in versions] == [("v1", True), ("v2", False)]


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ((), "of one kind"),
        ((V1, replace(V2, resource=replace(V2.resource, kind="Gadget"))), "of one kind"),
        ((V1, V1), "must be listed once"),
        ((V2,), "exactly one"),
        ((V1, replace(V2, storage=True)), "exactly one"),
    ],
)
def test_versions_that_do_not_fit_together_are_refused(
    versions: tuple[Version, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Definition(versions=versions)


def test_versions_with_different_schemas_are_refused_because_nothing_converts_them() -> None:
    other = replace(V2, resource=replace(V2.resource, type=Object))
    with pytest.raises(ConfigError, match="require a conversion"):
        custom_resource_definition(Definition(versions=(V1, other)))
