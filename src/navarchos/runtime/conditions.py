"""Conditions of a status (`metav1.Condition`), and pure functions to change them."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

import msgspec

__all__ = ["Condition", "find_condition", "is_true", "set_condition"]

C = TypeVar("C", bound="Condition")


class Condition(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True
):
    """A condition of an object, as `kubectl wait --for=condition=…` reads it.

    `status` is `True`, `False` or `Unknown`; `reason` is an UpperCamelCase word for programs,
    `message` a text for users. `last_update_time` is the time of the last change of any field,
    as in Deployments.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None
    last_update_time: datetime | None = None


def find_condition(conditions: Iterable[C], type_: str) -> C | None:
    """Return the condition of that type, if there is one."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Tell whether the condition exists and its status is `True`."""
    found = find_condition(conditions, type_)
    return found is not None and found.status == "True"


def set_condition(conditions: Iterable[C], new: C, *, now: datetime) -> tuple[C, ...]:
    """Return the conditions with `new` in its place, or appended.

    The transition time changes only with `status`; the update time changes with any field. An
    equal condition changes no time, so a status that is computed twice from the same facts is
    equal and causes no write.
    """
    kept = tuple(conditions)
    old = find_condition(kept, new.type)
    same_status = old is not None and old.status == new.status
    stamped = msgspec.structs.replace(
        new,
        last_transition_time=old.last_transition_time if old and same_status else now,
        last_update_time=old.last_update_time if old else now,
    )
    if stamped == old:
        return kept
    stamped = msgspec.structs.replace(stamped, last_update_time=now)
    if old is None:
        return (*kept, stamped)
    return tuple(stamped if condition is old else condition for condition in kept)
