"""PodDisruptionBudgets: defaults and checks. Their status is a controller's work."""

import re
from typing import Final

from navarchos.testing.apiserver.kinds import Strategy
from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.status import FieldError, invalid_value, unsupported_value

__all__ = ["BUDGET"]

_POLICIES: Final = ("IfHealthyBudget", "AlwaysAllow")
_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or"
    " '93%', regex used for validation is '[0-9]+%')"
)


def _default(budget: JsonObject) -> None:
    budget.setdefault("spec", {})
    status = budget.setdefault("status", {})
    for counter in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        status.setdefault(counter, 0)


def _validate(budget: JsonObject) -> list[FieldError]:
    spec = budget["spec"]
    errors = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = {k: spec[k] for k in ("minAvailable", "maxUnavailable")}
        text = "minAvailable and maxUnavailable cannot be both set"
        errors.append(invalid_value("spec", shown, text))
    for field in ("minAvailable", "maxUnavailable"):
        errors += _amount_errors(f"spec.{field}", spec.get(field))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        errors.append(
            unsupported_value("spec.unhealthyPodEvictionPolicy", policy, sorted(_POLICIES))
        )
    return errors


def _amount_errors(field: str, value: JsonValue) -> list[FieldError]:
    if isinstance(value, int) and value < 0:
        return [invalid_value(field, value, "must be greater than or equal to 0")]
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        return [invalid_value(field, value, _PERCENT_TEXT)]
    if isinstance(value, str) and int(value[:-1]) > 100:
        return [invalid_value(field, value, "must not be greater than 100%")]
    return []


BUDGET: Final = Strategy(
    generation=True, unconditional_update=False, default=_default, validate=_validate
)
