"""The parsed spec of a drain: the options, the timeout policy and the escalation. Pure."""

from dataclasses import dataclass
from typing import assert_never

from navarchos.client.selectors import Selector
from navarchos.drain import DrainOptions
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.batch import EscalationPolicy, ParsedStage
from navarchos.operator.names import DRAIN_HOOK_ANNOTATION

__all__ = ["DrainSettings", "parse_escalation"]


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """How to drain a node.

    Attributes:
        options: Which pods may be evicted, and how.
        escalation: When pods are deleted although their eviction is refused.
        on_timeout: What happens when the timeout passes.
        replaces_first: Whether Deployments with one replica start their new pod first.
    """

    options: DrainOptions
    escalation: EscalationPolicy
    on_timeout: api.TimeoutPolicy
    replaces_first: bool = False

    @classmethod
    def from_spec(cls, spec: api.DrainSpec, *, evicts: bool = True) -> "DrainSettings":
        """Parse a spec.

        Args:
            spec: The options of the drain.
            evicts: Whether pods are evicted; otherwise the node is only cordoned.

        Raises:
            ConfigError: A value that the schema accepts is invalid, such as a selector.
        """
        escalation, selector = parse_escalation(spec), spec.pod_selector
        everything = Selector.everything()
        options = DrainOptions(
            force=spec.force,
            ignore_daemon_sets=spec.ignore_daemon_sets,
            delete_empty_dir_data=spec.delete_empty_dir_data,
            grace_period_seconds=spec.grace_period_seconds,
            disable_eviction=spec.disable_eviction,
            pod_selector=everything if selector is None else Selector.from_spec(selector),
            skip_wait_for_delete_timeout=float(spec.skip_wait_for_delete_timeout_seconds),
            timeout=float(spec.timeout_seconds) or None,
            eviction_retry=float(spec.eviction_retry_seconds),
            evict=evicts,
            hook_annotation=DRAIN_HOOK_ANNOTATION,
        )
        return cls(options, escalation, spec.on_timeout, _replaces_first(spec.replace_first))

    def is_timed_out(self, elapsed: float) -> bool:
        """Return whether the timeout has passed, `elapsed` seconds after the first eviction."""
        return self.options.timeout is not None and elapsed >= self.options.timeout


def _replaces_first(policy: api.ReplaceFirstPolicy | None) -> bool:
    match policy:
        case None | api.ReplaceFirstPolicy.NEVER:
            return False
        case api.ReplaceFirstPolicy.SINGLE_REPLICA:
            return True
        case _:
            assert_never(policy)


def parse_escalation(spec: api.DrainSpec) -> EscalationPolicy:
    """Return the escalation of a drain.

    Raises:
        ConfigError: The selector of a stage is invalid.
    """
    ends_at = _escalation_end(spec)
    stages = []
    for number, stage in enumerate(spec.escalation, start=1):
        selector = stage.pod_selector
        parsed = ParsedStage(
            number=number,
            after=float(stage.after_seconds),
            action=stage.action,
            namespaces=frozenset(stage.namespaces),
            selector=Selector.everything() if selector is None else Selector.from_spec(selector),
        )
        stages.append(parsed)
    stages.sort(key=lambda stage: (stage.after, stage.number))
    return EscalationPolicy(tuple(stages), ends_at)


def _escalation_end(spec: api.DrainSpec) -> float | None:
    match spec.on_timeout:
        case api.TimeoutPolicy.FAIL:
            return None
        case api.TimeoutPolicy.HOLD:
            return float(spec.timeout_seconds) or None
        case _:
            assert_never(spec.on_timeout)
