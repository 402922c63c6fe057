"""Which pods may be deleted past their budgets, and from when on (OP-46)."""

from dataclasses import dataclass

from navarchos.client.selectors import Selector
from navarchos.drain import EvictionOutcome, Pod
from navarchos.operator.api.v1alpha1 import DrainSpec, EscalationAction, TimeoutPolicy
from navarchos.operator.drains.attempts import Attempt
from navarchos.operator.drains.options import selector_of

__all__ = ["Ladder", "Stage", "ladder_of"]

# A missing right and a namespace in deletion are not cured by deleting the pod;
# a server, or a webhook, that did not answer has refused nothing.
_STUCK = frozenset(
    {
        EvictionOutcome.BLOCKED_BY_BUDGET,
        EvictionOutcome.IN_PROGRESS,
        EvictionOutcome.MULTIPLE_BUDGETS,
        EvictionOutcome.WEBHOOK_DENIED,
        EvictionOutcome.REFUSED,
    }
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, ready for use.

    Attributes:
        number: Its place in the spec, from 1.
        after: Seconds since the first eviction on the node.
        only_unhealthy: It leaves pods alone that are ready.
        namespaces: Only these; all when empty.
        selector: Only pods with these labels.
    """

    number: int
    after: float
    only_unhealthy: bool
    namespaces: frozenset[str]
    selector: Selector

    def takes(self, pod: Pod) -> bool:
        """Tell whether the stage is about the pod, once its time has come."""
        if self.namespaces and pod.metadata.namespace not in self.namespaces:
            return False
        if self.only_unhealthy and pod.is_ready:
            return False
        return self.selector.matches(pod.metadata.labels)


@dataclass(frozen=True, slots=True)
class Ladder:
    """All stages of a drain, by time.

    Attributes:
        stages: Sorted by `after`.
        ends_at: Seconds since the first eviction from which on no stage acts any
            more: the timeout under `Hold`, which never deletes past a budget.
    """

    stages: tuple[Stage, ...] = ()
    ends_at: float | None = None

    def due(self, pod: Pod, attempt: Attempt, elapsed: float) -> Stage | None:
        """Return the latest stage that deletes the pod now, if one does.

        A pod is only deleted when its eviction has been tried and refused.
        """
        is_stuck = attempt.stage > 0 or attempt.result.outcome in _STUCK
        if not is_stuck or (self.ends_at is not None and elapsed >= self.ends_at):
            return None
        reached = [stage for stage in self.stages if stage.after <= elapsed and stage.takes(pod)]
        return reached[-1] if reached else None

    def upcoming(self, pod: Pod, elapsed: float) -> Stage | None:
        """Return the next stage that will delete the pod if it stays as it is."""
        for stage in self.stages:
            in_time = self.ends_at is None or stage.after < self.ends_at
            if stage.after > elapsed and in_time and stage.takes(pod):
                return stage
        return None


def ladder_of(spec: DrainSpec) -> Ladder:
    """Return the stages of a drain.

    Raises:
        ConfigError: A stage's selector cannot be read.
    """
    stages = [
        Stage(
            number=number,
            after=float(stage.after_seconds),
            only_unhealthy=stage.action is EscalationAction.DELETE_UNHEALTHY,
            namespaces=frozenset(stage.namespaces),
            selector=selector_of(stage.pod_selector),
        )
        for number, stage in enumerate(spec.escalation, start=1)
    ]
    holds = spec.on_timeout is TimeoutPolicy.HOLD and spec.timeout_seconds > 0
    return Ladder(
        stages=tuple(sorted(stages, key=lambda stage: (stage.after, stage.number))),
        ends_at=float(spec.timeout_seconds) if holds else None,
    )
