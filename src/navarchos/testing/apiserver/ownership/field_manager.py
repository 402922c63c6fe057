"""How writes change the owners of fields.

An update takes the fields that it changes. An apply owns the fields of its configuration, and
releases the ones that it no longer has. The rules follow sigs.k8s.io/structured-merge-diff,
merge/update.go, and apimachinery's package managedfields. The fields of an entry are compared in
the entry's own version, except for fields that an applier no longer has: these are removed in the
version of the request.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from navarchos.testing.apiserver import bodies, objects
from navarchos.testing.apiserver.kinds import Kind, Kinds
from navarchos.testing.apiserver.ownership import fieldsets, managed_fields, typed_values

__all__ = [
    "ApplyConflicts",
    "ApplyResult",
    "FieldWrite",
    "after_apply",
    "after_update",
    "field_write",
    "init_managed_fields",
    "keep_times_if_same",
    "update_managed_fields",
]

_UNOWNED: Final = {
    fieldsets.field("apiVersion"): fieldsets.LEAF,
    fieldsets.field("kind"): fieldsets.LEAF,
    fieldsets.field("metadata"): {
        ".": fieldsets.LEAF,
        **{
            fieldsets.field(name): fieldsets.LEAF
            for name in (
                "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName",
                "generation", "managedFields", "resourceVersion",
            )
        },
    },
}  # fmt: skip
_STATUS: Final = {fieldsets.field("status"): fieldsets.LEAF}
_BEFORE: Final = "before-first-apply"


class ApplyConflicts(Exception):
    """A configuration has fields that other managers own; `fields` has them by manager."""

    def __init__(self, fields: dict[managed_fields.FieldManager, fieldsets.FieldSet]) -> None:
        super().__init__(fields)
        self.fields = fields


class FieldWrite(NamedTuple):
    """One write, as far as it concerns field owners.

    Attributes:
        kind: The kind in the version of the request.
        name: The field manager.
        find: Returns the kind in another version, if it is served.
        subresource: The subresource of the request, if any.
    """

    kind: Kind
    name: str
    find: Callable[[str], Kind | None]
    subresource: str = ""

    def manager(self, operation: str, name: str = "") -> managed_fields.FieldManager:
        """Return the identity of the writer in the managed fields."""
        version = self.kind.api_version if operation == managed_fields.UPDATE else ""
        return managed_fields.FieldManager(
            name or self.name or "unknown", operation, version, self.subresource
        )

    @property
    def time(self) -> str:
        """The time of the write; upstream gives a write through `scale` no time."""
        return "" if self.subresource == "scale" else objects.timestamp()

    @property
    def resets(self) -> fieldsets.FieldSet:
        """The fields that this kind of write cannot change."""
        if self.subresource == "status":
            return self._status_resets()
        return _STATUS if self.kind.has_status else fieldsets.EMPTY

    def _status_resets(self) -> fieldsets.FieldSet:
        if self.kind.custom is not None:
            return {
                fieldsets.field("spec"): fieldsets.LEAF,
                fieldsets.field("metadata"): fieldsets.LEAF,
            }
        kept = {"labels", "ownerReferences", "deletionTimestamp"}
        if self.kind.plural != "pods":
            kept = {"labels"}
        fixed = {
            fieldsets.field(name): fieldsets.LEAF
            for name in kept - {*self.kind.strategy.status_metadata}
        }
        return {
            fieldsets.field("spec"): fieldsets.LEAF,
            **({fieldsets.field("metadata"): fixed} if fixed else {}),
        }


class ApplyResult(NamedTuple):
    """The result of an apply; `obj` is `None` if the object does not change."""

    obj: objects.JsonObject | None
    managed: managed_fields.ManagedFields


def after_update(
    write: FieldWrite,
    managed: managed_fields.ManagedFields,
    old: objects.JsonObject,
    new: objects.JsonObject,
    *,
    name: str = "",
) -> managed_fields.ManagedFields:
    """Return the managed fields after an update from `old` to `new`, both as served.

    The writer gets the fields that it added or changed. Other managers lose these fields and the
    removed ones.

    Raises:
        ElementFault: A list has an item without identity.
    """
    comparison = _compare(write, write.kind, old, new)
    if not any(comparison):
        return managed
    result = _without_changed(write, managed, old, new, comparison)
    own = fieldsets.difference(comparison.written, _UNOWNED)
    if own:
        manager = write.manager(managed_fields.UPDATE, name)
        if manager in result:
            own = fieldsets.union(result[manager].fields, own)
        result[manager] = managed_fields.OwnedFields(own, write.kind.api_version, write.time)
    return managed_fields.cap_updaters(result)


def _compare(
    write: FieldWrite, kind: Kind, old: objects.JsonObject, new: objects.JsonObject
) -> typed_values.Comparison:
    found = typed_values.compare(
        _converted(old, write.kind, kind), _converted(new, write.kind, kind), kind.schema
    )
    return typed_values.Comparison(*(fieldsets.without(fields, write.resets) for fields in found))


def _converted(obj: objects.JsonObject, kind: Kind, other: Kind) -> objects.JsonObject:
    if kind is other:
        return obj
    return other.to_served(kind.conversion.decode(obj) if kind.conversion else obj)


def _without_changed(
    write: FieldWrite,
    managed: managed_fields.ManagedFields,
    old: objects.JsonObject,
    new: objects.JsonObject,
    comparison: typed_values.Comparison,
) -> managed_fields.ManagedFields:
    """Return the managed fields without the changed and removed ones."""
    found: managed_fields.ManagedFields = {}
    for manager, owned_fields, other in _changes_by_version(write, managed, old, new, comparison):
        left = fieldsets.difference(
            fieldsets.difference(owned_fields.fields, other.written), other.removed
        )
        if left:
            found[manager] = owned_fields._replace(fields=left)
    return found


def _changes_by_version(
    write: FieldWrite,
    managed: managed_fields.ManagedFields,
    old: objects.JsonObject,
    new: objects.JsonObject,
    comparison: typed_values.Comparison,
) -> list[tuple[managed_fields.FieldManager, managed_fields.OwnedFields, typed_values.Comparison]]:
    """Return each entry with the change in the entry's version, if that version is still served."""
    known = {write.kind.api_version: comparison}
    found = []
    for manager, owned_fields in managed.items():
        if owned_fields.version not in known:
            kind = write.find(owned_fields.version)
            if kind is None:
                continue
            known[owned_fields.version] = _compare(write, kind, old, new)
        found.append((manager, owned_fields, known[owned_fields.version]))
    return found


