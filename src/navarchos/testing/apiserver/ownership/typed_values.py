"""Objects as trees of fields: which fields a value has, comparing, merging, removing.

A map is granular unless its schema says `atomic`. A list is granular only if its items have an
identity: by keys (`map`) or by value (`set`). Other values are leaves. Maps without a schema are
granular.

The rules follow sigs.k8s.io/structured-merge-diff, package typed.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.ownership import fieldsets
from navarchos.testing.apiserver.schema import Schema

__all__ = [
    "Comparison",
    "ListItemError",
    "compare",
    "element_of",
    "fields_of",
    "fit_to_schema",
    "is_granular_list",
    "merge",
    "named_members",
    "remove_fields",
    "schema_below",
]

_UNTYPED: Final = Schema(preserve=True)


class ListItemError(Exception):
    """An item of a list has no identity, or has one that is not allowed; the text is upstream's."""


class Comparison(NamedTuple):
    """The differences between two objects."""

    added: fieldsets.FieldSet = fieldsets.EMPTY
    modified: fieldsets.FieldSet = fieldsets.EMPTY
    removed: fieldsets.FieldSet = fieldsets.EMPTY

    @property
    def written(self) -> fieldsets.FieldSet:
        """The fields with a new value."""
        return fieldsets.union(self.modified, self.added)


def schema_below(schema: Schema, key: str) -> Schema:
    """Return the schema of a field or of a map's value."""
    return schema.child(key) or _UNTYPED


def is_granular_list(schema: Schema) -> bool:
    """Return whether each item of a list has its own owner."""
    return schema.type == "array" and schema.list_type != "atomic"


def _is_map(value: JsonValue, schema: Schema) -> bool:
    return isinstance(value, dict) and not schema.atomic


def _is_list(value: JsonValue, schema: Schema) -> bool:
    return isinstance(value, list) and is_granular_list(schema)


def _items(schema: Schema) -> Schema:
    return schema.items or _UNTYPED


def element_of(item: JsonValue, schema: Schema) -> str:
    """Return the path element of an item of a granular list.

    Raises:
        ElementFault: The item has no identity.
    """
    if not schema.list_keys:
        return _element_of_value(item)
    if item is None:
        raise ListItemError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ListItemError("associative list with keys may not have non-map elements")
    keys = {}
    for name in schema.list_keys:
        if name in item:
            keys[name] = item[name]
        elif (implied := _items(schema).properties.get(name, _UNTYPED).implied) is not None:
            keys[name] = implied
    if not keys:
        listed = " ".join(f'"{name}"' for name in schema.list_keys)
        raise ListItemError(
            f"associative list with keys has an element that omits all key fields [{listed}] (and"
            " doesn't have default values for any key fields)"
        )
    return fieldsets.item_by_keys(keys)


def _element_of_value(item: JsonValue) -> str:
    if isinstance(item, dict):
        raise ListItemError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ListItemError("not supported: associative list with lists as elements")
    if item is None:
        raise ListItemError("associative list without keys has an element that's an explicit null")
    return fieldsets.item_by_value(item)


def _by_element(items: list[Any], schema: Schema) -> dict[str, list[JsonValue]]:
    found: dict[str, list[JsonValue]] = {}
    for item in items:
        found.setdefault(element_of(item, schema), []).append(item)
    return found


def fields_of(value: JsonObject, schema: Schema) -> fieldsets.FieldSet:
    """Return the fields of an applied configuration."""
    return _owned_map_node(value, schema)


def _owned_node(value: JsonValue, schema: Schema) -> fieldsets.FieldSet | None:
    """Return the node of a value; `None` if there is nothing to own."""
    if _is_map(value, schema):
        return _owned_map_node(value, schema) or None
    if _is_list(value, schema):
        return {
            element: fieldsets.LEAF
            if len(same) > 1
            else fieldsets.as_member(_owned_node(same[0], _items(schema)))
            for element, same in _by_element(value, schema).items()
        } or None
    return fieldsets.LEAF


