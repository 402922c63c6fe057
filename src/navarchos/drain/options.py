"""What `kubectl drain` lets its user choose."""

import msgspec

from navarchos.client.selectors import Selector
from navarchos.errors import ConfigError

__all__ = ["DrainOptions"]


class DrainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is emptied. Names and defaults are those of `kubectl drain`.

    Attributes:
        force: Also remove pods that no controller would bring back, and pods of a
            DaemonSet that is gone.
        ignore_daemon_sets: Leave the pods of DaemonSets alone; without it they
            refuse the drain.
        delete_empty_dir_data: Also remove pods whose emptyDir data is lost.
        grace_period_seconds: Time to terminate; -1 is the pod's own, 0 at once.
        disable_eviction: Delete pods, which passes over their budgets.
        pod_selector: Only pods with these labels are looked at.
        skip_wait_for_delete_timeout: Do not wait for pods whose grace period ended
            longer ago than this many seconds; 0 waits for all.
        timeout: Longest drain in seconds from the first eviction; `None` is no
            limit.
        eviction_retry: Seconds before a refused eviction is tried again, when the
            server gave no advice.
    """

    force: bool = False
    ignore_daemon_sets: bool = False
    delete_empty_dir_data: bool = False
    grace_period_seconds: int = -1
    disable_eviction: bool = False
    pod_selector: Selector = msgspec.field(default_factory=Selector.everything)
    skip_wait_for_delete_timeout: float = 0.0
    timeout: float | None = None
    eviction_retry: float = 5.0

    def __post_init__(self) -> None:
        if self.grace_period_seconds < -1:
            raise ConfigError(
                "grace_period_seconds", self.grace_period_seconds, "it must be -1 or more"
            )
        if self.skip_wait_for_delete_timeout < 0:
            raise ConfigError(
                "skip_wait_for_delete_timeout",
                self.skip_wait_for_delete_timeout,
                "it must not be negative",
            )
        if self.timeout is not None and self.timeout <= 0:
            raise ConfigError("timeout", self.timeout, "it must be above 0, or None for no limit")
        if self.eviction_retry <= 0:
            raise ConfigError("eviction_retry", self.eviction_retry, "it must be above 0")

    @property
    def grace(self) -> int | None:
        """The grace period to ask for; `None` leaves it to the pod."""
        return None if self.grace_period_seconds < 0 else self.grace_period_seconds