def after_apply(
    write: FieldWrite,
    managed: managed_fields.ManagedFields,
    live: objects.JsonObject,
    config: objects.JsonObject,
    *,
    force: bool,
) -> ApplyResult:
    """Apply a configuration to an object, both in the version of the request.

    Raises:
        ApplyConflicts: Other managers own some of the fields with other values, and `force` is
            false.
        ElementFault: A list has an item without identity.
    """
    kind = write.kind
    if not managed:
        managed = after_update(write, {}, kind.empty, live, name=_BEFORE)
    managed = {
        manager: owned_fields._replace(
            fields=typed_values.fit_to_schema(owned_fields.fields, kind.schema)
        )
        for manager, owned_fields in managed.items()
    }
    manager = write.manager(managed_fields.APPLY)
    last = managed.pop(manager, None)
    own = fieldsets.without(typed_values.fields_of(config, kind.schema), write.resets)
    new = typed_values.merge(live, config, kind.schema)
    if last is not None:
        kept = [own, *(owned_fields.fields for owned_fields in managed.values())]
        new = _without_dropped(kind, new, last.fields, kept)
    comparison = _compare(write, kind, live, new)
    if not force:
        _check_conflicts(write, managed, live, new, comparison)
    result = _without_changed(write, managed, live, new, comparison)
    time = "" if last is None else last.time
    if live != new:
        time = write.time
    if own := fieldsets.difference(own, _UNOWNED):
        result[manager] = managed_fields.OwnedFields(own, kind.api_version, time)
    return ApplyResult(None if live == new else new, result)


def _check_conflicts(
    write: FieldWrite,
    managed: managed_fields.ManagedFields,
    live: objects.JsonObject,
    new: objects.JsonObject,
    comparison: typed_values.Comparison,
) -> None:
    found = {
        manager: fields
        for manager, owned_fields, other in _changes_by_version(
            write, managed, live, new, comparison
        )
        if (fields := fieldsets.intersection(owned_fields.fields, other.written))
    }
    if found:
        raise ApplyConflicts(found)


