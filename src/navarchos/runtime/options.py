"""Settings of a manager, and how its grace period may end."""

from dataclasses import dataclass

from navarchos.errors import NavarchosError
from navarchos.runtime.controller import CACHE_SYNC_TIMEOUT
from navarchos.runtime.election import LeaderElectionOptions

__all__ = ["GracePeriodExceeded", "ManagerOptions"]


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """Settings of a manager.

    Attributes:
        metrics_address: Where `/metrics` listens: `host:port`, `:port`, `0` for off.
        health_address: Where `/healthz` and `/readyz` listen.
        leader_election: The lease to hold while acting; `None` acts at once.
        sync_period: Seconds after which every cached object is looked at again; 0
            for never.
        graceful_shutdown_timeout: Seconds that runnables get to end; 0 does not wait,
            a negative number waits for ever (MG-09).
        cache_sync_timeout: Seconds that caches get to fill.
        component: Who we are in events.
        missing_kinds_hint: What to do when the server does not know a kind.
    """

    metrics_address: str = "0"
    health_address: str = "0"
    leader_election: LeaderElectionOptions | None = None
    sync_period: float = 0.0
    graceful_shutdown_timeout: float = 30.0
    cache_sync_timeout: float = CACHE_SYNC_TIMEOUT
    component: str = "navarchos"
    missing_kinds_hint: str = "install their CustomResourceDefinitions"


class GracePeriodExceeded(NavarchosError):
    """Runnables did not end in time.

    Attributes:
        seconds: The grace period.
        running: Names of the threads that still ran.
    """

    def __init__(self, seconds: float, running: tuple[str, ...]) -> None:
        super().__init__(seconds, running)
        self.seconds = seconds
        self.running = running

    def __str__(self) -> str:
        return f"not ended within the grace period of {self.seconds:g} s: {', '.join(self.running)}"
