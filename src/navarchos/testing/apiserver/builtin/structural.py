"""What makes the schema of a custom kind structural, and what its rules may say.

After apiextensions-apiserver pkg/apiserver/schema/validation.go, and validation of
definitions around it.
"""

from collections.abc import Iterator
from typing import Any, Final

from navarchos.testing.apiserver.cel import compile_fault, looks_back
from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.status import (
    FieldError,
    duplicate,
    invalid_value,
    required,
    unsupported_value,
)

__all__ = ["schema_errors", "selectable_errors"]

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
"""What only the structure itself may say, and what it has to be elsewhere."""


def schema_errors(schema: JsonObject, at: str) -> list[FieldError]:
    """Return what is wrong with a version's schema; `at` is its path in the definition."""
    errors: list[FieldError] = []
    if not schema.get("type"):
        errors.append(required(f"{at}.type", "must not be empty at the root"))
    elif schema["type"] != "object":
        errors.append(invalid_value(f"{at}.type", schema["type"], "must be object at the root"))
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    if set(metadata.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName, but metadata is"
        errors.append(_forbidden(f"{at}.properties[metadata]", f"{text} implicitly specified"))
    return errors + _structural_errors(schema, at)


def selectable_errors(fields: list[JsonObject], schema: JsonObject, at: str) -> list[FieldError]:
    """Return what is wrong with fields by which objects are to be chosen."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, field in enumerate(fields):
        path, where = field.get("jsonPath") or "", f"{at}[{index}].jsonPath"
        if path in seen:
            errors.append(duplicate(where, path))
        elif path[:1] not in {".", "["}:
            got = path.partition(".")[0]
            text = f"is an invalid path: expected [ or . but got: {got}"
            errors.append(invalid_value(where, path, text))
        elif path.startswith(".metadata.") or not _leads_somewhere(path, schema):
            text = "is an invalid path: does not refer to a valid field"
            errors.append(invalid_value(where, path, text))
        seen.add(path)
    return errors


def _forbidden(at: str, text: str) -> FieldError:
    return FieldError("FieldValueForbidden", at, f"Forbidden: {text}")


def _structural_errors(schema: JsonObject, at: str) -> list[FieldError]:
    """Check what makes a schema structural: a type on every node, no references."""
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
        errors.append(required(field, f"{text}x-kubernetes-preserve-unknown-fields"))
    for name, child in (schema.get("properties") or {}).items():
        errors += _node_errors(child, f"{at}.properties[{name}]", "object fields")
    for keyword, what in (("items", "array items"), ("additionalProperties", "object fields")):
        if isinstance(schema.get(keyword), dict):
            errors += _node_errors(schema[keyword], f"{at}.{keyword}", what)
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        errors.append(required(f"{at}.items", "must be specified"))
    return errors


def _junctor_errors(schema: JsonObject, at: str) -> Iterator[FieldError]:
    """Look at what is said of values beside the structure: it may not have one of its own."""
    for junctor in _JUNCTORS:
        if _is_int_or_string(schema, junctor):
            continue
        for index, inner in enumerate(schema.get(junctor) or ()):
            yield from _nested_errors(inner, f"{at}.{junctor}[{index}]")
    if isinstance(schema.get("not"), dict):
        yield from _nested_errors(schema["not"], f"{at}.not")


def _is_int_or_string(schema: JsonObject, junctor: str) -> bool:
    """Tell whether these are the two types that such a field may have."""
    if not schema.get("x-kubernetes-int-or-string"):
        return False
    first = (schema.get("allOf") or [{}])[0]
    found = {"anyOf": schema.get("anyOf"), "allOf": first.get("anyOf")}.get(junctor)
    return found == _INT_OR_STRING


def _nested_errors(schema: JsonObject, at: str) -> Iterator[FieldError]:
    for keyword, wanted in _NOT_IN_JUNCTORS.items():
        if schema.get(keyword):
            yield _forbidden(f"{at}.{keyword}", f"must be {wanted} to be structural")
    for name, child in (schema.get("properties") or {}).items():
        yield from _nested_errors(child, f"{at}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _nested_errors(schema["items"], f"{at}.items")
    yield from _junctor_errors(schema, at)


def _rule_errors(schema: JsonObject, at: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        field = f"{at}.x-kubernetes-validations[{index}]"
        if not rule.get("rule"):
            errors.append(required(f"{field}.rule", "rule is not specified"))
            continue
        errors += _message_errors(rule, field)
        reason, path = rule.get("reason"), rule.get("fieldPath")
        if reason is not None and reason not in _REASONS:
            errors.append(unsupported_value(f"{field}.reason", reason, _REASONS))
        if path and not _leads_somewhere(path, schema):
            errors.append(invalid_value(f"{field}.fieldPath", path, "must be a valid path"))
        if rule.get("optionalOldSelf") is not None and not looks_back(rule["rule"]):
            text = "may not be set if oldSelf is not used in rule"
            shown = rule["optionalOldSelf"]
            errors.append(invalid_value(f"{field}.optionalOldSelf", shown, text))
        if fault := compile_fault(rule["rule"]):
            text = f"compilation failed: {fault}"
            errors.append(invalid_value(f"{field}.rule", _go_rule(rule), text))
    return errors


def _message_errors(rule: JsonObject, at: str) -> list[FieldError]:
    message = rule.get("message")
    errors = []
    if message and not message.strip():
        errors.append(invalid_value(f"{at}.message", message, "must be non-empty if specified"))
    elif message and "\n" in message.strip():
        errors.append(invalid_value(f"{at}.message", message, "must not contain line breaks"))
    elif not message and "\n" in rule["rule"].strip():
        text = "message must be specified if rule contains line breaks"
        errors.append(required(f"{at}.message", text))
    expression = rule.get("messageExpression")
    if expression and (fault := compile_fault(expression)):
        text = f"messageExpression compilation failed: {fault}"
        errors.append(invalid_value(f"{at}.messageExpression", _go_rule(rule), text))
    return errors


def _leads_somewhere(path: str, schema: JsonObject) -> bool:
    """Return whether a path such as `.a.b` is one of fields that the schema has."""
    for step in path.removeprefix(".").split("."):
        found = (schema.get("properties") or {}).get(step) or schema.get("additionalProperties")
        if not isinstance(found, dict):
            return False
        schema = found
    return True


def _go_rule(rule: JsonObject) -> JsonObject:
    """Return a rule as Go prints it."""
    return {
        "Rule": rule["rule"],
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _node_errors(schema: dict[str, Any], at: str, what: str) -> list[FieldError]:
    untyped = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    missing = not schema.get("type") and not untyped
    if schema.get("type") not in {None, "", *_TYPES}:
        return [unsupported_value(f"{at}.type", schema["type"], _TYPES)]
    text = f"must not be empty for specified {what}"
    errors = [required(f"{at}.type", text)] if missing else []
    return errors + _structural_errors(schema, at)
