"""What is to be done with all pods of a node."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from navarchos.drain.filters import Action, DaemonSetExists, Finding, Judge
from navarchos.drain.options import DrainOptions
from navarchos.drain.pods import Pod, full_name

__all__ = ["DrainPlan", "PlannedPod", "classify"]


class PlannedPod(msgspec.Struct, frozen=True):
    """A pod and the verdict on it."""

    pod: Pod
    finding: Finding

    @property
    def name(self) -> str:
        """The pod as `namespace/name`."""
        return full_name(self.pod.metadata)

    @property
    def uid(self) -> str:
        """The pod's uid: what tells it from a later pod of the same name."""
        return self.pod.metadata.uid


class DrainPlan(msgspec.Struct, frozen=True):
    """The pods of a node, each in exactly one group.

    The order within a group is stable: ordinary pods first, those that the cluster
    itself needs last; then by namespace and name.

    Attributes:
        evict: Have to go, and nobody has asked them to yet.
        wait: Are going.
        ignore: Stay.
        refuse: Have to go, and the options do not allow it. While there is one
            before the first eviction, nothing at all is to be evicted.
    """

    evict: tuple[PlannedPod, ...] = ()
    wait: tuple[PlannedPod, ...] = ()
    ignore: tuple[PlannedPod, ...] = ()
    refuse: tuple[PlannedPod, ...] = ()

    @property
    def to_go(self) -> tuple[PlannedPod, ...]:
        """All that still have to leave the node."""
        return (*self.evict, *self.wait, *self.refuse)

    @property
    def is_drained(self) -> bool:
        """Whether no pod has to leave the node any more."""
        return not (self.evict or self.wait or self.refuse)


def classify(
    pods: Iterable[Pod],
    options: DrainOptions,
    daemon_set_exists: DaemonSetExists,
    *,
    now: datetime,
) -> DrainPlan:
    """Decide what is to be done with each pod of a node.

    A pure function of its arguments, but for `daemon_set_exists`, whose errors
    pass through.

    Args:
        pods: The pods of one node, in any order.
        options: What is allowed.
        daemon_set_exists: Called with namespace and name, once per pod that a
            DaemonSet owns.
        now: Aware; judges how long pods have been terminating.
    """
    judge = Judge(options, daemon_set_exists, now)
    groups: dict[Action, list[PlannedPod]] = {action: [] for action in Action}
    for pod in sorted(pods, key=_place):
        finding = judge.judge(pod)
        groups[finding.action].append(PlannedPod(pod, finding))
    return DrainPlan(
        evict=tuple(groups[Action.EVICT]),
        wait=tuple(groups[Action.WAIT]),
        ignore=tuple(groups[Action.IGNORE]),
        refuse=tuple(groups[Action.REFUSE]),
    )


def _place(pod: Pod) -> tuple[bool, str, str]:
    return (pod.is_critical, pod.metadata.namespace, pod.metadata.name)