def _without_dropped(
    kind: Kind, new: objects.JsonObject, last: fieldsets.FieldSet, kept: list[fieldsets.FieldSet]
) -> objects.JsonObject:
    """Return an object without the fields that its applier released and no other manager owns."""
    schema = kind.schema

    def members(fields: fieldsets.FieldSet) -> fieldsets.FieldSet:
        return typed_values.named_members(fields, schema)

    pruned = typed_values.remove_fields(new, members(last), schema) or {}
    everything = members(typed_values.fields_of(new, schema))
    owned = members(typed_values.fields_of(pruned, schema))
    for fields in kept:
        owned = fieldsets.union(owned, members(fields))
    pruned = typed_values.remove_fields(new, fieldsets.difference(everything, owned), schema) or {}
    # Fields below a removed one stay, unless the applier owned them.
    dangling = fieldsets.difference(everything, members(typed_values.fields_of(pruned, schema)))
    result: objects.JsonObject = (
        typed_values.remove_fields(new, fieldsets.intersection(dangling, members(last)), schema)
        or {}
    )
    return result


_FIELD = "managedFields"


def field_write(kinds: Kinds, kind: Kind, manager: str, subresource: str = "") -> FieldWrite:
    """Return the description of a write."""
    return FieldWrite(kind, manager, lambda version: kinds.by_kind(version, kind.kind), subresource)


def init_managed_fields(
    kinds: Kinds, kind: Kind, obj: objects.JsonObject, options: bodies.WriteOptions
) -> None:
    """Make the client that creates an object the owner of its fields, in place.

    The fields of an object that `ApiServer.install` creates have no owner, as on a real server if
    the object is older than managed fields; see `update_managed_fields`.
    """
    if options.applying:
        return
    managed = managed_fields.decode_managed_fields(obj["metadata"].pop(_FIELD, None))
    if not options.manager:
        if managed:
            obj["metadata"][_FIELD] = managed_fields.encode_managed_fields(managed)
        return
    write = field_write(kinds, kind, options.manager)
    _record_owner(write, managed, kind.empty, kind.to_served(obj), obj)


def update_managed_fields(
    kinds: Kinds,
    kind: Kind,
    new: objects.JsonObject,
    old: objects.JsonObject,
    options: bodies.WriteOptions,
    subresource: str,
) -> None:
    """Make the client that updates an object the owner of the fields that it changes, in place.

    An object without managed fields gets none until the first apply (apimachinery, managedfields,
    skipnonapplied.go), so such objects cost nothing.
    """
    if options.applying:
        return
    given = new["metadata"].pop(_FIELD, None)
    if managed_fields.is_reset(given) and not subresource:
        return
    live = objects.meta(old).get(_FIELD)
    managed = {} if subresource else managed_fields.decode_managed_fields(given)
    if not managed:  # a client that does not know managed fields keeps them
        given = live
        managed = managed_fields.decode_managed_fields(given)
    if not managed:
        return
    entries = live if given is live else managed_fields.encode_managed_fields(managed)
    if not options.manager:
        new["metadata"][_FIELD] = entries
        return
    bare = {**old, "metadata": {k: v for k, v in objects.meta(old).items() if k != _FIELD}}
    _record_owner(
        field_write(kinds, kind, options.manager, subresource),
        managed,
        kind.to_served(bare),
        kind.to_served(new),
        new,
        unchanged=entries,
    )


def _record_owner(
    write: FieldWrite,
    managed: managed_fields.ManagedFields,
    old: objects.JsonObject,
    new: objects.JsonObject,
    obj: objects.JsonObject,
    *,
    unchanged: list[objects.JsonObject] | None = None,
) -> None:
    try:
        after = after_update(write, managed, old, new)
    except typed_values.ListItemError:
        return  # the change cannot be computed; upstream drops the managed fields, too
    if after is managed and unchanged is not None:
        obj["metadata"][_FIELD] = unchanged
    elif after:
        obj["metadata"][_FIELD] = managed_fields.encode_managed_fields(after)


def keep_times_if_same(new: objects.JsonObject, old: objects.JsonObject) -> None:
    """Restore the managed fields of `old` if nothing but their times would change.

    Otherwise a write without a change would make a new version.
    """
    before, after = objects.meta(old).get(_FIELD), objects.meta(new).get(_FIELD)
    if (
        not before
        or not after
        or before is after
        or not managed_fields.same_but_for_times(before, after)
    ):
        return
    if _without_managers(new) == _without_managers(old):
        new["metadata"][_FIELD] = before


def _without_managers(obj: objects.JsonObject) -> objects.JsonObject:
    metadata = {key: value for key, value in objects.meta(obj).items() if key != _FIELD}
    return {**obj, "metadata": metadata}
