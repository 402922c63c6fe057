"""Taints of nodes, and tolerations of pods."""

from datetime import datetime

import msgspec

__all__ = ["Taint", "Toleration", "is_tolerated"]


class Taint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration of a pod; an empty key with `Exists` tolerates every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether one of the tolerations tolerates the taint."""
    return any(
        (not each.key or each.key == taint.key)
        and (not each.effect or each.effect == taint.effect)
        and (each.operator == "Exists" or each.value == taint.value)
        and (bool(each.key) or each.operator == "Exists")
        for each in tolerations
    )
