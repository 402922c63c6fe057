"""The spec of a drain, read once per pass."""

from dataclasses import dataclass

from navarchos.drain import DrainOptions
from navarchos.operator.api.v1alpha1 import DrainSpec, TimeoutPolicy
from navarchos.operator.drains.escalation import Ladder, ladder_of
from navarchos.operator.drains.options import options_of

__all__ = ["Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How a node is to be emptied.

    Attributes:
        options: Which pods may go, and how.
        ladder: When pods are deleted past their budgets.
        holds: Whether the drain keeps trying when its time is up.
    """

    options: DrainOptions
    ladder: Ladder
    holds: bool

    @classmethod
    def of(cls, spec: DrainSpec) -> "Rules":
        """Read a spec.

        Raises:
            ConfigError: Something the schema lets pass cannot work.
        """
        return cls(options_of(spec), ladder_of(spec), spec.on_timeout is TimeoutPolicy.HOLD)

    def is_late(self, elapsed: float) -> bool:
        """Tell whether the time is up, this many seconds after the first eviction."""
        return self.options.timeout is not None and elapsed >= self.options.timeout