def _owned_map_node(value: JsonObject, schema: Schema) -> fieldsets.FieldSet:
    found: fieldsets.FieldSet = {}
    for key, item in value.items():
        node = _owned_node(item, schema_below(schema, key))
        if item is None or item == {} or key not in schema.properties:
            node = fieldsets.as_member(node)
        if node is not None:
            found[fieldsets.field(key)] = node
    return found


def _whole(value: JsonValue, schema: Schema) -> fieldsets.FieldSet:
    """Return the node of an added or removed value, with everything below it."""
    if value and _is_map(value, schema):
        below = {fieldsets.field(k): _whole(v, schema_below(schema, k)) for k, v in value.items()}
        return fieldsets.as_member(below)
    if value and _is_list(value, schema):
        return fieldsets.as_member(
            {
                element: fieldsets.LEAF if len(same) > 1 else _whole(same[0], _items(schema))
                for element, same in _by_element(value, schema).items()
            }
        )
    return fieldsets.LEAF


def compare(old: JsonObject, new: JsonObject, schema: Schema) -> Comparison:
    """Return the differences between two objects.

    Raises:
        ElementFault: A list has an item without identity.
    """
    if old == new:
        return Comparison()
    return _compare_maps(old, new, schema)


def _compare_maps(
    old: Mapping[str, JsonValue], new: Mapping[str, JsonValue], schema: Schema
) -> Comparison:
    found = Comparison({}, {}, {})
    for key, item in new.items():
        if key not in old:
            found.added[fieldsets.field(key)] = _whole(item, schema_below(schema, key))
        elif old[key] != item:
            _add_difference(found, fieldsets.field(key), old[key], item, schema_below(schema, key))
    for key, item in old.items():
        if key not in new:
            found.removed[fieldsets.field(key)] = _whole(item, schema_below(schema, key))
    return found


def _compare_lists(old: list[Any], new: list[Any], schema: Schema) -> Comparison:
    found = Comparison({}, {}, {})
    before, after = _by_element(old, schema), _by_element(new, schema)
    items = _items(schema)
    for element, now in after.items():
        was = before.get(element, [])
        if was == now:
            continue
        if len(was) <= 1 and len(now) <= 1:
            if was:
                _add_difference(found, element, was[0], now[0], items)
            else:
                found.added[element] = _whole(now[0], items)
        elif len(was) > 1 and len(now) > 1:
            found.modified[element] = fieldsets.LEAF
        elif len(was) > 1:  # the remaining item is unique again
            found.added[element] = _whole(now[0], items)
            found.removed[element] = fieldsets.LEAF
        else:
            if was:
                found.removed[element] = _whole(was[0], items)
            found.added[element] = fieldsets.LEAF
    for element, was in before.items():
        if element not in after:
            found.removed[element] = fieldsets.LEAF if len(was) > 1 else _whole(was[0], items)
    return found


def _add_difference(
    found: Comparison, element: str, old: JsonValue, new: JsonValue, schema: Schema
) -> None:
    """Add the difference of two values under `element`."""
    if (old or new) and _both(_is_map, old, new, schema):
        below = _compare_maps(old or {}, new or {}, schema)
    elif (old or new) and _both(_is_list, old, new, schema):
        below = _compare_lists(old or [], new or [], schema)
    else:
        found.modified[element] = fieldsets.LEAF
        return
    for total, part in zip(found, below, strict=True):
        if part:
            total[element] = part


def _both(is_one: Any, old: JsonValue, new: JsonValue, schema: Schema) -> bool:
    """Return whether both values are of one sort; null is of every sort."""
    return (old is None or is_one(old, schema)) and (new is None or is_one(new, schema))


def merge(live: JsonObject, applied: JsonObject, schema: Schema) -> JsonObject:
    """Return `live` with the fields of `applied`. Neither is changed.

    Raises:
        ElementFault: A list has an item without identity.
    """
    result = dict(live)
    for key, item in applied.items():
        if key in live:
            result[key] = _merge_values(live[key], item, schema_below(schema, key))
        else:
            result[key] = item
    return result


def _merge_values(live: JsonValue, applied: JsonValue, schema: Schema) -> JsonValue:
    if (live or applied) and _both(_is_map, live, applied, schema):
        return merge(live or {}, applied or {}, schema)
    if (live or applied) and _both(_is_list, live, applied, schema):
        return _merge_lists(live or [], applied or [], schema)
    return applied


