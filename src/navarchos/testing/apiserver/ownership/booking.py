"""`metadata.managedFields` of the objects that requests write."""

from navarchos.testing.apiserver.bodies import Options
from navarchos.testing.apiserver.kinds import Kind, Kinds
from navarchos.testing.apiserver.objects import JsonObject, meta
from navarchos.testing.apiserver.ownership.managers import (
    Claims,
    decode_claims,
    encode_claims,
    is_reset,
    same_but_for_times,
)
from navarchos.testing.apiserver.ownership.structure import ElementFault
from navarchos.testing.apiserver.ownership.tracking import Writing, updated

__all__ = ["keep_times_if_same", "set_managers", "set_managers_of_new", "writing_of"]

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
