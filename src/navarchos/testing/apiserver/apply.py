"""Server-side apply: a client sends the fields that it wants to manage.

Errors in a configuration have the texts of structured-merge-diff.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import yaml

from navarchos.testing.apiserver import bodies, kinds, objects, requests, store, writes
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.ownership import (
    field_manager,
    fieldsets,
    managed_fields,
    typed_values,
)
from navarchos.testing.apiserver.schema import Schema

__all__ = ["apply", "apply_to", "configuration_errors", "read_configuration"]

_GO_TYPES: Final = {str: "string", bool: "bool", int: "int64", float: "float64"}
_KUBECTL: Final = "kubectl"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_TIME_TAG: Final = "tag:yaml.org,2002:timestamp"


def configuration_errors(config: objects.JsonObject, schema: Schema) -> str:
    """Return the errors of a configuration as one text; empty if there are none."""
    found = [f"{path}: {text}" if path else text for path, text in _check(config, schema, "")]
    if len(found) < 2:
        return "".join(found)
    return "\n  ".join(["errors:", *found])


def _check(value: objects.JsonValue, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if value is None or not schema.type:
        return
    if schema.type == "object":
        yield from _check_map(value, schema, path)
    elif schema.type == "array":
        yield from _check_list(value, schema, path)
    elif text := _scalar_error(value, schema):
        yield path, text


def _check_map(value: objects.JsonValue, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"expected map, got {_go_wrapper(value)}"
        return
    for key, item in value.items():
        at = path + fieldsets.path_text((fieldsets.field(key),))
        if schema.child(key) is None and not schema.preserve:
            yield at, "field not declared in schema"
            return  # upstream stops at the first error
        yield from _check(item, typed_values.schema_below(schema, key), at)


def _check_list(value: objects.JsonValue, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        yield path, f"expected list, got {_go_wrapper(value)}"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        at = f"[{index}]"
        if typed_values.is_granular_list(schema):
            try:
                element = typed_values.element_of(item, schema)
            except typed_values.ListItemError as fault:
                yield path, f"element {index}: {fault}"
                return
            at = fieldsets.path_text((element,))
            if element in seen:
                yield path, f"duplicate entries for key {at}"
            seen.add(element)
        if schema.items is not None:
            yield from _check(item, schema.items, path + at)


def _scalar_error(value: objects.JsonValue, schema: Schema) -> str:
    wanted = schema.type
    if wanted in {"integer", "number"} and (
        isinstance(value, bool) or not isinstance(value, int | float)
    ):
        return f"expected numeric (int or float), got {_GO_TYPES.get(type(value), 'object')}"
    if wanted == "string" and not isinstance(value, str):
        shown = objects.encode(value).decode()
        return f"expected string, got &value.valueUnstructured{{Value:{shown}}}"
    if wanted == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got {_go_wrapper(value)}"
    if wanted == "int-or-string" and schema.format and isinstance(value, dict | list):
        return f"expected any scalar, got {_go_wrapper(value)}"
    return ""


def _go_wrapper(value: objects.JsonValue) -> str:
    """Return a value as Go prints structured-merge-diff's wrapper of it."""
    return f"&{{{_go_value(value)}}}"


def _go_value(value: objects.JsonValue) -> str:
    if isinstance(value, dict):
        pairs = (f"{key}:{_go_value(item)}" for key, item in sorted(value.items()))
        return f"map[{' '.join(pairs)}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go_value, value))}]"
    return value if isinstance(value, str) else objects.encode(value).decode()


