"""Deletion: preconditions, grace, finalizers and what becomes of dependents."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from navarchos.testing.apiserver.builtin.definitions import CLEANUP_FINALIZER, mark_terminating
from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import (
    JsonObject,
    JsonValue,
    copy_json,
    dig,
    meta,
    timestamp,
)
from navarchos.testing.apiserver.status import (
    ResourceName,
    StatusError,
    forbidden,
    invalid,
    precondition_failed,
    unsupported_value,
)
from navarchos.testing.apiserver.store import BucketId, Entry
from navarchos.testing.apiserver.writing import Api, Options, require

__all__ = ["FOREGROUND", "ORPHAN", "Deletion", "check_preconditions", "delete", "read_deletion"]

FOREGROUND: Final = "foregroundDeletion"
"""The finalizer that waits for dependents."""

ORPHAN: Final = "orphan"
"""The finalizer that waits until dependents are set free."""

_PODS: Final = BucketId("pods", "")
_DEFINITIONS: Final = BucketId("customresourcedefinitions", "apiextensions.k8s.io")
_NAMESPACES: Final = BucketId("namespaces", "")
_UNDELETABLE: Final = frozenset({"default", "kube-system", "kube-public"})
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_POLICIES: Final = {"Background": "", "Foreground": FOREGROUND, "Orphan": ORPHAN}


@dataclass(frozen=True, slots=True)
class Deletion:
    """`DeleteOptions`, as far as they matter here.

    Attributes:
        grace: Seconds; `None` leaves it to the object.
        policy: `Background`, `Foreground`, `Orphan`, or empty for the kind's own.
        uid: The object must have this uid.
        version: The object must have this resourceVersion.
        legacy_cascade: The old `orphanDependents: false` was given.
    """

    grace: int | None = None
    policy: str = ""
    uid: str = ""
    version: str = ""
    legacy_cascade: bool = False


def read_deletion(body: JsonObject | None, query: dict[str, str]) -> Deletion:
    """Read delete options from the body, or from the query where there is none.

    Raises:
        StatusError: 422 for a policy that does not exist or contradicts itself.
    """
    source: JsonObject = body or {}
    grace: JsonValue = source.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    policy = source.get("propagationPolicy") or query.get("propagationPolicy") or ""
    orphan = source.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = query["orphanDependents"] == "true"
    if policy and policy not in _POLICIES:
        choices = ("Foreground", "Background", "Orphan", "nil")
        error = unsupported_value("propagationPolicy", policy, choices)
        raise invalid("DeleteOptions", "meta.k8s.io", "", [error])
    if policy and orphan is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        raise StatusError(
            422, "Invalid", f'DeleteOptions.meta.k8s.io "" is invalid: {text}', details={}
        )
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    conditions = source.get("preconditions") or {}
    return Deletion(
        grace=None if grace is None else int(grace),
        policy=policy,
        uid=conditions.get("uid") or "",
        version=conditions.get("resourceVersion") or "",
        legacy_cascade=orphan is False,
    )


def delete(
    api: Api, kind: Kind, namespace: str, name: str, deletion: Deletion, options: Options
) -> tuple[Entry, bool]:
    """Delete an object, or begin to.

    Returns:
        Its last state, and whether it is gone. It is not while it has finalizers
        or, for a pod on a node, while its grace runs.

    Raises:
        StatusError: 404, or 409 for a precondition. Nothing changes.
    """
    with api.store.transaction():
        entry = require(api, kind, namespace, name)
        if kind.bucket == _NAMESPACES and name in _UNDELETABLE:
            raise forbidden(kind.resource, name, "this namespace may not be deleted")
        check_preconditions(kind, entry, deletion)
        grace = _grace(kind, entry.obj, deletion)
        finalizers = _finalizers(kind, entry.obj, deletion)
        waits = bool(finalizers) or bool(dig(entry.obj, "spec", "finalizers")) or grace > 0
        if not waits:
            if options.dry_run:
                return entry, True
            if kind.bucket == _PODS:  # watches see even those with no time left marked first
                entry = api.store.put(
                    kind.bucket,
                    _marked(entry.obj, 0, [], at=api.store.clock.now()),
                    origin=options.origin,
                )
            return api.store.remove(kind.bucket, entry.key, origin=options.origin), True
        marked = _marked(entry.obj, grace, finalizers, at=api.store.clock.now())
        if options.dry_run or marked == entry.obj:
            return Entry(marked, entry.version), False
        return api.store.put(kind.bucket, marked, origin=options.origin), False


def check_preconditions(kind: Kind, entry: Entry, deletion: Deletion) -> None:
    """Raise 409 when the object is not the one that was meant."""
    shown, version = ResourceName(kind.group, kind.kind), str(entry.version)
    if deletion.uid and deletion.uid != entry.uid:
        raise precondition_failed(shown, entry.name, "UID", deletion.uid, entry.uid)
    if deletion.version and deletion.version != version:
        raise precondition_failed(shown, entry.name, "ResourceVersion", deletion.version, version)


def _grace(kind: Kind, obj: JsonObject, deletion: Deletion) -> int:
    """Return the seconds that a pod gets; other kinds have no grace."""
    if kind.bucket != _PODS:
        return 0
    if not dig(obj, "spec", "nodeName") or dig(obj, "status", "phase") in _FINISHED:
        return 0
    own = dig(obj, "spec", "terminationGracePeriodSeconds", default=30)
    grace = own if deletion.grace is None else deletion.grace
    # Negative means "as short as can be without being forced" upstream.
    return 1 if grace < 0 else int(grace)


def _finalizers(kind: Kind, obj: JsonObject, deletion: Deletion) -> list[str]:
    kept = list(meta(obj).get("finalizers") or [])
    if kind.bucket == _DEFINITIONS and CLEANUP_FINALIZER not in kept:
        kept.append(CLEANUP_FINALIZER)
    policy = deletion.policy
    if not policy:
        if ORPHAN in kept or FOREGROUND in kept:
            return kept
        policy = "Orphan" if kind.strategy.orphans else "Background"
    kept = [name for name in kept if name not in {ORPHAN, FOREGROUND}]
    added = _POLICIES[policy]
    return [*kept, added] if added else kept


def _marked(obj: JsonObject, grace: int, finalizers: list[str], *, at: datetime) -> JsonObject:
    """Return the object marked for deletion; a second call can only shorten the wait.

    Args:
        obj: As it is stored.
        grace: Seconds that are left to it.
        finalizers: Those that it is to have.
        at: The present time.
    """
    marked: JsonObject = copy_json(obj)
    metadata = marked["metadata"]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    first = "deletionTimestamp" not in metadata
    # Upstream's store of definitions marks them itself: no grace, no new generation.
    is_definition = marked.get("kind") == "CustomResourceDefinition"
    if first or grace < int(metadata.get("deletionGracePeriodSeconds") or 0):
        metadata["deletionTimestamp"] = timestamp(at + timedelta(seconds=grace))
        if not is_definition:
            metadata["deletionGracePeriodSeconds"] = grace
    if first and metadata.get("generation") and not is_definition:
        metadata["generation"] += 1
    if dig(marked, "spec", "finalizers") and marked.get("kind") == "Namespace":
        marked["status"] = {**(marked.get("status") or {}), "phase": "Terminating"}
    if first and is_definition:
        mark_terminating(marked)
    return marked
