"""The three durations of an election, and how they must relate."""

from dataclasses import dataclass
from typing import Final

from navarchos.errors import ConfigError

__all__ = ["JITTER", "Timing"]

JITTER: Final = 1.2
"""Random share of the retry period that candidates add (LE-11)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a lease lasts, and how hard its holder tries to keep it (LE-01).

    Attributes:
        lease_duration: Seconds for which others leave a lease alone after they
            saw it renewed.
        renew_deadline: Seconds after which a leader that cannot renew gives up.
        retry_period: Seconds between two tries.

    Raises:
        ConfigError: With these durations two leaders could be at work, or a
            leader would give up before its second try.
    """

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        for name in ("lease_duration", "renew_deadline", "retry_period"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "it must be above 0 seconds")
        if self.lease_duration <= self.renew_deadline:
            raise ConfigError(
                "lease_duration",
                self.lease_duration,
                f"it must be longer than renew_deadline ({self.renew_deadline:g}), so that a "
                "leader gives up before another one begins",
            )
        if self.renew_deadline <= JITTER * self.retry_period:
            raise ConfigError(
                "renew_deadline",
                self.renew_deadline,
                f"it must be longer than {JITTER} times retry_period ({self.retry_period:g})",
            )

    @property
    def request_timeout(self) -> float:
        """Longest request, so that one that hangs cannot eat the deadline (LE-06)."""
        return max(1.0, self.renew_deadline / 2)

    @property
    def holds_for(self) -> float:
        """Seconds from sending a renewal until we must have stopped without another.

        Others may begin a lease duration after they noticed our renewal, which
        is after we sent it. The sum is what a healthy leader needs (LE-13).
        """
        return min(self.lease_duration, self.retry_period + self.renew_deadline)
