"""CustomResourceDefinitions as objects: defaults, validation, conditions, structural schemas.

The validation follows apiextensions-apiserver: `pkg/apis/apiextensions/validation`, and for schemas
`pkg/apiserver/schema/validation.go`.
"""

from collections.abc import Iterator
from typing import Any, Final

from navarchos.testing.apiserver import cel, kinds, objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.names import dns_1035_label

__all__ = [
    "CLEANUP_FINALIZER",
    "DEFINITION",
    "accept_names",
    "is_established",
    "mark_terminating",
    "refuse_names",
    "schema_errors",
    "selectable_errors",
]

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
"""Keeps a deleted definition until all its objects are gone."""
_REASONS: Final = (
    "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired",
)  # fmt: skip
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_FORBIDDEN_KEYWORDS: Final = ("$ref", "definitions", "dependencies", "patternProperties", "$schema")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_NOT_IN_JUNCTORS: Final = {
    "type": "empty",
    "title": "empty",
    "description": "empty",
    "default": "undefined",
    "additionalProperties": "undefined",
    "nullable": "false",
    "x-kubernetes-embedded-resource": "false",
    "x-kubernetes-int-or-string": "false",
    "x-kubernetes-preserve-unknown-fields": "false",
}
"""Keywords that are allowed in the structure only, and the value that they must have elsewhere."""


