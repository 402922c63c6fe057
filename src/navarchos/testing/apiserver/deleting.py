"""Deletion: preconditions, grace, finalizers and what becomes of dependents."""

from datetime import datetime, timedelta
from typing import Final

from navarchos.testing.apiserver.builtin.definitions import CLEANUP_FINALIZER, mark_terminating
from navarchos.testing.apiserver.deleteoptions import (
    FOREGROUND,
    ORPHAN,
    POLICIES,
    Deletion,
    refuse_nonsense,
)
from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import (
    JsonObject,
    copy_json,
    dig,
    meta,
    timestamp,
)
from navarchos.testing.apiserver.status import (
    ResourceName,
    forbidden,
    precondition_failed,
)
from navarchos.testing.apiserver.store import BucketId, Entry
from navarchos.testing.apiserver.writing import Api, Options, require

__all__ = ["check_preconditions", "delete"]

_PODS: Final = BucketId("pods", "")
_DEFINITIONS: Final = BucketId("customresourcedefinitions", "apiextensions.k8s.io")
_NAMESPACES: Final = BucketId("namespaces", "")
_UNDELETABLE: Final = frozenset({"default", "kube-system", "kube-public"})
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def delete(
    api: Api, kind: Kind, namespace: str, name: str, deletion: Deletion, options: Options
) -> tuple[Entry, bool]:
    """Delete an object, or begin to.

    Returns:
        Its last state, and whether it is gone. It is not while it has finalizers
        or, for a pod on a node, while its grace runs.

    Raises:
        StatusError: 404, 409 for a precondition, 422 for options that make no sense. Nothing
            changes.
    """
    with api.store.transaction():
        entry = require(api, kind, namespace, name)
        if kind.bucket == _NAMESPACES and name in _UNDELETABLE:
            raise forbidden(kind.resource, name, "this namespace may not be deleted")
        refuse_nonsense(deletion)
        check_preconditions(kind, entry, deletion)
        grace = _grace(kind, entry.obj, deletion)
        finalizers = _finalizers(kind, entry.obj, deletion)
        waits = bool(finalizers) or bool(dig(entry.obj, "spec", "finalizers")) or grace > 0
        if not waits and kind.bucket != _PODS:
            if deletion.dry_run:
                return entry, True
            return api.store.remove(kind.bucket, entry.key, origin=options.origin), True
        marked = _marked(entry.obj, grace, finalizers, at=api.store.clock.now())
        if deletion.dry_run or (waits and marked == entry.obj):
            return Entry(marked, entry.version), not waits
        entry = api.store.put(kind.bucket, marked, origin=options.origin)
        if waits:
            return entry, False
        # Watches see even the pods marked first that have no time left.
        return api.store.remove(kind.bucket, entry.key, origin=options.origin), True


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
    added = POLICIES[policy]
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
