"""Deletion: options, preconditions, grace period, finalizers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from navarchos.testing.apiserver import bodies, kinds, objects, requests, store, writes
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.builtin.definitions import CLEANUP_FINALIZER, mark_terminating
from navarchos.testing.apiserver.types import TYPES

__all__ = [
    "FINALIZERS_BY_POLICY",
    "FOREGROUND",
    "ORPHAN",
    "DeleteOptions",
    "check_delete_options",
    "check_preconditions",
    "delete",
    "parse_delete_options",
    "read_delete_options",
]

FOREGROUND: Final = "foregroundDeletion"
"""The finalizer of an object that waits for the deletion of its dependents."""

ORPHAN: Final = "orphan"
"""The finalizer of an object that waits until its dependents are orphaned."""

FINALIZERS_BY_POLICY: Final = {"Foreground": FOREGROUND, "Background": "", "Orphan": ORPHAN}
"""The propagation policies, each with the finalizer that it adds."""

_SCHEMA: Final = TYPES.schema("meta.DeleteOptions")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The `DeleteOptions` of a request.

    Attributes:
        grace: The grace period in seconds; `None` for the object's own.
        policy: `Background`, `Foreground`, `Orphan`, or empty for the default of the kind.
        uid: The uid that the object must have.
        version: The resourceVersion that the object must have.
        legacy_cascade: The options have the old `orphanDependents: false`.
        dry_run: Check everything, and delete nothing.
        errors: The errors in the options.
    """

    grace: int | None = None
    policy: str = ""
    uid: str = ""
    version: str = ""
    legacy_cascade: bool = False
    dry_run: bool = False
    errors: tuple[statuses.FieldError, ...] = ()


def read_delete_options(content_type: str, raw: bytes, query: Mapping[str, str]) -> DeleteOptions:
    """Read the options from the body, or from the query if there is no body.

    Raises:
        StatusError: 400 for a body that has no options, 422 for invalid options.
    """
    if not raw:
        return _checked(_from_query(query))
    body = requests.read_body(content_type, raw)
    if not isinstance(body, dict):
        raise statuses.bad_request("expected delete options")
    if body.get("kind") not in {None, "DeleteOptions"}:
        text = f'no kind "{body["kind"]}" is registered for version "{body.get("apiVersion")}"'
        raise statuses.bad_request(f'{text} in scheme "pkg/runtime/scheme.go:111"')
    try:
        bodies.check_types(body, _SCHEMA, owner="DeleteOptions")
    except bodies.BodyDecodeError as fault:
        raise statuses.bad_request(str(fault)) from fault
    return _checked(body)


def _checked(options: objects.JsonObject) -> DeleteOptions:
    deletion = parse_delete_options(options)
    check_delete_options(deletion)
    return deletion


def _from_query(query: Mapping[str, str]) -> objects.JsonObject:
    """Return the options of a query as a body has them (apimachinery's meta/v1/conversion.go)."""
    found: objects.JsonObject = {key: query[key] for key in ("propagationPolicy",) if key in query}
    if "gracePeriodSeconds" in query:
        found["gracePeriodSeconds"] = requests.read_number(query, "gracePeriodSeconds")
    if "orphanDependents" in query:
        found["orphanDependents"] = requests.read_flag(query, "orphanDependents")
    if "dryRun" in query:
        found["dryRun"] = [query["dryRun"]]
    found["preconditions"] = {
        key: query[key] for key in ("uid", "resourceVersion") if query.get(key)
    }
    return found


def parse_delete_options(options: objects.JsonObject) -> DeleteOptions:
    """Return the options of a body with their errors; `check_delete_options` raises those."""
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    dry_run: list[objects.JsonValue] = options.get("dryRun") or []
    errors = []
    if policy is not None and orphan is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(statuses.invalid_value("propagationPolicy", policy, text))
    if policy is not None and policy not in FINALIZERS_BY_POLICY:
        errors.append(
            statuses.unsupported_value("propagationPolicy", policy, (*FINALIZERS_BY_POLICY, "nil"))
        )
    if any(value != "All" for value in dry_run):
        errors.append(statuses.unsupported_value("dryRun", dry_run, ("All",)))
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    conditions = options.get("preconditions") or {}
    return DeleteOptions(
        grace=options.get("gracePeriodSeconds"),
        policy=policy or "",
        uid=conditions.get("uid") or "",
        version=conditions.get("resourceVersion") or "",
        legacy_cascade=orphan is False,
        dry_run=bool(dry_run),
        errors=tuple(errors),
    )


def check_delete_options(deletion: DeleteOptions) -> None:
    """Raise 422 if an option has an unknown value, or if two options contradict each other."""
    if deletion.errors:
        raise statuses.invalid("DeleteOptions", "meta.k8s.io", "", deletion.errors)


