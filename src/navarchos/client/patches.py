"""JSON merge patches (RFC 7386): made from a difference, and applied."""

from collections.abc import Mapping

__all__ = ["merge_apply", "merge_diff"]


def merge_diff(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Return the merge patch that turns `before` into `after`; `{}` if none is needed.

    Members that are gone become null, arrays that differ are replaced whole, and
    numbers keep their value whatever their size (CL-11). A null in `after` means
    an absent member, because a merge patch cannot say anything else.

    For the optimistic variant hand the resourceVersion that `before` had to
    `ResourceClient.patch`.
    """
    gone = {
        name: None
        for name, value in before.items()
        if value is not None and after.get(name) is None
    }
    return gone | {
        name: _change(before.get(name), value)
        for name, value in after.items()
        if value is not None and not _same(before.get(name), value)
    }


def merge_apply(target: object, patch: object) -> object:
    """Return what a server makes of `target` when it is sent this merge patch.

    Neither argument is changed.
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_apply(result.get(name), value)
    return result


def _change(before: object, after: object) -> object:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return merge_diff(before, after)
    if isinstance(after, Mapping):
        # The patch is merged into nothing, so nulls in it would be no-ops: leave them out.
        return merge_diff({}, after)
    return after


def _same(before: object, after: object) -> bool:
    """Compare as JSON does: true is not 1, and members that are null are absent."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return not merge_diff(before, after)
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return len(before) == len(after) and all(map(_same_entry, before, after))
    return before == after


def _same_entry(before: object, after: object) -> bool:
    if before is None or after is None:
        return before is after
    return _same(before, after)
