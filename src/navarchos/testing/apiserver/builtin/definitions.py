"""CustomResourceDefinitions as objects: defaults, checks, conditions."""

from typing import Final

from navarchos.testing.apiserver.builtin.structural import schema_errors, selectable_errors
from navarchos.testing.apiserver.kinds import Strategy
from navarchos.testing.apiserver.names import dns_1035_label
from navarchos.testing.apiserver.objects import JsonObject, dig, meta, timestamp
from navarchos.testing.apiserver.status import (
    FieldError,
    duplicate,
    invalid_value,
    required,
    unsupported_value,
)

__all__ = [
    "CLEANUP_FINALIZER",
    "DEFINITION",
    "accept_names",
    "is_established",
    "mark_terminating",
    "refuse_names",
]

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
"""Holds a deleted definition until its objects are gone."""


def _default(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind"):
        names["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})


def _prepare_create(obj: JsonObject) -> None:
    """Accept the names at once: upstream takes a moment, and ends here too."""
    obj["status"] = _status_for(obj, timestamp())


def _prepare_update(new: JsonObject, old: JsonObject) -> None:
    status = dict(old.get("status") or {})
    status["acceptedNames"] = new["spec"]["names"]
    stored = _storage_version(new)
    versions = list(status.get("storedVersions") or [])
    if stored not in versions:
        versions.append(stored)
    status["storedVersions"] = versions
    new["status"] = status


def mark_terminating(obj: JsonObject) -> None:
    """Say, in place, that a definition is on its way out."""
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    conditions.append(_condition("Terminating", "InstanceDeletionPending", text, timestamp()))


def refuse_names(
    obj: JsonObject, accepted: JsonObject, reason: str, message: str, *, established: bool
) -> None:
    """Say, in place, that not all names of a definition are accepted.

    Args:
        obj: The definition.
        accepted: The names that are.
        reason: Why not all, as a condition has it.
        message: The same for people.
        established: Whether it is served, under names that it had before.
    """
    now = timestamp()
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


def accept_names(obj: JsonObject) -> None:
    """Say, in place, that all names of a definition are accepted, and it is served."""
    stored = dig(obj, "status", "storedVersions")
    obj["status"] = _status_for(obj, timestamp())
    if stored:
        obj["status"]["storedVersions"] = stored


def is_established(obj: JsonObject) -> bool:
    """Return whether a definition was ever served."""
    found = _established(obj)
    return found is not None and found["status"] == "True"


def _established(obj: JsonObject) -> JsonObject | None:
    conditions = dig(obj, "status", "conditions", default=())
    return next((c for c in conditions if c.get("type") == "Established"), None)


def _condition(
    kind: str, reason: str, message: str, now: str, *, status: str = "True"
) -> JsonObject:
    return {
        "type": kind, "status": status, "lastTransitionTime": now,
        "reason": reason, "message": message,
    }  # fmt: skip


def _status_for(obj: JsonObject, now: str) -> JsonObject:
    accepted = "the initial names have been accepted"
    return {
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
            _condition("Established", "InitialNamesAccepted", accepted, now),
        ],
        "acceptedNames": obj["spec"]["names"],
        "storedVersions": [_storage_version(obj)],
    }


def _storage_version(obj: JsonObject) -> str:
    versions = obj["spec"].get("versions") or []
    return next((v["name"] for v in versions if v.get("storage")), "")


def _validate(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    names = spec["names"]
    errors = []
    plural, group = names.get("plural") or "", spec.get("group") or ""
    if meta(obj).get("name") != f"{plural}.{group}":
        text = 'must be spec.names.plural+"."+spec.group'
        errors.append(invalid_value("metadata.name", meta(obj).get("name"), text))
    for field, value in (("spec.group", group), ("spec.names.plural", plural)):
        if not value:
            errors.append(required(field))
    errors += _name_errors(names)
    if group and "." not in group:
        errors.append(
            invalid_value("spec.group", group, "should be a domain with at least one dot")
        )
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        choices = ("Cluster", "Namespaced")
        errors.append(unsupported_value("spec.scope", spec.get("scope") or "", choices))
    return errors + _version_errors(spec.get("versions") or []) + _stored_errors(obj)


def _name_errors(names: JsonObject) -> list[FieldError]:
    errors = []
    for field in ("plural", "singular"):
        name = names.get(field) or ""
        wrong = dns_1035_label(name) if name else []
        errors += [invalid_value(f"spec.names.{field}", name, why) for why in wrong]
    name = names.get("kind") or ""
    if not name:
        errors.append(required("spec.names.kind"))
    for why in dns_1035_label(name.lower()) if name else []:
        text = f"may have mixed case, but should otherwise match: {why}"
        errors.append(invalid_value("spec.names.kind", name, text))
    return errors


def _version_errors(versions: list[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", versions, text))
        if not any(version.get("storage") for version in versions):
            text = "must have at least one stored version"
            errors.append(invalid_value("status.storedVersions", None, text))
    seen: set[str] = set()
    shared = all(version.get("schema") == versions[0].get("schema") for version in versions)
    for index, version in enumerate(versions):
        at = f"spec.versions[{index}]"
        # Upstream lifts what all versions have in common out of them before it looks.
        where = "spec.validation" if shared else f"{at}.schema"
        own = "spec" if len(versions) == 1 else at
        if version.get("name") in seen:
            errors.append(duplicate(f"{at}.name", version.get("name")))
        seen.add(version.get("name") or "")
        schema = dig(version, "schema", "openAPIV3Schema")
        if schema is None:
            errors.append(required(f"{at}.schema.openAPIV3Schema"))
        else:
            errors += schema_errors(schema, f"{where}.openAPIV3Schema")
        fields = version.get("selectableFields") or []
        errors += selectable_errors(fields, schema or {}, f"{own}.selectableFields")
        warning = version.get("deprecationWarning")
        if warning and not version.get("deprecated"):
            text = "can only be set for deprecated versions"
            errors.append(invalid_value(f"{at}.deprecationWarning", warning, text))
    return errors


def _stored_errors(obj: JsonObject) -> list[FieldError]:
    """Refuse to forget a version that objects are, or may still be, stored in."""
    versions = obj["spec"].get("versions") or []
    named = {version.get("name") for version in versions}
    listed = dig(obj, "status", "storedVersions", default=()) or ()
    unlisted = [
        invalid_value(
            "status.storedVersions", list(listed), f"must have the storage version {each['name']}"
        )
        for each in versions
        if listed and each.get("storage") and each.get("name") not in listed
    ]
    return unlisted + [
        invalid_value(
            f"status.storedVersions[{index}]",
            stored,
            f"missing from spec.versions; {stored} was previously a storage version, and must "
            "remain in spec.versions until a storage migration ensures no data remains persisted "
            f"in {stored} and removes {stored} from status.storedVersions",
        )
        for index, stored in enumerate(listed)
        if stored and stored not in named
    ]


DEFINITION: Final = Strategy(
    generation=True,
    unconditional_update=False,
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
)