class _YamlLoader(yaml.SafeLoader):
    """Loads YAML as the API does: times stay strings, and repeated keys are recorded."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.repeated: list[str] = []

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                self.repeated.append(f'line {line}: key "{key.value}" already set in map')
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIME_TAG]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_configuration(raw: bytes, options: bodies.WriteOptions) -> objects.JsonObject:
    """Decode a configuration: YAML, or JSON, which is a subset of YAML.

    Raises:
        StatusError: 400, the text cannot be read, or has a repeated key and validation is strict.
    """
    try:
        found: objects.JsonValue = msgspec.json.decode(raw)
        repeated: list[str] = []
    except (msgspec.DecodeError, UnicodeDecodeError):
        found, repeated = _read_yaml(raw)
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise statuses.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot"
            f" unmarshal {bodies.json_name(found)} into Go value of type map[string]interface {{}}"
        )
    if repeated:
        _report(repeated, options)
    return found


def _read_yaml(raw: bytes) -> tuple[objects.JsonValue, list[str]]:
    try:
        loader = _YamlLoader(raw)
        try:
            return loader.get_single_data(), loader.repeated
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise statuses.bad_request(
            f"error decoding YAML: error converting YAML to JSON: yaml: {error}"
        ) from error


def _report(repeated: list[str], options: bodies.WriteOptions) -> None:
    if options.field_validation == "Strict":
        listed = "\n  ".join(repeated)
        raise statuses.bad_request(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
            f"  {listed}"
        )
    if options.field_validation == "Warn":
        options.warnings += repeated


def apply(
    api: writes.Api,
    target: requests.Target,
    config: objects.JsonObject,
    options: bodies.WriteOptions,
    *,
    force: bool = False,
) -> tuple[store.Entry, bool]:
    """Apply a configuration as the field manager `options.manager`.

    Returns:
        The object, and whether it is new.

    Raises:
        StatusError: 409 with a cause for each field that other managers own, unless `force`; 500
            for fields that the schema does not have, as upstream. Nothing is stored.
    """
    options.applying = True
    write = field_manager.field_write(api.kinds, target.kind, options.manager, target.subresource)

    def change(live: objects.JsonObject) -> objects.JsonObject:
        return apply_to(write, live, config, force=force)

    with api.store.transaction():
        key = store.entry_key(target.namespace, target.name)
        if api.store.get(target.kind.bucket, key) is None:
            if target.subresource:
                raise statuses.not_found(target.kind.resource, target.name)
            return _create(api, target, change, options), True
        return writes.modify(api, target, change, options), False


def _create(
    api: writes.Api,
    target: requests.Target,
    change: Callable[[objects.JsonObject], objects.JsonObject],
    options: bodies.WriteOptions,
) -> store.Entry:
    kind, name = target.kind, target.name
    obj = change({})
    if uid := objects.meta(obj).get("uid"):
        why = (
            f"uid mismatch: the provided object specified uid {uid}, and no existing object was"
            " found"
        )
        raise statuses.conflict(kind.resource, name, why)
    found = objects.meta(obj).get("name")
    if not found:
        raise statuses.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be"
            " provided"
        )
    if found != name:
        raise statuses.bad_request(
            f"the name of the object ({found}) does not match the name on the URL ({name})"
        )
    objects.meta(obj).pop("resourceVersion", None)  # there is no version to conflict with
    return writes.create(api, kind, target.namespace, obj, options)


def apply_to(
    write: field_manager.FieldWrite,
    live: objects.JsonObject,
    config: objects.JsonObject,
    *,
    force: bool,
) -> objects.JsonObject:
    """Return the object with the configuration applied, and with the new managed fields."""
    _check_configuration(write.kind, config)
    metadata = dict(objects.meta(live))
    managed = managed_fields.decode_managed_fields(metadata.pop("managedFields", None))
    if live:
        live = {**live, "metadata": metadata}
    try:
        outcome = field_manager.after_apply(write, managed, live, config, force=force)
    except field_manager.ApplyConflicts as conflicts:
        rest = _without_client_side_conflicts(write, live, conflicts.fields)
        if rest:
            raise _conflict(rest) from conflicts
        outcome = field_manager.after_apply(write, managed, live, config, force=True)
    return _with_managers(write, live, config, outcome)


def _with_managers(
    write: field_manager.FieldWrite,
    live: objects.JsonObject,
    config: objects.JsonObject,
    outcome: field_manager.ApplyResult,
) -> objects.JsonObject:
    obj = live if outcome.obj is None else outcome.obj
    metadata = dict(objects.meta(obj))
    annotations = metadata.get("annotations") or {}
    if write.name == _KUBECTL and annotations.get(_LAST_APPLIED):
        metadata["annotations"] = {**annotations, _LAST_APPLIED: _last_applied(config)}
    if outcome.managed:
        metadata["managedFields"] = managed_fields.encode_managed_fields(outcome.managed)
    return {**obj, "metadata": metadata}


def _last_applied(config: objects.JsonObject) -> str:
    """Return the annotation that client-side apply would write, so that it stays usable."""
    metadata = dict(objects.meta(config))
    if "annotations" in metadata:
        kept = {k: v for k, v in metadata["annotations"].items() if k != _LAST_APPLIED}
        metadata["annotations"] = kept
    text = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode()
    return text + "\n"


def _without_client_side_conflicts(
    write: field_manager.FieldWrite,
    live: objects.JsonObject,
    conflicts: dict[managed_fields.FieldManager, fieldsets.FieldSet],
) -> dict[managed_fields.FieldManager, fieldsets.FieldSet]:
    """Return the conflicts without the remains of client-side apply.

    kubectl may take fields that it applied client-side before and that no other manager has changed
    since (apimachinery, managedfields, lastappliedmanager.go).
    """
    text = (objects.meta(live).get("annotations") or {}).get(_LAST_APPLIED)
    if write.name != _KUBECTL or not text:
        return conflicts
    try:
        before = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return conflicts
    kind = write.kind
    if before.get("apiVersion") != kind.api_version or configuration_errors(before, kind.schema):
        return conflicts
    since = typed_values.compare(before, live, kind.schema)
    own = fieldsets.difference(
        typed_values.fields_of(before, kind.schema), fieldsets.union(since.written, since.removed)
    )
    rest = {manager: fieldsets.difference(fields, own) for manager, fields in conflicts.items()}
    return {manager: fields for manager, fields in rest.items() if fields}


def _check_configuration(kind: kinds.Kind, config: objects.JsonObject) -> None:
    group, _, version = str(config.get("apiVersion") or "").rpartition("/")
    shown = f"{group}/{version}, Kind={config.get('kind') or ''}"
    if (config.get("apiVersion"), config.get("kind")) != (kind.api_version, kind.kind):
        raise statuses.bad_request(f"invalid object type: {shown}")
    if objects.meta(config).get("managedFields") is not None:
        raise statuses.bad_request("metadata.managedFields must be nil")
    if faults := configuration_errors(config, kind.schema):
        metadata = objects.meta(config)
        place = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
        raise statuses.StatusError(
            500, "", f"failed to create typed patch object ({place}; {shown}): {faults}"
        )


def _conflict(
    fields: dict[managed_fields.FieldManager, fieldsets.FieldSet],
) -> statuses.StatusError:
    """Return the 409 with the texts of apimachinery, managedfields, conflict.go."""
    found = [
        (manager, fieldsets.path_text(path))
        for manager in sorted(fields)
        for path in fieldsets.paths(fields[manager])
    ]
    causes = [
        statuses.Cause("FieldManagerConflict", f"conflict with {manager}", path)
        for manager, path in found
    ]
    if len(found) == 1:
        [(manager, path)] = found
        text = f"1 conflict: conflict with {manager}: {path}"
    else:
        lines = [
            line
            for manager in sorted(fields)
            for line in (
                f"conflicts with {manager}:",
                *(f"- {path}" for one, path in found if one == manager),
            )
        ]
        text = f"{len(found)} conflicts: " + "\n".join(lines)
    details = {"causes": [cause.to_json() for cause in causes]}
    return statuses.StatusError(409, "Conflict", f"Apply failed with {text}", details=details)