def _merge_lists(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    return _ListMerge(live, applied, schema).run()


class _ListMerge:
    """Merges two lists in the applied order; other items stay next to their neighbours."""

    def __init__(self, live: list[Any], applied: list[Any], schema: Schema) -> None:
        self._items = _items(schema)
        self._ours = [(element_of(item, schema), item) for item in live]
        self._theirs = [(element_of(item, schema), item) for item in applied]
        self._before = _unique(self._ours)
        self._wanted = dict(self._theirs)
        # The items of both lists that are not in the result yet, in the applied order.
        self._shared = [element for element, _ in self._theirs if element in self._before]
        self._done: set[str] = set()
        self._result: list[Any] = []

    def run(self) -> list[Any]:
        left = right = 0
        while left < len(self._ours) or right < len(self._theirs):
            if left < len(self._ours) and right < len(self._theirs):
                element = self._ours[left][0]
                if element == self._theirs[right][0]:
                    self._append_merged(element)
                    left, right = left + 1, right + 1
                    continue
                if element in self._wanted and self._shared and self._shared[0] != element:
                    left += 1  # the item follows later, in the applied order
                    continue
            if left < len(self._ours):
                element, item = self._ours[left]
                left += element not in self._wanted or element in self._done
                if element not in self._wanted:
                    self._result.append(item)
                    continue
            if right < len(self._theirs):
                self._append_merged(self._theirs[right][0])
                right += 1
        return self._result

    def _append_merged(self, element: str) -> None:
        was, now = self._before.get(element), self._wanted[element]
        self._result.append(now if was is None else _merge_values(was, now, self._items))
        self._done.add(element)
        if self._shared and self._shared[0] == element:
            del self._shared[0]


def _unique(items: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return items by element; `None` for an element that is repeated, which is replaced."""
    found: dict[str, JsonValue] = {}
    for element, item in items:
        found[element] = None if element in found else item
    return found


def remove_fields(value: JsonValue, fields: fieldsets.FieldSet, schema: Schema) -> JsonValue:
    """Return a value without the fields of a set; `None` if nothing remains."""
    if not fields:
        return value
    if _is_map(value, schema):
        left: JsonValue = _remove_keys(value, fields, schema)
    elif _is_list(value, schema):
        left = _remove_items(value, fields, schema)
    else:
        return None if isinstance(value, dict | list) else value
    return left or None


def _remove_keys(value: JsonObject, fields: fieldsets.FieldSet, schema: Schema) -> JsonObject:
    left: JsonObject = {}
    for key, item in value.items():
        node = fields.get(fieldsets.field(key))
        if node is None:
            left[key] = item
        elif not fieldsets.is_member(node):
            left[key] = remove_fields(item, node, schema_below(schema, key))
    return left


def _remove_items(value: list[Any], fields: fieldsets.FieldSet, schema: Schema) -> list[Any]:
    left = []
    for item in value:
        node = fields.get(element_of(item, schema))
        if node is None:
            left.append(item)
        elif not fieldsets.is_member(node):
            left.append(remove_fields(item, node, _items(schema)))
    return left


def named_members(fields: fieldsets.FieldSet, schema: Schema) -> fieldsets.FieldSet:
    """Return a set to which the named fields of the schema belong if they have members below."""
    found: fieldsets.FieldSet = {}
    for element, node in fields.items():
        if not node:
            found[element] = node
            continue
        name = fieldsets.name_of(element)
        below = named_members(node, schema_below(schema, name) if name else _items(schema))
        found[element] = fieldsets.as_member(below) if name in schema.properties else below
    return found


def fit_to_schema(fields: fieldsets.FieldSet, schema: Schema) -> fieldsets.FieldSet:
    """Return a set in which the fields that the schema has as atomic are leaves."""
    found: fieldsets.FieldSet = {}
    for element, node in fields.items():
        name = fieldsets.name_of(element)
        child = schema_below(schema, name) if name else _items(schema)
        whole = child.atomic or (child.type == "array" and child.list_type == "atomic")
        found[element] = fieldsets.LEAF if whole or not node else fit_to_schema(node, child)
    return found
