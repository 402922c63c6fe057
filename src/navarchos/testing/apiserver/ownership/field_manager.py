"""What a write does to the managers of an object: updates take, applies claim and give back.

The rules are those of sigs.k8s.io/structured-merge-diff, merge/update.go, and of
apimachinery's managedfields around it. The fields of an entry are taken in the terms of its
own version, except when an applier drops some: there the version of the request serves for all.


`metadata.managedFields` of the objects that requests write.
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
    ElementFault,
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
    """An applier wants fields of others. `fields` has them by manager."""

    def __init__(self, fields: dict[Manager, FieldSet]) -> None:
        super().__init__(fields)
        self.fields = fields


class FieldWrite(NamedTuple):
    """One write, as far as managers are concerned.

    Attributes:
        kind: The kind in the version of the request.
        name: The field manager.
        find: Returns the kind in another version, if it is served.
        subresource: Through which the write comes, if any.
    """

    kind: Kind
    name: str
    find: Callable[[str], Kind | None]
    subresource: str = ""

    def manager(self, operation: str, name: str = "") -> Manager:
        """Return the identity that the write is booked on."""
        version = self.kind.api_version if operation == UPDATE else ""
        return Manager(name or self.name or "unknown", operation, version, self.subresource)

    @property
    def time(self) -> str:
        """When it is; a write through `scale` has no time, upstream."""
        return "" if self.subresource == "scale" else timestamp()

    @property
    def resets(self) -> FieldSet:
        """Fields that a write of this sort cannot change, whatever it says."""
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
    """The outcome of an apply; `obj` is `None` when the object stays as it is."""

    obj: JsonObject | None
    managed: ManagedFields


def after_update(
    write: FieldWrite, managed: ManagedFields, old: JsonObject, new: JsonObject, *, name: str = ""
) -> ManagedFields:
    """Return the claims after a write that changed `old` to `new`; both as served.

    The writer gets what it added or changed; others lose that, and what is gone.

    Raises:
        ElementFault: A list has an item that cannot be told from others.
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
    """Return the claims less what was changed or is gone."""
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
    """Pair each claim with the change in the terms of its version, if that is still served."""
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
    """Apply a configuration to an object; both as served in the version of the request.

    Raises:
        Conflicts: Others manage some of the fields with other values, and it is not forced.
        ElementFault: A list has an item that cannot be told from others.
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
    """Return an object without what its applier no longer names and nobody else manages."""
    schema = kind.schema

    def members(fields: FieldSet) -> FieldSet:
        return named_members(fields, schema)

    pruned = remove_fields(new, members(last), schema) or {}
    everything = members(fields_of(new, schema))
    owned = members(fields_of(pruned, schema))
    for fields in kept:
        owned = union(owned, members(fields))
    pruned = remove_fields(new, difference(everything, owned), schema) or {}
    # What hangs on something that went stays, unless the applier had claimed it.
    dangling = difference(everything, members(fields_of(pruned, schema)))
    result: JsonObject = remove_fields(new, intersection(dangling, members(last)), schema) or {}
    return result


_FIELD = "managedFields"


def field_write(kinds: Kinds, kind: Kind, manager: str, subresource: str = "") -> FieldWrite:
    """Return a write as the managers see it."""
    return FieldWrite(kind, manager, lambda version: kinds.by_kind(version, kind.kind), subresource)


def init_managed_fields(kinds: Kinds, kind: Kind, obj: JsonObject, options: WriteOptions) -> None:
    """Book what a new object says on who creates it, in place.

    What `ApiServer.install` puts there belongs to nobody, as what is older than
    managers does on a real server: see `update_managed_fields`.
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
    """Book what an update changes on who makes it, in place.

    An object without managers stays without, until somebody applies it
    (apimachinery, managedfields, skipnonapplied.go): they cost such objects nothing.
    """
    if options.applying:
        return
    given = new["metadata"].pop(_FIELD, None)
    if is_reset(given) and not subresource:
        return
    live = meta(old).get(_FIELD)
    managed = {} if subresource else decode_managed_fields(given)
    if not managed:  # who does not know managers takes nothing from them
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
    except ElementFault:
        return  # nobody can say what it consists of; upstream drops the managers, too
    if after is managed and unchanged is not None:
        obj["metadata"][_FIELD] = unchanged
    elif after:
        obj["metadata"][_FIELD] = encode_managed_fields(after)


def keep_times_if_same(new: JsonObject, old: JsonObject) -> None:
    """Restore the managers of `old` if only their times would change, and nothing else.

    Otherwise a write that says nothing new would make a version.
    """
    before, after = meta(old).get(_FIELD), meta(new).get(_FIELD)
    if not before or not after or before is after or not same_but_for_times(before, after):
        return
    if _without_managers(new) == _without_managers(old):
        new["metadata"][_FIELD] = before


def _without_managers(obj: JsonObject) -> JsonObject:
    metadata = {key: value for key, value in meta(obj).items() if key != _FIELD}
    return {**obj, "metadata": metadata}
