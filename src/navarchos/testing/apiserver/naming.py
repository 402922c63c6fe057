"""Which names of a definition are accepted: no two of a group may share one.

After apiextensions-apiserver's `pkg/controller/status/naming_controller.go`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from navarchos.testing.apiserver.objects import JsonObject, dig

__all__ = ["Verdict", "judge_names"]

_CHECKED: Final = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)
_KINDS: Final = frozenset({"kind", "listKind"})


class Verdict(NamedTuple):
    """What becomes of the names of a definition.

    Attributes:
        accepted: The names that count, old ones where new ones are taken.
        reason: Why not all are accepted; empty when they are.
        message: The same for people.
    """

    accepted: JsonObject
    reason: str = ""
    message: str = ""


def judge_names(wanted: JsonObject, had: JsonObject, others: Iterable[JsonObject]) -> Verdict:
    """Tell which names a definition gets.

    Args:
        wanted: `spec.names`.
        had: The names that were accepted before, if any were.
        others: The other definitions of the group.
    """
    used: dict[bool, set[str]] = {True: set(), False: set()}
    for other in others:
        names = dig(other, "status", "acceptedNames", default={})
        for field, _ in _CHECKED:
            used[field in _KINDS].update(_listed(names, field))
    accepted, reason, message = dict(had), "", ""
    for field, why in _CHECKED:
        mine = _listed(had, field)
        taken = [
            name
            for name in _listed(wanted, field)
            if name not in mine and name in used[field in _KINDS]
        ]
        if taken:
            texts = [f'"{name}" is already in use' for name in taken]
            reason = why
            message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        elif field in wanted:
            accepted[field] = wanted[field]
    if "categories" in wanted:
        accepted["categories"] = wanted["categories"]
    return Verdict(accepted, reason, message)


def _listed(names: JsonObject, field: str) -> Sequence[str]:
    found = names.get(field) or ()
    return (found,) if isinstance(found, str) else found
