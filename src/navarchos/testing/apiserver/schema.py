"""Structural schemas: the fields of an object, for built-in and custom kinds.

One representation serves pruning, defaulting, reports of unknown fields, strategic merge patches
and (in `validation`) the validation of values. It follows the "structural schema" of
apiextensions.k8s.io/v1.
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
"""Marks a schema without a default; `None` is a default of null."""

_ENVELOPE: Final = ("apiVersion", "kind", "metadata")


@dataclass(slots=True)
class Schema:
    """One node of a structural schema. Treat as read-only once built.

    Attributes:
        type: `object`, `array`, `string`, `integer`, `number`, `boolean`, `int-or-string`, or empty
            for any value.
        properties: The fields with their schemas.
        additional: The schema of a map's values; `None` if the value is not a map.
        items: The schema of an array's items.
        preserve: Unknown fields are kept.
        embedded: The value is an object with apiVersion, kind and metadata.
        nullable: Null is a valid value.
        default: The default of an absent value, or `NO_DEFAULT`.
        format: `date-time`, `int32` and so on.
        list_type: `atomic`, `set` or `map`.
        list_keys: The keys that identify the items of a `map` list.
        atomic: The map or struct has one owner as a whole.
        implied: The value of an absent key in the identity of an item.
        merge_key: The key by which strategic merge patches identify items.
        merges: A strategic merge patch merges the list or set.
        retain_keys: A strategic merge patch may list the fields that stay.
        required: The required fields.
        keywords: Every keyword as written, for validation.
        rules: `x-kubernetes-validations`.
        shows_zero: Go's encoder writes zero; for other fields it omits zero.
        shown_as_null: The fields that are written as null when they are absent.
        name: Go's name of the type, for the decoder's errors.
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
        """Whether an absent value gets a default."""
        return self.default is not NO_DEFAULT

    def child(self, key: str) -> "Schema | None":
        """Return the schema of a field; `None` for an unknown field."""
        found = self.properties.get(key)
        return self.additional if found is None else found

    def walk(self) -> Iterator["Schema"]:
        """Iterate this schema and all schemas below it."""
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
    """Return the paths of the fields that `schema` does not have, in order."""
    found: list[str] = []
    _visit_unknown(value, schema, path, lambda _obj, _key, at: found.append(at))
    return found


def prune(value: JsonValue, schema: Schema) -> list[str]:
    """Remove, in place, the fields that `schema` does not have; return their paths."""
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
    """Set, in place, the defaults of absent fields, parents before children."""
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
    """Remove, in place, nulls from fields that are not nullable.

    It happens before defaulting, and also for fields without a default and for the values of maps
    (apiextensions-apiserver, schema/defaulting/prunenulls.go).
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
