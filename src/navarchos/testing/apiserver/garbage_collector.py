"""Deletions that follow from others: dependents, namespaces, custom kinds.

The rules are upstream's. An object whose owners are all absent is deleted. Owners are identified by
uid, and a namespaced owner counts only in its own namespace.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from navarchos.testing.apiserver import kinds, objects, requests, store, writes
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.custom import CLEANUP_FINALIZER, DEFINITIONS
from navarchos.testing.apiserver.deletion import FOREGROUND, ORPHAN, DeleteOptions, delete

__all__ = ["GarbageCollector"]

_NAMESPACES: Final = store.BucketId("namespaces", "")


class GarbageCollector:
    """Deletes dependents and contents, and removes the finalizers of deletion.

    `on_change` keeps the graph of owners and queues objects; `collect` processes the queue. The
    server calls `collect` on its event loop soon after each change.

    Threads: both run under the store's lock.
    """

    def __init__(self, api: writes.Api) -> None:
        self._api = api
        self._locations: dict[str, tuple[store.BucketId, str]] = {}  # by uid: bucket and key
        self._dependents: dict[str, set[str]] = {}  # by uid of an owner: uids
        self._pending: dict[str, None] = {}  # uids to process, oldest first

    def on_change(self, change: store.Change) -> bool:
        """Record a write; return whether there is something to collect."""
        uid = objects.meta(change.object).get("uid") or ""
        key = store.entry_key(
            objects.meta(change.object).get("namespace") or "", objects.meta(change.object)["name"]
        )
        if change.previous is not None:
            self._unlink(uid, change.previous)
        if change.type == "DELETED":
            self._locations.pop(uid, None)
            self._enqueue(self._dependents.get(uid, ()))
            # Owners may wait for this dependent, and a namespace or a definition for its contents.
            self._enqueue(owner["uid"] for owner in objects.owner_references(change.object))
            self._enqueue_containers(change)
        else:
            self._locations[uid] = (change.resource, key)
            for owner in objects.owner_references(change.object):
                self._dependents.setdefault(owner["uid"], set()).add(uid)
            if objects.owner_references(change.object) or objects.meta(change.object).get(
                "deletionTimestamp"
            ):
                self._enqueue([uid])
        return bool(self._pending)

    def collect(self) -> None:
        """Process the queue until it is empty."""
        with self._api.store.transaction():
            while self._pending:
                uid = next(iter(self._pending))
                del self._pending[uid]
                if (found := self._find(uid)) is not None:
                    self._process(*found)

    def _enqueue(self, uids: Iterable[str]) -> None:
        self._pending.update(dict.fromkeys(uids))

    def _enqueue_containers(self, change: store.Change) -> None:
        namespace = self._api.store.get(
            _NAMESPACES, objects.meta(change.object).get("namespace") or ""
        )
        if namespace is not None and objects.meta(namespace.obj).get("deletionTimestamp"):
            self._enqueue([namespace.uid])
        kind = self._api.kinds.by_bucket(change.resource)
        if kind is not None and kind.custom is not None:
            definition = self._api.store.get(DEFINITIONS, kind.custom.definition)
            if definition is not None and objects.meta(definition.obj).get("deletionTimestamp"):
                self._enqueue([definition.uid])

    def _unlink(self, uid: str, previous: objects.JsonObject) -> None:
        for owner in objects.owner_references(previous):
            held = self._dependents.get(owner["uid"])
            if held is not None:
                held.discard(uid)
                if not held:
                    del self._dependents[owner["uid"]]

    def _find(self, uid: str) -> tuple[kinds.Kind, store.Entry] | None:
        location = self._locations.get(uid)
        if location is None:
            return None
        entry = self._api.store.get(*location)
        kind = self._api.kinds.by_bucket(location[0])
        if entry is None or kind is None or entry.uid != uid:
            return None
        return kind, entry

    def _process(self, kind: kinds.Kind, entry: store.Entry) -> None:
        metadata = objects.meta(entry.obj)
        if metadata.get("deletionTimestamp"):
            self._finalize(kind, entry)
        elif objects.owner_references(entry.obj):
            self._check_owners(kind, entry)

    def _finalize(self, kind: kinds.Kind, entry: store.Entry) -> None:
        finalizers = objects.meta(entry.obj).get("finalizers") or []
        if FOREGROUND in finalizers:
            self._delete_dependents_first(kind, entry)
        elif ORPHAN in finalizers:
            self._orphan_dependents(entry)
            self._drop_finalizer(kind, entry, ORPHAN)
        elif kind.bucket == _NAMESPACES:
            self._empty_namespace(kind, entry)
        elif CLEANUP_FINALIZER in finalizers:
            self._empty_definition(kind, entry)

    def _dependents_of(self, uid: str) -> Iterator[tuple[kinds.Kind, store.Entry]]:
        for dependent in sorted(self._dependents.get(uid, ())):
            found = self._find(dependent)
            if found is not None:
                yield found

    def _delete_dependents_first(self, kind: kinds.Kind, entry: store.Entry) -> None:
        for dependent_kind, dependent in list(self._dependents_of(entry.uid)):
            if not objects.meta(dependent.obj).get("deletionTimestamp"):
                self._delete(dependent_kind, dependent, "Foreground")
        blocked = any(
            _reference(dependent.obj, entry.uid).get("blockOwnerDeletion")
            for _, dependent in self._dependents_of(entry.uid)
        )
        if not blocked:
            self._drop_finalizer(kind, entry, FOREGROUND)

    def _orphan_dependents(self, entry: store.Entry) -> None:
        for kind, dependent in list(self._dependents_of(entry.uid)):
            kept = [o for o in objects.owner_references(dependent.obj) if o.get("uid") != entry.uid]
            self._set_owners(kind, dependent, kept)

    def _set_owners(
        self, kind: kinds.Kind, entry: store.Entry, owners: list[objects.JsonObject]
    ) -> None:
        obj = objects.copy_json(entry.obj)
        if owners:
            obj["metadata"]["ownerReferences"] = owners
        else:
            obj["metadata"].pop("ownerReferences", None)
        self._api.store.put(kind.bucket, obj)

    def _drop_finalizer(self, kind: kinds.Kind, entry: store.Entry, finalizer: str) -> None:
        current = self._api.store.get(kind.bucket, entry.key)
        if current is None or current.uid != entry.uid:
            return
        obj = objects.copy_json(current.obj)
        kept = [name for name in obj["metadata"].get("finalizers") or [] if name != finalizer]
        obj["metadata"].pop("finalizers", None)
        if kept:
            obj["metadata"]["finalizers"] = kept
        writes.finish_deletion(
            self._api, kind, self._api.store.put(kind.bucket, obj), writes.WriteOptions()
        )

    def _check_owners(self, kind: kinds.Kind, entry: store.Entry) -> None:
        owners = objects.owner_references(entry.obj)
        absent = [owner for owner in owners if self._is_absent(owner, entry)]
        if not absent:
            return
        if len(absent) == len(owners):
            self._delete(kind, entry, "Background")
        else:
            self._set_owners(kind, entry, [owner for owner in owners if owner not in absent])

    def _is_absent(self, owner: objects.JsonObject, entry: store.Entry) -> bool:
        """Return whether an owner is known not to exist.

        An owner of a kind that is not served may exist.
        """
        kind = self._api.kinds.by_kind(owner.get("apiVersion") or "", owner.get("kind") or "")
        if kind is None:
            return False
        namespace = entry.namespace if kind.namespaced else ""
        found = self._api.store.get(
            kind.bucket, store.entry_key(namespace, owner.get("name") or "")
        )
        return found is None or found.uid != owner.get("uid")

    def _delete(self, kind: kinds.Kind, entry: store.Entry, policy: str) -> None:
        deletion = DeleteOptions(policy=policy, uid=entry.uid)
        try:
            delete(
                self._api,
                requests.Target(kind, entry.namespace, entry.name),
                deletion,
                writes.WriteOptions(),
            )
        except statuses.StatusError as error:
            if error.code not in {404, 409}:  # the object is gone or replaced, as intended
                raise

    def _empty_namespace(self, kind: kinds.Kind, entry: store.Entry) -> None:
        left = False
        for bucket_kind in {
            k.bucket: k for k in self._api.kinds.all() if k.conversion is None
        }.values():
            if not bucket_kind.namespaced:
                continue
            for content in self._api.store.entries(bucket_kind.bucket, entry.name):
                self._delete_content(bucket_kind, content)
            left = left or bool(self._api.store.entries(bucket_kind.bucket, entry.name))
        if left:
            return
        obj = objects.copy_json(entry.obj)
        obj["spec"] = {k: v for k, v in (obj.get("spec") or {}).items() if k != "finalizers"}
        writes.finish_deletion(
            self._api, kind, self._api.store.put(kind.bucket, obj), writes.WriteOptions()
        )

    def _delete_content(self, kind: kinds.Kind, entry: store.Entry) -> None:
        if objects.meta(entry.obj).get("deletionTimestamp") and objects.dig(
            entry.obj, "metadata", "finalizers"
        ):
            return  # another controller must remove the finalizer
        self._delete(kind, entry, "Background")

    def _empty_definition(self, kind: kinds.Kind, entry: store.Entry) -> None:
        spec = entry.obj["spec"]
        bucket = store.BucketId(spec["names"]["plural"], spec["group"])
        custom = self._api.kinds.by_bucket(bucket)
        if custom is not None:
            for content in self._api.store.entries(bucket):
                if not objects.meta(content.obj).get("deletionTimestamp"):
                    self._delete(custom, content, "Background")
        if not self._api.store.entries(bucket):
            self._drop_finalizer(kind, entry, CLEANUP_FINALIZER)
            self._api.store.drop(bucket)


def _reference(obj: objects.JsonObject, uid: str) -> objects.JsonObject:
    return next((o for o in objects.owner_references(obj) if o.get("uid") == uid), {})
