"""Leases: the lock of leader election."""

from typing import Final

from navarchos.testing.apiserver.kinds import Strategy
from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.status import FieldError, invalid_value

__all__ = ["LEASE"]


def _default(lease: JsonObject) -> None:
    lease.setdefault("spec", {})


def _validate(lease: JsonObject) -> list[FieldError]:
    spec = lease["spec"]
    errors = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        errors.append(
            invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
        )
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        text = "must be greater than or equal to 0"
        errors.append(invalid_value("spec.leaseTransitions", transitions, text))
    return errors


LEASE: Final = Strategy(
    unconditional_update=False, create_on_update=True, default=_default, validate=_validate
)
