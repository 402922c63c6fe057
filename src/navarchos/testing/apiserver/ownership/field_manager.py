"""What a write does to the managers of an object: updates take, applies claim and give back.

The rules are those of sigs.k8s.io/structured-merge-diff, merge/update.go, and of
apimachinery's managedfields around it. The fields of an entry are taken in the terms of its
own version, except when an applier drops some: there the version of the request serves for all.


`metadata.managedFields` of the objects that requests write.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from navarchos.testing.apiserver.bodies import Options
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
    Claim,
    Claims,
    Manager,
    capped,
    decode_claims,
    encode_claims,
    is_reset,
    same_but_for_times,
)
from navarchos.testing.apiserver.ownership.typed_values import (
    Comparison,
    ElementFault,
    changed,
    fields_of,
    fitted,
    merged,
    named_members,
    removed,
)

__all__ = [
    "Applied",
    "Conflicts",
    "Writing",
    "applied",
    "keep_times_if_same",
    "set_managers",
    "set_managers_of_new",
    "updated",
    "writing_of",
]

_NOBODYS: Final = {
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


class Conflicts(Exception):
    """An applier wants fields of others. `fields` has them by manager."""

    def __init__(self, fields: dict[Manager, FieldSet]) -> None:
        super().__init__(fields)
        self.fields = fields


class Writing(NamedTuple):
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


class Applied(NamedTuple):
    """The outcome of an apply; `obj` is `None` when the object stays as it is."""

    obj: JsonObject | None
    claims: Claims


def updated(
    writing: Writing, claims: Claims, old: JsonObject, new: JsonObject, *, name: str = ""
) -> Claims:
    """Return the claims after a write that changed `old` to `new`; both as served.

    The writer gets what it added or changed; others lose that, and what is gone.

    Raises:
        ElementFault: A list has an item that cannot be told from others.
    """
    comparison = _compare(writing, writing.kind, old, new)
    if not any(comparison):
        return claims
    result = _taken(writing, claims, old, new, comparison)
    own = difference(comparison.written, _NOBODYS)
    if own:
        manager = writing.manager(UPDATE, name)
        if manager in result:
            own = union(result[manager].fields, own)
        result[manager] = Claim(own, writing.kind.api_version, writing.time)
    return capped(result)


def _compare(writing: Writing, kind: Kind, old: JsonObject, new: JsonObject) -> Comparison:
    found = changed(
        _converted(old, writing.kind, kind), _converted(new, writing.kind, kind), kind.schema
    )
    return Comparison(*(without(fields, writing.resets) for fields in found))


def _converted(obj: JsonObject, kind: Kind, other: Kind) -> JsonObject:
    if kind is other:
        return obj
    return other.to_served(kind.view.decode(obj) if kind.view else obj)


def _taken(
    writing: Writing, claims: Claims, old: JsonObject, new: JsonObject, comparison: Comparison
) -> Claims:
    """Return the claims less what was changed or is gone."""
    found: Claims = {}
    for manager, claim, other in _in_their_terms(writing, claims, old, new, comparison):
        left = difference(difference(claim.fields, other.written), other.removed)
        if left:
            found[manager] = claim._replace(fields=left)
    return found


def _in_their_terms(
    writing: Writing, claims: Claims, old: JsonObject, new: JsonObject, comparison: Comparison
) -> list[tuple[Manager, Claim, Comparison]]:
    """Pair each claim with the change in the terms of its version, if that is still served."""
    known = {writing.kind.api_version: comparison}
    found = []
    for manager, claim in claims.items():
        if claim.version not in known:
            kind = writing.find(claim.version)
            if kind is None:
                continue
            known[claim.version] = _compare(writing, kind, old, new)
        found.append((manager, claim, known[claim.version]))
    return found


def applied(
    writing: Writing, claims: Claims, live: JsonObject, config: JsonObject, *, force: bool
) -> Applied:
    """Apply a configuration to an object; both as served in the version of the request.

    Raises:
        Conflicts: Others manage some of the fields with other values, and it is not forced.
        ElementFault: A list has an item that cannot be told from others.
    """
    kind = writing.kind
    if not claims:
        claims = updated(writing, {}, kind.empty, live, name=_BEFORE)
    claims = {
        manager: claim._replace(fields=fitted(claim.fields, kind.schema))
        for manager, claim in claims.items()
    }
    manager = writing.manager(APPLY)
    last = claims.pop(manager, None)
    own = without(fields_of(config, kind.schema), writing.resets)
    new = merged(live, config, kind.schema)
    if last is not None:
        kept = [own, *(claim.fields for claim in claims.values())]
        new = _without_dropped(kind, new, last.fields, kept)
    comparison = _compare(writing, kind, live, new)
    if not force:
        _check_conflicts(writing, claims, live, new, comparison)
    result = _taken(writing, claims, live, new, comparison)
    time = "" if last is None else last.time
    if live != new:
        time = writing.time
    if own := difference(own, _NOBODYS):
        result[manager] = Claim(own, kind.api_version, time)
    return Applied(None if live == new else new, result)


def _check_conflicts(
    writing: Writing, claims: Claims, live: JsonObject, new: JsonObject, comparison: Comparison
) -> None:
    found = {
        manager: fields
        for manager, claim, other in _in_their_terms(writing, claims, live, new, comparison)
        if (fields := intersection(claim.fields, other.written))
    }
    if found:
        raise Conflicts(found)


def _without_dropped(
    kind: Kind, new: JsonObject, last: FieldSet, kept: list[FieldSet]
) -> JsonObject:
    """Return an object without what its applier no longer names and nobody else manages."""
    schema = kind.schema

    def members(fields: FieldSet) -> FieldSet:
        return named_members(fields, schema)

    pruned = removed(new, members(last), schema) or {}
    everything = members(fields_of(new, schema))
    owned = members(fields_of(pruned, schema))
    for fields in kept:
        owned = union(owned, members(fields))
    pruned = removed(new, difference(everything, owned), schema) or {}
    # What hangs on something that went stays, unless the applier had claimed it.
    dangling = difference(everything, members(fields_of(pruned, schema)))
    result: JsonObject = removed(new, intersection(dangling, members(last)), schema) or {}
    return result


_FIELD = "managedFields"


def writing_of(kinds: Kinds, kind: Kind, manager: str, subresource: str = "") -> Writing:
    """Return a write as the managers see it."""
    return Writing(kind, manager, lambda version: kinds.by_kind(version, kind.kind), subresource)


def set_managers_of_new(kinds: Kinds, kind: Kind, obj: JsonObject, options: Options) -> None:
    """Book what a new object says on who creates it, in place.

    What `ApiServer.install` puts there belongs to nobody, as what is older than
    managers does on a real server: see `set_managers`.
    """
    if options.applying:
        return
    claims = decode_claims(obj["metadata"].pop(_FIELD, None))
    if not options.manager:
        if claims:
            obj["metadata"][_FIELD] = encode_claims(claims)
        return
    writing = writing_of(kinds, kind, options.manager)
    _book(writing, claims, kind.empty, kind.to_served(obj), obj)


def set_managers(
    kinds: Kinds,
    kind: Kind,
    new: JsonObject,
    old: JsonObject,
    options: Options,
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
    claims = {} if subresource else decode_claims(given)
    if not claims:  # who does not know managers takes nothing from them
        given = live
        claims = decode_claims(given)
    if not claims:
        return
    entries = live if given is live else encode_claims(claims)
    if not options.manager:
        new["metadata"][_FIELD] = entries
        return
    bare = {**old, "metadata": {k: v for k, v in meta(old).items() if k != _FIELD}}
    _book(
        writing_of(kinds, kind, options.manager, subresource),
        claims,
        kind.to_served(bare),
        kind.to_served(new),
        new,
        unchanged=entries,
    )


def _book(
    writing: Writing,
    claims: Claims,
    old: JsonObject,
    new: JsonObject,
    obj: JsonObject,
    *,
    unchanged: list[JsonObject] | None = None,
) -> None:
    try:
        after = updated(writing, claims, old, new)
    except ElementFault:
        return  # nobody can say what it consists of; upstream drops the managers, too
    if after is claims and unchanged is not None:
        obj["metadata"][_FIELD] = unchanged
    elif after:
        obj["metadata"][_FIELD] = encode_claims(after)


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
