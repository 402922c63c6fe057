"""How a deletion is meant: `DeleteOptions`, from a body or a query."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from navarchos.testing.apiserver.decoding import DecodeFault, check_types
from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.requests import read_body, read_flag, read_number
from navarchos.testing.apiserver.status import (
    FieldError,
    bad_request,
    invalid,
    invalid_value,
    unsupported_value,
)
from navarchos.testing.apiserver.types import TYPES

__all__ = [
    "FOREGROUND",
    "ORPHAN",
    "POLICIES",
    "Deletion",
    "deletion_of",
    "read_deletion",
    "refuse_nonsense",
]

FOREGROUND: Final = "foregroundDeletion"
"""The finalizer that waits for dependents."""

ORPHAN: Final = "orphan"
"""The finalizer that waits until dependents are set free."""

POLICIES: Final = {"Foreground": FOREGROUND, "Background": "", "Orphan": ORPHAN}
"""What may become of dependents, and the finalizer that sees to it."""

_SCHEMA: Final = TYPES.schema("meta.DeleteOptions")


@dataclass(frozen=True, slots=True)
class Deletion:
    """`DeleteOptions`, as far as they matter here.

    Attributes:
        grace: Seconds; `None` leaves it to the object.
        policy: `Background`, `Foreground`, `Orphan`, or empty for the kind's own.
        uid: The object must have this uid.
        version: The object must have this resourceVersion.
        legacy_cascade: The old `orphanDependents: false` was given.
        dry_run: Everything is checked, nothing is deleted.
        errors: Why the options make no sense.
    """

    grace: int | None = None
    policy: str = ""
    uid: str = ""
    version: str = ""
    legacy_cascade: bool = False
    dry_run: bool = False
    errors: tuple[FieldError, ...] = ()


def read_deletion(content_type: str, raw: bytes, query: Mapping[str, str]) -> Deletion:
    """Read the options of a request; where there is a body its query says nothing.

    Raises:
        StatusError: 400 for what are no options, 422 for those that make no sense.
    """
    if not raw:
        return _sensible(_from_query(query))
    body = read_body(content_type, raw)
    if not isinstance(body, dict):
        raise bad_request("expected delete options")
    if body.get("kind") not in {None, "DeleteOptions"}:
        text = f'no kind "{body["kind"]}" is registered for version "{body.get("apiVersion")}"'
        raise bad_request(f'{text} in scheme "pkg/runtime/scheme.go:111"')
    try:
        check_types(body, _SCHEMA, owner="DeleteOptions")
    except DecodeFault as fault:
        raise bad_request(str(fault)) from fault
    return _sensible(body)


def _sensible(options: JsonObject) -> Deletion:
    deletion = deletion_of(options)
    refuse_nonsense(deletion)
    return deletion


def _from_query(query: Mapping[str, str]) -> JsonObject:
    """Return options as a body would have them (apimachinery's meta/v1/conversion.go)."""
    found: JsonObject = {key: query[key] for key in ("propagationPolicy",) if key in query}
    if "gracePeriodSeconds" in query:
        found["gracePeriodSeconds"] = read_number(query, "gracePeriodSeconds")
    if "orphanDependents" in query:
        found["orphanDependents"] = read_flag(query, "orphanDependents")
    if "dryRun" in query:
        found["dryRun"] = [query["dryRun"]]
    found["preconditions"] = {
        key: query[key] for key in ("uid", "resourceVersion") if query.get(key)
    }
    return found


def deletion_of(options: JsonObject) -> Deletion:
    """Return what options mean; `refuse_nonsense` refuses those that mean nothing."""
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    dry_run: list[JsonValue] = options.get("dryRun") or []
    errors = []
    if policy is not None and orphan is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid_value("propagationPolicy", policy, text))
    if policy is not None and policy not in POLICIES:
        errors.append(unsupported_value("propagationPolicy", policy, (*POLICIES, "nil")))
    if any(value != "All" for value in dry_run):
        errors.append(unsupported_value("dryRun", dry_run, ("All",)))
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    conditions = options.get("preconditions") or {}
    return Deletion(
        grace=options.get("gracePeriodSeconds"),
        policy=policy or "",
        uid=conditions.get("uid") or "",
        version=conditions.get("resourceVersion") or "",
        legacy_cascade=orphan is False,
        dry_run=bool(dry_run),
        errors=tuple(errors),
    )


def refuse_nonsense(deletion: Deletion) -> None:
    """Raise 422 when options have values that do not exist or contradict each other."""
    if deletion.errors:
        raise invalid("DeleteOptions", "meta.k8s.io", "", deletion.errors)
