"""Which handlers are due for a replay of the cache, and when (SI-16, SI-17, SI-18)."""

from typing import Final

from navarchos.logs import get_logger

__all__ = ["MINIMUM_RESYNC_PERIOD", "ResyncTimer", "settle_period"]

MINIMUM_RESYNC_PERIOD: Final = 1.0
"""Seconds; a smaller resync period is raised to this."""

_log = get_logger(__name__)


class ResyncTimer:
    """One handler's resync: its period, and whether replays go to it at present.

    A handler is due at the first check at or after its time, and its next time
    counts from that check; so its real interval is a multiple of the check period.

    Threads: none of its own; the intake's lock guards it.

    Attributes:
        syncing: Whether the handler takes part in replays, which an update with an
            unchanged resourceVersion counts as. True until the first check, so
            that without resync a relist reaches everybody.
        wanted: The period asked for, in seconds; 0 for never.
        period: The period in force.
    """

    def __init__(self, wanted: float, now: float) -> None:
        self.syncing = True
        self.wanted = wanted
        self.period = wanted
        self._next = now + wanted

    def check(self, now: float) -> bool:
        """Decide whether the handler is due, and remember it as `syncing`."""
        self.syncing = self.period > 0 and now >= self._next
        if self.syncing:
            self._next = now + self.period
        return self.syncing


def settle_period(wanted: float, check_period: float, *, handler: str) -> float:
    """Return the period that a handler gets.

    Args:
        wanted: What it asked for in seconds; 0 for never.
        check_period: How often the informer looks; 0 when it never does.
        handler: For the log.
    """
    if wanted <= 0 or check_period <= 0:
        if wanted > 0:
            _log.warning("resync_impossible", handler=handler, wanted=wanted, why="informer has 0")
        return 0.0
    if wanted < check_period:
        _log.warning("resync_period_raised", handler=handler, wanted=wanted, period=check_period)
    return max(wanted, check_period)
