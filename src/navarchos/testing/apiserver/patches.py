"""Three patch formats: JSON patch, merge patch, strategic merge patch."""

from types import MappingProxyType
from typing import Any, Final

import jsonpatch

from navarchos.testing.apiserver import objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.schema import Schema

__all__ = [
    "APPLY_PATCH",
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_PATCH",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_strategic_patch",
]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

_DIRECTIVE: Final = "$patch"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_RETAIN: Final = "$retainKeys"
_UNFIT: Final = "the server rejected our request due to an error in our request"


def apply_merge_patch(target: objects.JsonValue, patch: objects.JsonValue) -> objects.JsonValue:
    """Return `target` changed by an RFC 7386 patch; neither argument is changed."""
    if not isinstance(patch, dict):
        return objects.copy_json(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def apply_json_patch(target: objects.JsonObject, patch: objects.JsonValue) -> objects.JsonValue:
    """Return `target` changed by an RFC 6902 patch; neither argument is changed.

    Raises:
        StatusError: 400 when `patch` is not a JSON patch, 422 when it cannot be applied.
    """
    if not isinstance(patch, list) or not all(isinstance(step, dict) for step in patch):
        raise statuses.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type"
            " jsonpatch.Patch"
        )
    try:
        return _JsonPatch(patch).apply(target)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        raise statuses.StatusError(422, "Invalid", _UNFIT, details={}) from error


class _Replace(jsonpatch.ReplaceOperation):
    """Adds the key if a map lacks it, as the API server's library does (evanphx/json-patch v4)."""

    def apply(self, obj: objects.JsonValue) -> objects.JsonValue:
        parent, key = self.pointer.to_last(obj)
        if isinstance(parent, dict) and key is not None:
            return jsonpatch.AddOperation(self.operation).apply(obj)
        return super().apply(obj)


class _Test(jsonpatch.TestOperation):
    """Takes an absent key of a map for null, as the API server's library does."""

    def apply(self, obj: objects.JsonValue) -> objects.JsonValue:
        parent, key = self.pointer.to_last(obj)
        is_absent = isinstance(parent, dict) and key is not None and parent.get(key) is None
        if is_absent and self.operation.get("value") is None:
            return obj
        return super().apply(obj)


class _JsonPatch(jsonpatch.JsonPatch):
    """A patch with the operations of RFC 6902. The library has one more, `append`."""

    operations = MappingProxyType(
        {
            "add": jsonpatch.AddOperation,
            "copy": jsonpatch.CopyOperation,
            "move": jsonpatch.MoveOperation,
            "remove": jsonpatch.RemoveOperation,
            "replace": _Replace,
            "test": _Test,
        }
    )


def apply_strategic_patch(
    target: objects.JsonValue, patch: objects.JsonValue, schema: Schema | None
) -> objects.JsonValue:
    """Return `target` changed by a strategic merge patch for a kind's schema.

    Raises:
        StatusError: 400 or 500 for an invalid directive or list.
    """
    if not isinstance(patch, dict):
        return objects.copy_json(patch)
    if patch.get(_DIRECTIVE) == "replace":
        return {k: objects.copy_json(v) for k, v in patch.items() if k != _DIRECTIVE}
    if patch.get(_DIRECTIVE) == "delete":
        return {}
    result = _prepared(dict(target) if isinstance(target, dict) else {}, patch)
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, schema.child(key) if schema else None)
    for key, order in patch.items():
        if key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            child = schema.child(field) if schema else None
            if field in result:
                result[field] = _ordered(result[field], order, child)
    return result


def _prepared(result: objects.JsonObject, patch: objects.JsonObject) -> objects.JsonObject:
    """Apply the directives that remove something, before the merge."""
    if _RETAIN in patch:
        result = {k: v for k, v in result.items() if k in patch[_RETAIN]}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            field = key.removeprefix(_DELETE_FROM)
            result[field] = [item for item in result.get(field) or [] if item not in value]
    return result


def _merge_field(
    result: objects.JsonObject, key: str, value: objects.JsonValue, child: Schema | None
) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, list):
        result[key] = _merge_list(result.get(key) or [], value, child)
    elif isinstance(value, dict) and value.get(_DIRECTIVE) == "delete":
        result.pop(key, None)
    elif isinstance(value, dict):
        result[key] = apply_strategic_patch(result.get(key), value, child)
    else:
        result[key] = value


def _merge_list(target: list[Any], patch: list[Any], schema: Schema | None) -> list[Any]:
    if schema is None or not schema.merges:
        return [item for item in objects.copy_json(patch) if not _is_directive(item)]
    if not schema.merge_key:
        added = [objects.copy_json(item) for item in patch]
        return _interleaved([item for item in target if item not in patch], added, target, "")
    if any(_is_directive(item) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [objects.copy_json(item) for item in patch if not _is_directive(item)]
    merged = list(target)
    for item in patch:
        _merge_item(merged, item, schema)
    key = schema.merge_key
    named = [item[key] for item in patch]
    patched = [item for name in named for item in merged if item.get(key) == name]
    kept = [item for item in merged if item.get(key) not in named]
    return _interleaved(kept, patched, target, key)


def _interleaved(kept: list[Any], patched: list[Any], target: list[Any], key: str) -> list[Any]:
    """Return the patched items and the other ones in one list.

    As upstream, both keep their order. An unpatched item comes before a patched one only if it did
    so before the patch, so new items come first.
    """
    names = [_name(item, key) for item in target]
    result: list[Any] = []
    rest = list(patched)
    for item in kept:
        at = names.index(_name(item, key))
        while rest and not (_name(rest[0], key) in names and at < names.index(_name(rest[0], key))):
            result.append(rest.pop(0))
        result.append(item)
    return result + rest


def _name(item: objects.JsonValue, key: str) -> objects.JsonValue:
    return item.get(key) if key and isinstance(item, dict) else item


def _is_directive(item: objects.JsonValue) -> bool:
    return isinstance(item, dict) and _DIRECTIVE in item


def _merge_item(merged: list[Any], item: objects.JsonValue, schema: Schema) -> None:
    key = schema.merge_key
    if not isinstance(item, dict) or key not in item:
        shown = f"map: {item} does not contain declared merge key: {key}"
        raise statuses.StatusError(
            500, "InternalError", shown, details={"causes": [{"message": shown}]}
        )
    at = next((i for i, old in enumerate(merged) if old.get(key) == item[key]), None)
    if item.get(_DIRECTIVE) == "delete":
        if at is not None:
            del merged[at]
    elif at is None:
        merged.append(apply_strategic_patch({}, item, schema.items))
    else:
        merged[at] = apply_strategic_patch(merged[at], item, schema.items)


def _ordered(items: list[Any], order: list[Any], schema: Schema | None) -> list[Any]:
    """Sort the listed items in the listed order; other items follow in their own order."""
    key = schema.merge_key if schema else ""
    wanted = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]

    def rank(item: objects.JsonValue) -> int:
        found = item.get(key) if isinstance(item, dict) else item
        return wanted.index(found) if found in wanted else len(wanted)

    return sorted(items, key=rank)
