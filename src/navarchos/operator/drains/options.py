"""From the published DrainSpec to what the drain library takes."""

from navarchos.client.selectors import LabelSelectorSpec, Selector
from navarchos.drain import DrainOptions
from navarchos.operator.api.v1alpha1 import DrainSpec

__all__ = ["options_of", "selector_of"]


def options_of(spec: DrainSpec) -> DrainOptions:
    """Return the options of a drain.

    Raises:
        ConfigError: Something the schema lets pass cannot work, such as a selector.
    """
    return DrainOptions(
        force=spec.force,
        ignore_daemon_sets=spec.ignore_daemon_sets,
        delete_empty_dir_data=spec.delete_empty_dir_data,
        grace_period_seconds=spec.grace_period_seconds,
        disable_eviction=spec.disable_eviction,
        pod_selector=selector_of(spec.pod_selector),
        skip_wait_for_delete_timeout=float(spec.skip_wait_for_delete_timeout_seconds),
        timeout=float(spec.timeout_seconds) or None,
        eviction_retry=float(spec.eviction_retry_seconds),
    )


def selector_of(spec: LabelSelectorSpec | None) -> Selector:
    """Return the selector; an absent one takes everything.

    Raises:
        ConfigError: An expression cannot be read.
    """
    return Selector.everything() if spec is None else Selector.from_spec(spec)
