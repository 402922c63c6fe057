"""The options of `kubectl drain`."""

import msgspec

from navarchos.client.selectors import Selector
from navarchos.errors import ConfigError

__all__ = ["DrainOptions"]


class DrainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to drain a node, with the names and defaults of `kubectl drain`.

    Attributes:
        force: Also evict pods that no controller would re-create, and pods of a DaemonSet
            that no longer exists.
        ignore_daemon_sets: Do not evict the pods of DaemonSets; without this option they
            cause the drain to be refused.
        delete_empty_dir_data: Also evict pods that lose their emptyDir data.
        grace_period_seconds: Time to terminate; -1 is the pod's own grace period, and 0
            terminates immediately.
        disable_eviction: Delete pods instead of evicting them, which bypasses budgets.
        pod_selector: Evict only pods with these labels.
        skip_wait_for_delete_timeout: Do not wait for pods whose grace period ended more than
            this many seconds ago; 0 waits for all pods.
        timeout: Maximum duration of the drain in seconds, counted from the first eviction;
            `None` means no limit.
        eviction_retry: Seconds until a refused eviction is retried, unless the response
            carries `Retry-After`.
        evict: Evict pods at all; without this option only pods with a hook leave the node.
        hook_annotation: The annotation of pods whose controller removes them itself; its value
            is the name of a hook. Empty: no pod has a hook. kubectl has neither of the two.
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
    evict: bool = True
    hook_annotation: str = ""

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
        """The grace period to request; `None` means the pod's own."""
        return None if self.grace_period_seconds < 0 else self.grace_period_seconds
