"""What each kind of annotation becomes in a structural schema."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from navarchos.crd import Schema, SchemaError, kind_schema, type_schema
from navarchos.meta import Object


class Colour(StrEnum):
    """A colour."""

    RED = "Red"
    BLUE = "Blue"


class Inner(msgspec.Struct, frozen=True, rename="camel"):
    """An inner thing,
    described in two lines.

    And a paragraph for programmers.
    """

    size_limit: int = 3
    colour: Colour = Colour.RED


class Outer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    must_be: str
    may_be: str | None
    inner: Inner = Inner()
    other: Inner = Inner(size_limit=7)
    names: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    note: str = ""
    on: bool = False
    tags: list[str] = msgspec.field(default_factory=list)
    uid: str = msgspec.field(default="", name="theUID")


class Base(msgspec.Struct):
    """Says something of the base."""


class Heir(Base):
    x: int = 1


class Kind(Object, frozen=True):
    """A kind."""

    spec: Outer
    status: Inner = Inner()


def properties(schema: Schema) -> dict[str, Any]:
    found = schema["properties"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer", "format": "int64"}),
        (float, {"type": "number", "format": "double"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (int | str, {"x-kubernetes-int-or-string": True}),
        (str | None, {"type": "string"}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer", "format": "int64"}}),
        (frozenset[str], {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": {"type": "string"},
        }),
        (dict[str, str], {"type": "object", "additionalProperties": {"type": "string"}}),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ],
)  # fmt: skip
def test_a_plain_annotation_has_one_type(annotation: object, schema: Schema) -> None:
    assert type_schema(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "facts"),
    [
        (Annotated[int, Meta(ge=1, le=9)], {"minimum": 1, "maximum": 9, "format": "int32"}),
        (Annotated[int, Meta(ge=0)], {"minimum": 0, "format": "int64"}),
        (Annotated[int, Meta(ge=0, le=2**40)], {"maximum": 2**40, "format": "int64"}),
        (Annotated[int, Meta(gt=0)], {"minimum": 0, "exclusiveMinimum": True}),
        (Annotated[float, Meta(lt=1)], {"maximum": 1, "exclusiveMaximum": True}),
        (Annotated[int, Meta(multiple_of=5)], {"multipleOf": 5}),
        (Annotated[str, Meta(min_length=1, max_length=5)], {"minLength": 1, "maxLength": 5}),
        (Annotated[str, Meta(pattern="^a$")], {"pattern": "^a$"}),
        (Annotated[tuple[str, ...], Meta(max_length=5)], {"maxItems": 5}),
        (Annotated[dict[str, str], Meta(min_length=1)], {"minProperties": 1}),
        (Annotated[str, Meta(description="Why.")], {"description": "Why."}),
        (Annotated[Inner, Meta(description="Why.")], {"description": "Why."}),
        (Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="x")], {"minimum": 1}),
    ],
)  # fmt: skip
def test_limits_become_the_keywords_of_their_kind(annotation: object, facts: Schema) -> None:
    schema = type_schema(annotation)
    assert {name: schema.get(name) for name in facts} == facts


def test_extra_json_schema_has_the_last_word() -> None:
    extra = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self != ''"}]}
    schema = type_schema(Annotated[str, Meta(max_length=15, extra_json_schema=extra)])
    assert schema == {"type": "string", "maxLength": 15} | extra


def test_an_enumeration_lists_its_values() -> None:
    assert type_schema(Colour) == {
        "description": "A colour.",
        "type": "string",
        "enum": ["Red", "Blue"],
    }


def test_the_first_paragraph_of_a_docstring_is_the_description() -> None:
    assert type_schema(Inner)["description"] == "An inner thing, described in two lines."


def test_an_inherited_docstring_describes_only_the_base() -> None:
    assert "description" not in type_schema(Heir)


def test_a_field_without_default_that_is_not_nullable_is_required() -> None:
    assert type_schema(Outer)["required"] == ["mustBe"]


def test_fields_go_by_their_names_on_the_wire() -> None:
    assert {"mustBe", "mayBe", "theUID"} <= properties(type_schema(Outer)).keys()


def test_defaults_are_included_unless_they_are_empty() -> None:
    defaults = {
        name: schema["default"]
        for name, schema in properties(type_schema(Outer)).items()
        if "default" in schema
    }
    assert defaults == {"inner": {}, "other": {"sizeLimit": 7}, "on": False}


def test_an_enumerations_default_is_its_value() -> None:
    assert properties(type_schema(Inner))["colour"]["default"] == "Red"


def test_a_kind_has_an_envelope_and_no_defaults_in_its_status() -> None:
    schema = kind_schema(Kind)
    fields = properties(schema)
    assert list(fields) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert fields["metadata"] == {"type": "object"}
    assert schema["required"] == ["spec"]
    assert "default" not in str(fields["status"])


def test_short_facts_stand_before_long_ones() -> None:
    assert list(type_schema(Outer)) == ["type", "required", "properties"]


class Tree(msgspec.Struct):
    branches: list["Tree"] = []


class Tagged(msgspec.Struct, tag="x"):
    pass


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Tree, r"Tree\.branches\[\]: Tree contains itself"),
        (Tagged, "tagged"),
        (int | bool, "int . str is the only supported union"),
        (dict[int, str], "keys of an object must be strings"),
        (tuple[int, str], "Tuple has no counterpart"),
    ],
)
def test_a_type_without_schema_is_named_with_its_field(annotation: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        type_schema(annotation)


def test_a_kind_must_be_a_struct() -> None:
    with pytest.raises(SchemaError, match="a kind must be a"):
        kind_schema(dict)
