"""Structural schemas: what fields an object has, for built-in and custom kinds.

One representation serves pruning, defaulting, unknown-field reports, strategic
merge patches and (in `validation`) the checks of values. It follows the
"structural schema" of apiextensions.k8s.io/v1.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from navarchos.testing.apiserver.objects import JsonObject, JsonValue, copy_json

__all__ = [
    "NO_DEFAULT",
    "Schema",
    "apply_defaults",
    "drop_nulls",
    "prune",
    "schema_from_openapi",
    "unknown_fields",
]

NO_DEFAULT: Final = object()
"""Marks a schema without a default; `None` would be a default of null."""

_ENVELOPE: Final = ("apiVersion", "kind", "metadata")


@dataclass(slots=True)
class Schema:
    """One node of a structural schema. Treat as read-only once built.

    Attributes:
        type: `object`, `array`, `string`, `integer`, `number`, `boolean`,
            `int-or-string`, or empty for any value.
        properties: Fields with a schema of their own.
        additional: Schema of the values of a map; `None` when it is no map.
        items: Schema of the items of an array.
        preserve: Unknown fields stay.
        embedded: The value is an object with apiVersion, kind and metadata.
        nullable: Null is a value.
        default: What an absent field gets, or `NO_DEFAULT`.
        format: `date-time`, `int32` and so on.
        list_type: `atomic`, `set` or `map`.
        list_keys: The keys that tell the items of a `map` list apart.
        atomic: A map or struct that has one manager as a whole.
        implied: What an absent key counts as where items are told apart by it.
        merge_key: Key that strategic merge patches pair items by.
        merges: A strategic merge patch merges this list or set.
        retain_keys: A strategic merge patch may name the fields that stay.
        required: Fields that must be there.
        keywords: Every keyword as written, for validation.
        rules: `x-kubernetes-validations`.
        shows_zero: Zero is a value; elsewhere Go's encoder leaves it out.
        shown_as_null: Fields whose absence is written as null.
        name: Go's name of the type, for messages of the decoder.
        has_rules: There are rules here or somewhere below.
    """

    type: str = ""
    properties: dict[str, "Schema"] = field(default_factory=dict)
    additional: "Schema | None" = None
    items: "Schema | None" = None
    preserve: bool = False
    embedded: bool = False
    nullable: bool = False
    default: JsonValue = NO_DEFAULT
    format: str = ""
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    atomic: bool = False
    implied: JsonValue = None
    merge_key: str = ""
    merges: bool = False
    retain_keys: bool = False
    required: tuple[str, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Mapping[str, Any], ...] = ()
    shows_zero: bool = False
    shown_as_null: tuple[str, ...] = ()
    name: str = ""
    has_rules: bool = False

    @property
    def has_default(self) -> bool:
        """Whether an absent value gets one."""
        return self.default is not NO_DEFAULT

    def child(self, key: str) -> "Schema | None":
        """Return the schema of the field `key`, if it is known."""
        found = self.properties.get(key)
        return self.additional if found is None else found

    def walk(self) -> Iterator["Schema"]:
        """Iterate this schema and all below it."""
        yield self
        for child in self.properties.values():
            yield from child.walk()
        for nested in (self.additional, self.items):
            if nested is not None:
                yield from nested.walk()


def schema_from_openapi(source: Mapping[str, Any]) -> Schema:
    """Build a schema from a CRD's `openAPIV3Schema`."""
    nested = source.get("additionalProperties")
    items = source.get("items")
    int_or_string = bool(source.get("x-kubernetes-int-or-string"))
    found = Schema(
        type="int-or-string" if int_or_string else source.get("type", ""),
        properties={
            name: schema_from_openapi(child)
            for name, child in (source.get("properties") or {}).items()
        },
        additional=_additional(nested),
        items=schema_from_openapi(items) if isinstance(items, Mapping) else None,
        preserve=bool(source.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(source.get("x-kubernetes-embedded-resource")),
        nullable=bool(source.get("nullable")),
        default=source.get("default", NO_DEFAULT),
        format=source.get("format") or "",
        list_type=source.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(source.get("x-kubernetes-list-map-keys") or ()),
        atomic=source.get("x-kubernetes-map-type") == "atomic",
        implied=source.get("default"),
        required=tuple(source.get("required") or ()),
        keywords=source,
        rules=tuple(source.get("x-kubernetes-validations") or ()),
    )
    below = (*found.properties.values(), found.additional, found.items)
    found.has_rules = bool(found.rules) or any(child and child.has_rules for child in below)
    return found


def _additional(nested: Mapping[str, Any] | bool | None) -> Schema | None:
    if isinstance(nested, Mapping):
        return schema_from_openapi(nested)
    return Schema(preserve=True) if nested else None


def unknown_fields(value: JsonValue, schema: Schema, path: str = "") -> list[str]:
    """Return the paths of fields that `schema` does not know, in order of appearance."""
    found: list[str] = []
    _visit_unknown(value, schema, path, lambda _obj, _key, at: found.append(at))
    return found


def prune(value: JsonValue, schema: Schema) -> list[str]:
    """Remove, in place, the fields that `schema` does not know; returns their paths."""
    found: list[tuple[JsonObject, str, str]] = []
    _visit_unknown(value, schema, "", lambda obj, key, at: found.append((obj, key, at)))
    for obj, key, _ in found:
        del obj[key]
    return [at for _, _, at in found]


def _visit_unknown(
    value: JsonValue,
    schema: Schema,
    path: str,
    report: Callable[[JsonObject, str, str], None],
) -> None:
    if isinstance(value, dict):
        _visit_unknown_keys(value, schema, path, report)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            _visit_unknown(item, schema.items, f"{path}[{index}]", report)


def _visit_unknown_keys(
    value: JsonObject,
    schema: Schema,
    path: str,
    report: Callable[[JsonObject, str, str], None],
) -> None:
    if schema.type not in {"object", ""}:
        return
    closed = not schema.preserve and schema.type == "object"
    for key, item in value.items():
        child = schema.child(key)
        at = f"{path}.{key}" if path else key
        if child is not None:
            _visit_unknown(item, child, at, report)
        elif closed and not (schema.embedded and key in _ENVELOPE):
            report(value, key, at)


def apply_defaults(value: JsonValue, schema: Schema) -> None:
    """Fill in, in place, the defaults of absent fields, parents before children."""
    if isinstance(value, dict):
        for key, child in schema.properties.items():
            if key not in value and child.has_default:
                value[key] = copy_json(child.default)
            if key in value:
                apply_defaults(value[key], child)
        if schema.additional is not None:
            for key, item in value.items():
                if key not in schema.properties:
                    apply_defaults(item, schema.additional)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            apply_defaults(item, schema.items)


def drop_nulls(value: JsonValue, schema: Schema) -> None:
    """Remove, in place, the fields that are null where null is no value: it is "not said".

    Before defaults are filled in (apiextensions-apiserver, schema/defaulting/prunenulls.go).
    """
    if isinstance(value, dict):
        for key in list(value):
            child = schema.child(key)
            if child is None:
                continue
            if value[key] is None and not child.nullable:
                del value[key]
            else:
                drop_nulls(value[key], child)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            drop_nulls(item, schema.items)
