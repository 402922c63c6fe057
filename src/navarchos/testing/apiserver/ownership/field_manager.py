"""How writes change the owners of fields.

An update takes the fields that it changes. An apply owns the fields of its configuration, and
releases the ones that it no longer has. The rules follow sigs.k8s.io/structured-merge-diff,
merge/update.go, and apimachinery's package managedfields. The fields of an entry are compared in
the entry's own version, except for fields that an applier no longer has: these are removed in the
version of the request.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from navarchos.testing.apiserver.bodies import WriteOptions
from navarchos.testing.apiserver.kinds import Kind, Kinds
from navarchos.testing.apiserver.objects import JsonObject, meta, timestamp
from navarchos.testing.apiserver.ownership.fieldsets import (
    EMPTY,
    LEAF,
    FieldSet,
    difference,
    field,
    intersection,
    union,
    without,
)
from navarchos.testing.apiserver.ownership.managed_fields import (
    APPLY,
    UPDATE,
    ManagedFields,
    Manager,
    OwnedFields,
    cap_updaters,
    decode_managed_fields,
    encode_managed_fields,
    is_reset,
    same_but_for_times,
)
from navarchos.testing.apiserver.ownership.typed_values import (
    Comparison,
    ListItemError,
    compare,
    fields_of,
    fit_to_schema,
    merge,
    named_members,
    remove_fields,
)

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
    field("apiVersion"): LEAF,
    field("kind"): LEAF,
    field("metadata"): {
        ".": LEAF,
        **{
            field(name): LEAF
            for name in (
                "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName",
                "generation", "managedFields", "resourceVersion",
            )
        },
    },
}  # fmt: skip
_STATUS: Final = {field("status"): LEAF}
_BEFORE: Final = "before-first-apply"


class ApplyConflicts(Exception):
    """A configuration has fields that other managers own; `fields` has them by manager."""

    def __init__(self, fields: dict[Manager, FieldSet]) -> None:
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

    def manager(self, operation: str, name: str = "") -> Manager:
        """Return the identity of the writer in the managed fields."""
        version = self.kind.api_version if operation == UPDATE else ""
        return Manager(name or self.name or "unknown", operation, version, self.subresource)

    @property
    def time(self) -> str:
        """The time of the write; upstream gives a write through `scale` no time."""
        return "" if self.subresource == "scale" else timestamp()

    @property
    def resets(self) -> FieldSet:
        """The fields that this kind of write cannot change."""
        if self.subresource == "status":
            return self._status_resets()
        return _STATUS if self.kind.has_status else EMPTY

    def _status_resets(self) -> FieldSet:
        if self.kind.custom is not None:
            return {field("spec"): LEAF, field("metadata"): LEAF}
        kept = {"labels", "ownerReferences", "deletionTimestamp"}
        if self.kind.plural != "pods":
            kept = {"labels"}
        fixed = {field(name): LEAF for name in kept - {*self.kind.strategy.status_metadata}}
        return {field("spec"): LEAF, **({field("metadata"): fixed} if fixed else {})}


class ApplyResult(NamedTuple):
    """The result of an apply; `obj` is `None` if the object does not change."""

    obj: JsonObject | None
    managed: ManagedFields


def after_update(
    write: FieldWrite, managed: ManagedFields, old: JsonObject, new: JsonObject, *, name: str = ""
) -> ManagedFields:
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
    own = difference(comparison.written, _UNOWNED)
    if own:
        manager = write.manager(UPDATE, name)
        if manager in result:
            own = union(result[manager].fields, own)
        result[manager] = OwnedFields(own, write.kind.api_version, write.time)
    return cap_updaters(result)


def _compare(write: FieldWrite, kind: Kind, old: JsonObject, new: JsonObject) -> Comparison:
    found = compare(
        _converted(old, write.kind, kind), _converted(new, write.kind, kind), kind.schema
    )
    return Comparison(*(without(fields, write.resets) for fields in found))


def _converted(obj: JsonObject, kind: Kind, other: Kind) -> JsonObject:
    if kind is other:
        return obj
    return other.to_served(kind.conversion.decode(obj) if kind.conversion else obj)


def _without_changed(
    write: FieldWrite,
    managed: ManagedFields,
    old: JsonObject,
    new: JsonObject,
    comparison: Comparison,
) -> ManagedFields:
    """Return the managed fields without the changed and removed ones."""
    found: ManagedFields = {}
    for manager, owned_fields, other in _changes_by_version(write, managed, old, new, comparison):
        left = difference(difference(owned_fields.fields, other.written), other.removed)
        if left:
            found[manager] = owned_fields._replace(fields=left)
    return found


def _changes_by_version(
    write: FieldWrite,
    managed: ManagedFields,
    old: JsonObject,
    new: JsonObject,
    comparison: Comparison,
) -> list[tuple[Manager, OwnedFields, Comparison]]:
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
    write: FieldWrite, managed: ManagedFields, live: JsonObject, config: JsonObject, *, force: bool
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
        manager: owned_fields._replace(fields=fit_to_schema(owned_fields.fields, kind.schema))
        for manager, owned_fields in managed.items()
    }
    manager = write.manager(APPLY)
    last = managed.pop(manager, None)
    own = without(fields_of(config, kind.schema), write.resets)
    new = merge(live, config, kind.schema)
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
    if own := difference(own, _UNOWNED):
        result[manager] = OwnedFields(own, kind.api_version, time)
    return ApplyResult(None if live == new else new, result)


def _check_conflicts(
    write: FieldWrite,
    managed: ManagedFields,
    live: JsonObject,
    new: JsonObject,
    comparison: Comparison,
) -> None:
    found = {
        manager: fields
        for manager, owned_fields, other in _changes_by_version(
            write, managed, live, new, comparison
        )
        if (fields := intersection(owned_fields.fields, other.written))
    }
    if found:
        raise ApplyConflicts(found)


def _without_dropped(
    kind: Kind, new: JsonObject, last: FieldSet, kept: list[FieldSet]
) -> JsonObject:
    """Return an object without the fields that its applier released and no other manager owns."""
    schema = kind.schema

    def members(fields: FieldSet) -> FieldSet:
        return named_members(fields, schema)

    pruned = remove_fields(new, members(last), schema) or {}
    everything = members(fields_of(new, schema))
    owned = members(fields_of(pruned, schema))
    for fields in kept:
        owned = union(owned, members(fields))
    pruned = remove_fields(new, difference(everything, owned), schema) or {}
    # Fields below a removed one stay, unless the applier owned them.
    dangling = difference(everything, members(fields_of(pruned, schema)))
    result: JsonObject = remove_fields(new, intersection(dangling, members(last)), schema) or {}
    return result


_FIELD = "managedFields"


def field_write(kinds: Kinds, kind: Kind, manager: str, subresource: str = "") -> FieldWrite:
    """Return the description of a write."""
    return FieldWrite(kind, manager, lambda version: kinds.by_kind(version, kind.kind), subresource)


def init_managed_fields(kinds: Kinds, kind: Kind, obj: JsonObject, options: WriteOptions) -> None:
    """Make the client that creates an object the owner of its fields, in place.

    The fields of an object that `ApiServer.install` creates have no owner, as on a real server if
    the object is older than managed fields; see `update_managed_fields`.
    """
    if options.applying:
        return
    managed = decode_managed_fields(obj["metadata"].pop(_FIELD, None))
    if not options.manager:
        if managed:
            obj["metadata"][_FIELD] = encode_managed_fields(managed)
        return
    write = field_write(kinds, kind, options.manager)
    _record_owner(write, managed, kind.empty, kind.to_served(obj), obj)


def update_managed_fields(
    kinds: Kinds,
    kind: Kind,
    new: JsonObject,
    old: JsonObject,
    options: WriteOptions,
    subresource: str,
) -> None:
    """Make the client that updates an object the owner of the fields that it changes, in place.

    An object without managed fields gets none until the first apply (apimachinery, managedfields,
    skipnonapplied.go), so such objects cost nothing.
    """
    if options.applying:
        return
    given = new["metadata"].pop(_FIELD, None)
    if is_reset(given) and not subresource:
        return
    live = meta(old).get(_FIELD)
    managed = {} if subresource else decode_managed_fields(given)
    if not managed:  # a client that does not know managed fields keeps them
        given = live
        managed = decode_managed_fields(given)
    if not managed:
        return
    entries = live if given is live else encode_managed_fields(managed)
    if not options.manager:
        new["metadata"][_FIELD] = entries
        return
    bare = {**old, "metadata": {k: v for k, v in meta(old).items() if k != _FIELD}}
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
    managed: ManagedFields,
    old: JsonObject,
    new: JsonObject,
    obj: JsonObject,
    *,
    unchanged: list[JsonObject] | None = None,
) -> None:
    try:
        after = after_update(write, managed, old, new)
    except ListItemError:
        return  # the change cannot be computed; upstream drops the managed fields, too
    if after is managed and unchanged is not None:
        obj["metadata"][_FIELD] = unchanged
    elif after:
        obj["metadata"][_FIELD] = encode_managed_fields(after)


def keep_times_if_same(new: JsonObject, old: JsonObject) -> None:
    """Restore the managed fields of `old` if nothing but their times would change.

    Otherwise a write without a change would make a new version.
    """
    before, after = meta(old).get(_FIELD), meta(new).get(_FIELD)
    if not before or not after or before is after or not same_but_for_times(before, after):
        return
    if _without_managers(new) == _without_managers(old):
        new["metadata"][_FIELD] = before


def _without_managers(obj: JsonObject) -> JsonObject:
    metadata = {key: value for key, value in meta(obj).items() if key != _FIELD}
    return {**obj, "metadata": metadata}
