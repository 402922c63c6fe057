"""Taints of nodes, and which of them a pod puts up with."""

from datetime import datetime

import msgspec

__all__ = ["Taint", "Toleration", "is_tolerated"]


class Taint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What keeps pods off a node."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """What taint a pod puts up with; an empty key with `Exists` is all of them."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Tell whether one of the tolerations puts up with the taint (`ToleratesTaint`)."""
    return any(
        (not each.key or each.key == taint.key)
        and (not each.effect or each.effect == taint.effect)
        and (each.operator == "Exists" or each.value == taint.value)
        and (bool(each.key) or each.operator == "Exists")
        for each in tolerations
    )