_PODS: Final = store.BucketId("pods", "")
_DEFINITIONS: Final = store.BucketId("customresourcedefinitions", "apiextensions.k8s.io")
_NAMESPACES: Final = store.BucketId("namespaces", "")
_UNDELETABLE: Final = frozenset({"default", "kube-system", "kube-public"})
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def delete(
    api: writes.Api, target: requests.Target, deletion: DeleteOptions, options: writes.WriteOptions
) -> tuple[store.Entry, bool]:
    """Delete an object, or mark it for deletion.

    Returns:
        The last state of the object, and whether it is gone. An object with finalizers is not, and
        neither is a pod on a node during its grace period.

    Raises:
        StatusError: 404; 409 for a precondition; 422 for invalid options. Nothing changes.
    """
    kind = target.kind
    with api.store.transaction():
        entry = writes.require(api, target)
        if kind.bucket == _NAMESPACES and target.name in _UNDELETABLE:
            raise statuses.forbidden(
                kind.resource, target.name, "this namespace may not be deleted"
            )
        check_delete_options(deletion)
        check_preconditions(kind, entry, deletion)
        grace = _grace(kind, entry.obj, deletion)
        finalizers = _finalizers(kind, entry.obj, deletion)
        waits = bool(finalizers) or bool(objects.dig(entry.obj, "spec", "finalizers")) or grace > 0
        if not waits and kind.bucket != _PODS:
            if deletion.dry_run:
                return entry, True
            return api.store.remove(kind.bucket, entry.key, origin=options.origin), True
        marked = _marked(entry.obj, grace, finalizers, at=api.store.clock.now())
        if deletion.dry_run or (waits and marked == entry.obj):
            return store.Entry(marked, entry.version), not waits
        entry = api.store.put(kind.bucket, marked, origin=options.origin)
        if waits:
            return entry, False
        # As upstream, watches see a pod marked for deletion before they see it deleted.
        return api.store.remove(kind.bucket, entry.key, origin=options.origin), True


def check_preconditions(kind: kinds.Kind, entry: store.Entry, deletion: DeleteOptions) -> None:
    """Raise 409 if the object does not meet the preconditions."""
    shown, version = statuses.ResourceName(kind.group, kind.kind), str(entry.version)
    if deletion.uid and deletion.uid != entry.uid:
        raise statuses.precondition_failed(shown, entry.name, "UID", deletion.uid, entry.uid)
    if deletion.version and deletion.version != version:
        raise statuses.precondition_failed(
            shown, entry.name, "ResourceVersion", deletion.version, version
        )


def _grace(kind: kinds.Kind, obj: objects.JsonObject, deletion: DeleteOptions) -> int:
    """Return the grace period of a pod in seconds; other kinds have none."""
    if kind.bucket != _PODS:
        return 0
    if not objects.dig(obj, "spec", "nodeName") or objects.dig(obj, "status", "phase") in _FINISHED:
        return 0
    own = objects.dig(obj, "spec", "terminationGracePeriodSeconds", default=30)
    grace = own if deletion.grace is None else deletion.grace
    # Upstream takes a negative value for the shortest period that is not forced.
    return 1 if grace < 0 else int(grace)


def _finalizers(kind: kinds.Kind, obj: objects.JsonObject, deletion: DeleteOptions) -> list[str]:
    kept = list(objects.meta(obj).get("finalizers") or [])
    if kind.bucket == _DEFINITIONS and CLEANUP_FINALIZER not in kept:
        kept.append(CLEANUP_FINALIZER)
    policy = deletion.policy
    if not policy:
        if ORPHAN in kept or FOREGROUND in kept:
            return kept
        policy = "Orphan" if kind.strategy.orphans else "Background"
    kept = [name for name in kept if name not in {ORPHAN, FOREGROUND}]
    added = FINALIZERS_BY_POLICY[policy]
    return [*kept, added] if added else kept


def _marked(
    obj: objects.JsonObject, grace: int, finalizers: list[str], *, at: datetime
) -> objects.JsonObject:
    """Return the object marked for deletion; marking it again can only shorten the wait.

    Args:
        obj: The stored object.
        grace: The grace period in seconds.
        finalizers: The finalizers of the marked object.
        at: The current time.
    """
    marked: objects.JsonObject = objects.copy_json(obj)
    metadata = marked["metadata"]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    first = "deletionTimestamp" not in metadata
    # Upstream marks definitions in their own store, without grace period and generation.
    is_definition = marked.get("kind") == "CustomResourceDefinition"
    if first or grace < int(metadata.get("deletionGracePeriodSeconds") or 0):
        metadata["deletionTimestamp"] = objects.timestamp(at + timedelta(seconds=grace))
        if not is_definition:
            metadata["deletionGracePeriodSeconds"] = grace
    if first and metadata.get("generation") and not is_definition:
        metadata["generation"] += 1
    if objects.dig(marked, "spec", "finalizers") and marked.get("kind") == "Namespace":
        marked["status"] = {**(marked.get("status") or {}), "phase": "Terminating"}
    if first and is_definition:
        mark_terminating(marked)
    return marked