def _default(obj: objects.JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind"):
        names["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})


def _prepare_create(obj: objects.JsonObject) -> None:
    """Accept the names immediately; upstream accepts them a moment later."""
    obj["status"] = _status_for(obj, objects.timestamp())


def _prepare_update(new: objects.JsonObject, old: objects.JsonObject) -> None:
    status = dict(old.get("status") or {})
    status["acceptedNames"] = new["spec"]["names"]
    stored = _storage_version(new)
    versions = list(status.get("storedVersions") or [])
    if stored not in versions:
        versions.append(stored)
    status["storedVersions"] = versions
    new["status"] = status


def mark_terminating(obj: objects.JsonObject) -> None:
    """Add the condition `Terminating`, in place."""
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    conditions.append(
        _condition("Terminating", "InstanceDeletionPending", text, objects.timestamp())
    )


def refuse_names(
    obj: objects.JsonObject,
    accepted: objects.JsonObject,
    reason: str,
    message: str,
    *,
    established: bool,
) -> None:
    """Set, in place, the conditions of a definition with names that are not accepted.

    Args:
        obj: The definition.
        accepted: The names that are accepted.
        reason: The reason of the condition `NamesAccepted`.
        message: The message of that condition.
        established: Whether the definition is served, under names that were accepted before.
    """
    now = objects.timestamp()
    served = _established(obj)
    if served is None or not established:
        text = "not all names are accepted"
        served = _condition("Established", "NotAccepted", text, now, status="False")
    refused = _condition("NamesAccepted", reason, message, now, status="False")
    obj["status"] = {
        **obj["status"],
        "acceptedNames": {"plural": "", "kind": "", **accepted},
        "conditions": [refused, served],
    }


def accept_names(obj: objects.JsonObject) -> None:
    """Set, in place, the conditions of a definition whose names are all accepted."""
    stored = objects.dig(obj, "status", "storedVersions")
    obj["status"] = _status_for(obj, objects.timestamp())
    if stored:
        obj["status"]["storedVersions"] = stored


def is_established(obj: objects.JsonObject) -> bool:
    """Return whether the definition has been established."""
    found = _established(obj)
    return found is not None and found["status"] == "True"


def _established(obj: objects.JsonObject) -> objects.JsonObject | None:
    conditions = objects.dig(obj, "status", "conditions", default=())
    return next((c for c in conditions if c.get("type") == "Established"), None)


def _condition(
    kind: str, reason: str, message: str, now: str, *, status: str = "True"
) -> objects.JsonObject:
    return {
        "type": kind, "status": status, "lastTransitionTime": now,
        "reason": reason, "message": message,
    }  # fmt: skip


def _status_for(obj: objects.JsonObject, now: str) -> objects.JsonObject:
    accepted = "the initial names have been accepted"
    return {
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
            _condition("Established", "InitialNamesAccepted", accepted, now),
        ],
        "acceptedNames": obj["spec"]["names"],
        "storedVersions": [_storage_version(obj)],
    }


def _storage_version(obj: objects.JsonObject) -> str:
    versions = obj["spec"].get("versions") or []
    return next((v["name"] for v in versions if v.get("storage")), "")


def _validate(obj: objects.JsonObject) -> list[statuses.FieldError]:
    spec = obj["spec"]
    names = spec["names"]
    errors = []
    plural, group = names.get("plural") or "", spec.get("group") or ""
    if objects.meta(obj).get("name") != f"{plural}.{group}":
        text = 'must be spec.names.plural+"."+spec.group'
        errors.append(statuses.invalid_value("metadata.name", objects.meta(obj).get("name"), text))
    for field, value in (("spec.group", group), ("spec.names.plural", plural)):
        if not value:
            errors.append(statuses.required(field))
    errors += _name_errors(names)
    if group and "." not in group:
        errors.append(
            statuses.invalid_value("spec.group", group, "should be a domain with at least one dot")
        )
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        choices = ("Cluster", "Namespaced")
        errors.append(statuses.unsupported_value("spec.scope", spec.get("scope") or "", choices))
    return errors + _version_errors(spec.get("versions") or []) + _stored_errors(obj)


def _name_errors(names: objects.JsonObject) -> list[statuses.FieldError]:
    errors = []
    for field in ("plural", "singular"):
        name = names.get(field) or ""
        wrong = dns_1035_label(name) if name else []
        errors += [statuses.invalid_value(f"spec.names.{field}", name, why) for why in wrong]
    name = names.get("kind") or ""
    if not name:
        errors.append(statuses.required("spec.names.kind"))
    for why in dns_1035_label(name.lower()) if name else []:
        text = f"may have mixed case, but should otherwise match: {why}"
        errors.append(statuses.invalid_value("spec.names.kind", name, text))
    return errors


def _version_errors(versions: list[objects.JsonObject]) -> list[statuses.FieldError]:
    errors: list[statuses.FieldError] = []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        errors.append(statuses.invalid_value("spec.versions", versions, text))
        if not any(version.get("storage") for version in versions):
            text = "must have at least one stored version"
            errors.append(statuses.invalid_value("status.storedVersions", None, text))
    seen: set[str] = set()
    shared = all(version.get("schema") == versions[0].get("schema") for version in versions)
    for index, version in enumerate(versions):
        at = f"spec.versions[{index}]"
        # Upstream moves parts that all versions share to the top level before it validates.
        where = "spec.validation" if shared else f"{at}.schema"
        own = "spec" if len(versions) == 1 else at
        if version.get("name") in seen:
            errors.append(statuses.duplicate(f"{at}.name", version.get("name")))
        seen.add(version.get("name") or "")
        schema = objects.dig(version, "schema", "openAPIV3Schema")
        if schema is None:
            errors.append(statuses.required(f"{at}.schema.openAPIV3Schema"))
        else:
            errors += schema_errors(schema, f"{where}.openAPIV3Schema")
        fields = version.get("selectableFields") or []
        errors += selectable_errors(fields, schema or {}, f"{own}.selectableFields")
        warning = version.get("deprecationWarning")
        if warning and not version.get("deprecated"):
            text = "can only be set for deprecated versions"
            errors.append(statuses.invalid_value(f"{at}.deprecationWarning", warning, text))
    return errors


def _stored_errors(obj: objects.JsonObject) -> list[statuses.FieldError]:
    """Refuse to remove a version in which objects are, or may still be, stored."""
    versions = obj["spec"].get("versions") or []
    named = {version.get("name") for version in versions}
    listed = objects.dig(obj, "status", "storedVersions", default=()) or ()
    unlisted = [
        statuses.invalid_value(
            "status.storedVersions", list(listed), f"must have the storage version {each['name']}"
        )
        for each in versions
        if listed and each.get("storage") and each.get("name") not in listed
    ]
    return unlisted + [
        statuses.invalid_value(
            f"status.storedVersions[{index}]",
            stored,
            f"missing from spec.versions; {stored} was previously a storage version, and must "
            "remain in spec.versions until a storage migration ensures no data remains persisted "
            f"in {stored} and removes {stored} from status.storedVersions",
        )
        for index, stored in enumerate(listed)
        if stored and stored not in named
    ]


DEFINITION: Final = kinds.KindStrategy(
    generation=True,
    unconditional_update=False,
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
)


def schema_errors(schema: objects.JsonObject, at: str) -> list[statuses.FieldError]:
    """Return the errors of a version's schema; `at` is the schema's path in the definition."""
    errors: list[statuses.FieldError] = []
    if not schema.get("type"):
        errors.append(statuses.required(f"{at}.type", "must not be empty at the root"))
    elif schema["type"] != "object":
        errors.append(
            statuses.invalid_value(f"{at}.type", schema["type"], "must be object at the root")
        )
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    if set(metadata.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName, but metadata is"
        errors.append(_forbidden(f"{at}.properties[metadata]", f"{text} implicitly specified"))
    return errors + _structural_errors(schema, at)


def selectable_errors(
    fields: list[objects.JsonObject], schema: objects.JsonObject, at: str
) -> list[statuses.FieldError]:
    """Return the errors of the `selectableFields` of a version."""
    errors: list[statuses.FieldError] = []
    seen: set[str] = set()
    for index, field in enumerate(fields):
        path, where = field.get("jsonPath") or "", f"{at}[{index}].jsonPath"
        if path in seen:
            errors.append(statuses.duplicate(where, path))
        elif path[:1] not in {".", "["}:
            got = path.partition(".")[0]
            text = f"is an invalid path: expected [ or . but got: {got}"
            errors.append(statuses.invalid_value(where, path, text))
        elif path.startswith(".metadata.") or not _path_exists(path, schema):
            text = "is an invalid path: does not refer to a valid field"
            errors.append(statuses.invalid_value(where, path, text))
        seen.add(path)
    return errors


def _forbidden(at: str, text: str) -> statuses.FieldError:
    return statuses.FieldError("FieldValueForbidden", at, f"Forbidden: {text}")


def _structural_errors(schema: objects.JsonObject, at: str) -> list[statuses.FieldError]:
    """Check that a schema is structural: every node has a type, and there are no references."""
    errors = _rule_errors(schema, at)
    for keyword in _FORBIDDEN_KEYWORDS:
        if keyword in schema:
            errors.append(_forbidden(f"{at}.{keyword}", f"{keyword} is not supported"))
    errors += _junctor_errors(schema, at)
    if (
        schema.get("x-kubernetes-embedded-resource")
        and not schema.get("x-kubernetes-preserve-unknown-fields")
        and not schema.get("properties")
    ):
        text = "must not be empty if x-kubernetes-embedded-resource is true without "
        field = f"{at}.properties"
        errors.append(statuses.required(field, f"{text}x-kubernetes-preserve-unknown-fields"))
    for name, child in (schema.get("properties") or {}).items():
        errors += _node_errors(child, f"{at}.properties[{name}]", "object fields")
    for keyword, what in (("items", "array items"), ("additionalProperties", "object fields")):
        if isinstance(schema.get(keyword), dict):
            errors += _node_errors(schema[keyword], f"{at}.{keyword}", what)
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        errors.append(statuses.required(f"{at}.items", "must be specified"))
    return errors


def _junctor_errors(schema: objects.JsonObject, at: str) -> Iterator[statuses.FieldError]:
    """Check the schemas below `allOf`, `anyOf`, `oneOf` and `not`, which may not add structure."""
    for junctor in _JUNCTORS:
        if _is_int_or_string(schema, junctor):
            continue
        for index, inner in enumerate(schema.get(junctor) or ()):
            yield from _nested_errors(inner, f"{at}.{junctor}[{index}]")
    if isinstance(schema.get("not"), dict):
        yield from _nested_errors(schema["not"], f"{at}.not")


def _is_int_or_string(schema: objects.JsonObject, junctor: str) -> bool:
    """Return whether the keyword lists the two types of an int-or-string field."""
    if not schema.get("x-kubernetes-int-or-string"):
        return False
    first = (schema.get("allOf") or [{}])[0]
    found = {"anyOf": schema.get("anyOf"), "allOf": first.get("anyOf")}.get(junctor)
    return found == _INT_OR_STRING


def _nested_errors(schema: objects.JsonObject, at: str) -> Iterator[statuses.FieldError]:
    for keyword, wanted in _NOT_IN_JUNCTORS.items():
        if schema.get(keyword):
            yield _forbidden(f"{at}.{keyword}", f"must be {wanted} to be structural")
    for name, child in (schema.get("properties") or {}).items():
        yield from _nested_errors(child, f"{at}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _nested_errors(schema["items"], f"{at}.items")
    yield from _junctor_errors(schema, at)


def _rule_errors(schema: objects.JsonObject, at: str) -> list[statuses.FieldError]:
    errors: list[statuses.FieldError] = []
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        field = f"{at}.x-kubernetes-validations[{index}]"
        if not rule.get("rule"):
            errors.append(statuses.required(f"{field}.rule", "rule is not specified"))
            continue
        errors += _message_errors(rule, field)
        reason, path = rule.get("reason"), rule.get("fieldPath")
        if reason is not None and reason not in _REASONS:
            errors.append(statuses.unsupported_value(f"{field}.reason", reason, _REASONS))
        if path and not _path_exists(path, schema):
            errors.append(
                statuses.invalid_value(f"{field}.fieldPath", path, "must be a valid path")
            )
        if rule.get("optionalOldSelf") is not None and not cel.uses_old_self(rule["rule"]):
            text = "may not be set if oldSelf is not used in rule"
            shown = rule["optionalOldSelf"]
            errors.append(statuses.invalid_value(f"{field}.optionalOldSelf", shown, text))
        if fault := cel.compile_error(rule["rule"]):
            text = f"compilation failed: {fault}"
            errors.append(statuses.invalid_value(f"{field}.rule", _go_rule(rule), text))
    return errors


def _message_errors(rule: objects.JsonObject, at: str) -> list[statuses.FieldError]:
    message = rule.get("message")
    errors = []
    if message and not message.strip():
        errors.append(
            statuses.invalid_value(f"{at}.message", message, "must be non-empty if specified")
        )
    elif message and "\n" in message.strip():
        errors.append(
            statuses.invalid_value(f"{at}.message", message, "must not contain line breaks")
        )
    elif not message and "\n" in rule["rule"].strip():
        text = "message must be specified if rule contains line breaks"
        errors.append(statuses.required(f"{at}.message", text))
    expression = rule.get("messageExpression")
    if expression and (fault := cel.compile_error(expression)):
        text = f"messageExpression compilation failed: {fault}"
        errors.append(statuses.invalid_value(f"{at}.messageExpression", _go_rule(rule), text))
    return errors


def _path_exists(path: str, schema: objects.JsonObject) -> bool:
    """Return whether the schema has the field of a path such as `.a.b`."""
    for step in path.removeprefix(".").split("."):
        found = (schema.get("properties") or {}).get(step) or schema.get("additionalProperties")
        if not isinstance(found, dict):
            return False
        schema = found
    return True


def _go_rule(rule: objects.JsonObject) -> objects.JsonObject:
    """Return a validation rule as Go prints it."""
    return {
        "Rule": rule["rule"],
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _node_errors(schema: dict[str, Any], at: str, what: str) -> list[statuses.FieldError]:
    untyped = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    missing = not schema.get("type") and not untyped
    if schema.get("type") not in {None, "", *_TYPES}:
        return [statuses.unsupported_value(f"{at}.type", schema["type"], _TYPES)]
    text = f"must not be empty for specified {what}"
    errors = [statuses.required(f"{at}.type", text)] if missing else []
    return errors + _structural_errors(schema, at)
