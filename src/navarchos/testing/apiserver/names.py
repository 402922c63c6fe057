"""Rules for names, labels and annotations (apimachinery's util/validation)."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from navarchos.testing.apiserver.objects import JsonObject, meta
from navarchos.testing.apiserver.status import FieldError, forbidden_field, invalid_value, required

__all__ = [
    "NameRule",
    "config_key",
    "dns_1035_label",
    "dns_label",
    "dns_subdomain",
    "path_segment",
    "validate_finalizer_names",
    "validate_label_value",
    "validate_labels",
    "validate_metadata",
    "validate_qualified_name",
]

NameRule: TypeAlias = Callable[[str], list[str]]
"""Returns the errors of a name; empty if the name is valid."""

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = _LABEL + r"(\." + _LABEL + ")*"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_label_pattern = re.compile(_LABEL)
_label_1035_pattern = re.compile(_LABEL_1035)
_subdomain_pattern = re.compile(_SUBDOMAIN)
_qualified_pattern = re.compile(_QUALIFIED)

_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must"
    " start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for"
    f" validation is '{_LABEL}')"
)
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    f" regex used for validation is '{_LABEL_1035}')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for"
    f" validation is '{_SUBDOMAIN}')"
)
_QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    f" validation is '{_QUALIFIED}')"
)
_PREFIX_TEXT: Final = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    " '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',"
    "  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_key_pattern = re.compile("[-._a-zA-Z0-9]+")
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_MAX_ANNOTATIONS: Final = 256 * 1024


def dns_label(name: str) -> list[str]:
    """Check an RFC 1123 label: the names of namespaces, and names that become host names."""
    wrong = [] if len(name) <= 63 else ["must be no more than 63 characters"]
    return wrong if _label_pattern.fullmatch(name) else [*wrong, _LABEL_TEXT]


def dns_1035_label(name: str) -> list[str]:
    """Check a label that begins with a letter: the names of custom kinds."""
    wrong = [] if len(name) <= 63 else ["must be no more than 63 characters"]
    return wrong if _label_1035_pattern.fullmatch(name) else [*wrong, _LABEL_1035_TEXT]


def dns_subdomain(name: str) -> list[str]:
    """Check an RFC 1123 subdomain: most names."""
    wrong = [] if len(name) <= 253 else ["must be no more than 253 characters"]
    return wrong if _subdomain_pattern.fullmatch(name) else [*wrong, _SUBDOMAIN_TEXT]


def config_key(key: str) -> list[str]:
    """Check a key of a ConfigMap or a Secret, which may become the name of a file."""
    wrong = [] if len(key) <= 253 else ["must be no more than 253 characters"]
    if not _key_pattern.fullmatch(key):
        return [*wrong, _KEY_TEXT]
    if key == "." or key.startswith(".."):
        return [
            *wrong,
            f"must not be '{key}'" if key in {".", ".."} else "must not start with '..'",
        ]
    return wrong


def path_segment(name: str) -> list[str]:
    """Check that a name can be a part of a URL, as the names of RBAC objects must."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in name]


def validate_qualified_name(key: str) -> list[str]:
    """Check the key of a label, annotation, taint or finalizer."""
    prefix, slash, name = key.rpartition("/")
    if key.count("/") > 1:
        return [f"a valid label key {_QUALIFIED_TEXT.removeprefix('name part ')}{_PREFIX_TEXT}"]
    wrong = []
    if slash and not prefix:
        wrong.append("prefix part must be non-empty")
    elif slash:
        wrong += [f"prefix part {text}" for text in dns_subdomain(prefix)]
    if not name:
        wrong.append("name part must be non-empty")
    elif len(name) > 63:
        wrong.append("name part must be no more than 63 characters")
    if not _qualified_pattern.fullmatch(name):
        wrong.append(_QUALIFIED_TEXT)
    return wrong


def validate_label_value(value: str) -> list[str]:
    """Check the value of a label."""
    wrong = [] if len(value) <= 63 else ["must be no more than 63 characters"]
    fine = not value or _qualified_pattern.fullmatch(value)
    return wrong if fine else [*wrong, _LABEL_VALUE_TEXT]


def validate_labels(labels: Mapping[str, Any], field: str) -> list[FieldError]:
    """Check keys and values of labels."""
    errors = []
    for key, value in labels.items():
        errors += [invalid_value(field, key, why) for why in validate_qualified_name(key)]
        errors += [invalid_value(field, value, why) for why in validate_label_value(value or "")]
    return errors


def validate_metadata(obj: JsonObject, rule: NameRule, *, namespaced: bool) -> list[FieldError]:
    """Check `metadata` of an object that is about to be stored."""
    metadata = meta(obj)
    errors: list[FieldError] = []
    generate = metadata.get("generateName") or ""
    if generate:
        errors += [
            invalid_value("metadata.generateName", generate, why)
            for why in rule(generate.rstrip("-") if generate.endswith("-") else generate)
        ]
    name = metadata.get("name") or ""
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        errors += [invalid_value("metadata.name", name, why) for why in rule(name)]
    if namespaced and not metadata.get("namespace"):
        errors.append(required("metadata.namespace"))
    elif not namespaced and metadata.get("namespace"):
        errors.append(forbidden_field("metadata.namespace", "not allowed on this type"))
    errors += validate_labels(metadata.get("labels") or {}, "metadata.labels")
    return (
        errors
        + _annotation_errors(metadata)
        + _owner_errors(metadata)
        + _finalizer_errors(metadata)
    )


def _annotation_errors(metadata: JsonObject) -> list[FieldError]:
    errors = []
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        wrong = validate_qualified_name(key.lower())
        errors += [invalid_value("metadata.annotations", key, why) for why in wrong]
    size = sum(len(k) + len(v or "") for k, v in annotations.items())
    if size > _MAX_ANNOTATIONS:
        text = f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes"
        errors.append(FieldError("FieldValueTooLong", "metadata.annotations", text))
    return errors


def _owner_errors(metadata: JsonObject) -> list[FieldError]:
    errors = []
    controllers: list[JsonObject] = []
    for owner in metadata.get("ownerReferences") or []:
        field = "metadata.ownerReferences"  # upstream does not write the index
        for key, text in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not owner.get(key):
                errors.append(invalid_value(f"{field}.{key}", owner.get(key) or "", text))
        if owner.get("controller"):
            controllers.append(owner)
    if len(controllers) > 1:
        text = (
            'Only one reference can have Controller set to true. Found "true" in references for'
            f" {controllers[0].get('kind')}/{controllers[0].get('name')} and"
            f" {controllers[1].get('kind')}/{controllers[1].get('name')}"
        )
        errors.append(invalid_value("metadata.ownerReferences", metadata["ownerReferences"], text))
    return errors


def validate_finalizer_names(obj: JsonObject) -> list[FieldError]:
    """Check that finalizers of a built-in kind have a prefix, as in `example.com/name`."""
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid_value(f"metadata.finalizers[{index}]", name, why)
        for index, name in enumerate(meta(obj).get("finalizers") or [])
        if "/" not in name and name not in _STANDARD_FINALIZERS
    ]


def _finalizer_errors(metadata: JsonObject) -> list[FieldError]:
    errors = []
    for finalizer in metadata.get("finalizers") or []:
        wrong = validate_qualified_name(finalizer)
        errors += [invalid_value("metadata.finalizers", finalizer, why) for why in wrong]
    return errors
