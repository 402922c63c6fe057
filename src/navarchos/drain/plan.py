"""Deciding what happens to each pod of a node: kubectl's filters, in kubectl's order.

The first filter with the verdict "ignore" or "wait" ends the evaluation of a pod. Of the other
filters the first refusal decides. (kubectl keeps only the verdict of the last filter, and so
loses the warning about local data of most pods.)
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from navarchos.drain.options import DrainOptions
from navarchos.drain.pods import Pod, full_name

__all__ = [
    "DaemonSetExists",
    "DrainPlan",
    "PlannedPod",
    "PodAction",
    "PodFinding",
    "PodReason",
    "classify",
]

DaemonSetExists = Callable[[str, str], bool]
"""Called with a namespace and a name. An exception that it raises fails the drain."""


class PodAction(StrEnum):
    """What happens to a pod."""

    EVICT = "Evict"
    WAIT = "Wait"
    IGNORE = "Ignore"
    REFUSE = "Refuse"


class PodReason(StrEnum):
    """Why a pod gets its action. A closed set, for reports, conditions and tests."""

    ORDINARY = "Ordinary"
    FINISHED = "Finished"
    TERMINATING = "Terminating"
    TERMINATING_TOO_LONG = "TerminatingTooLong"
    NOT_SELECTED = "NotSelected"
    DAEMON_SET = "DaemonSet"
    DAEMON_SET_NOT_IGNORED = "DaemonSetNotIgnored"
    DAEMON_SET_GONE = "DaemonSetGone"
    MIRROR = "MirrorPod"
    LOCAL_STORAGE = "LocalStorage"
    UNMANAGED = "UnmanagedPod"
    LEAVES_BY_ITSELF = "LeavesByItself"
    NOT_EVICTED = "NotEvicted"


class PodFinding(msgspec.Struct, frozen=True):
    """The decision about one pod.

    Attributes:
        action: What happens to the pod.
        reason: Why, for programs.
        message: Why, for users; a refusal names the option that would allow the eviction.
    """

    action: PodAction
    reason: PodReason
    message: str = ""


_EVICT: Final = PodFinding(PodAction.EVICT, PodReason.ORDINARY)
_FINISHED: Final = PodFinding(PodAction.EVICT, PodReason.FINISHED, "the pod has finished")


class _PodFilters(msgspec.Struct, frozen=True):
    """The filters, applied to one pod at a time.

    Attributes:
        options: What the caller allows.
        daemon_set_exists: Finds out whether a DaemonSet exists.
        now: The present time, for pods that terminate.
    """

    options: DrainOptions
    daemon_set_exists: DaemonSetExists
    now: datetime

    def evaluate(self, pod: Pod) -> PodFinding:
        """Return the decision about a pod. Raises only what `daemon_set_exists` raises."""
        decision = _EVICT
        for apply in (
            self._selected,
            self._not_evicted,
            self._terminating_too_long,
            self._daemon_set,
            self._mirror,
            self._leaves_by_itself,
            self._terminating,
            self._local_storage,
            self._unmanaged,
        ):
            finding = apply(pod)
            if finding is None:
                continue
            if finding.action is not PodAction.EVICT:
                return finding
            # The first reason that says more than "ordinary" is kept.
            if decision.reason is PodReason.ORDINARY:
                decision = finding
        return decision

    def _selected(self, pod: Pod) -> PodFinding | None:
        # kubectl does not even list the other pods.
        if self.options.pod_selector.matches(pod.metadata.labels):
            return None
        return PodFinding(
            PodAction.IGNORE, PodReason.NOT_SELECTED, "the pod selector does not match it"
        )

    def _not_evicted(self, pod: Pod) -> PodFinding | None:
        if self.options.evict or pod.metadata.annotations.get(self.options.hook_annotation):
            return None
        return PodFinding(PodAction.IGNORE, PodReason.NOT_EVICTED, "the drain evicts no pods")

    def _terminating_too_long(self, pod: Pod) -> PodFinding | None:
        limit = self.options.skip_wait_for_delete_timeout
        overdue = pod.overdue(self.now)
        if limit <= 0 or overdue is None or overdue <= limit:
            return None
        return PodFinding(
            PodAction.IGNORE,
            PodReason.TERMINATING_TOO_LONG,
            f"its grace period ended more than {limit:g} s ago; the drain no longer waits for it",
        )

    def _daemon_set(self, pod: Pod) -> PodFinding | None:
        owner = pod.controller
        if owner is None or owner.kind != "DaemonSet" or owner.api_version != "apps/v1":
            return None
        if pod.is_finished:
            return _FINISHED
        if not self.daemon_set_exists(pod.metadata.namespace, owner.name):
            # The garbage collector deletes the pods of a deleted DaemonSet, so the pod may
            # already be terminating.
            return None if pod.is_terminating else self._orphan(owner.name)
        if self.options.ignore_daemon_sets:
            return PodFinding(
                PodAction.IGNORE, PodReason.DAEMON_SET, f"DaemonSet {owner.name} controls it"
            )
        return PodFinding(
            PodAction.REFUSE,
            PodReason.DAEMON_SET_NOT_IGNORED,
            f"DaemonSet {owner.name} would re-create it immediately; "
            "set ignoreDaemonSets: true to leave it on the node",
        )

    def _orphan(self, daemon_set: str) -> PodFinding:
        gone = f"its DaemonSet {daemon_set} no longer exists"
        if self.options.force:
            return PodFinding(PodAction.EVICT, PodReason.DAEMON_SET_GONE, gone)
        return PodFinding(
            PodAction.REFUSE, PodReason.DAEMON_SET_GONE, f"{gone}; set force: true to evict it"
        )

    def _mirror(self, pod: Pod) -> PodFinding | None:
        if not pod.is_mirror:
            return None
        return PodFinding(
            PodAction.IGNORE, PodReason.MIRROR, "a static pod, which its kubelet runs from a file"
        )

    def _leaves_by_itself(self, pod: Pod) -> PodFinding | None:
        hook = pod.metadata.annotations.get(self.options.hook_annotation)
        # A finished pod serves no client, and its controller may keep it.
        if not hook or pod.is_finished:  # mutant: pods-with-a-hook-evicted
            return None
        return PodFinding(
            PodAction.WAIT,
            PodReason.LEAVES_BY_ITSELF,
            f"its controller removes it after the hook {hook}",
        )

    def _terminating(self, pod: Pod) -> PodFinding | None:
        # kubectl applies the filters below to such a pod. But the pod terminates in any
        # case, so no option is needed to wait for it.
        if not pod.is_terminating:
            return None
        return PodFinding(PodAction.WAIT, PodReason.TERMINATING, "it is terminating")

    def _local_storage(self, pod: Pod) -> PodFinding | None:
        if not pod.has_local_data or pod.is_finished:
            return None
        if self.options.delete_empty_dir_data:
            return PodFinding(
                PodAction.EVICT, PodReason.LOCAL_STORAGE, "its emptyDir data will be lost"
            )
        return PodFinding(
            PodAction.REFUSE,
            PodReason.LOCAL_STORAGE,
            "its emptyDir data would be lost; set deleteEmptyDirData: true to accept the loss",
        )

    def _unmanaged(self, pod: Pod) -> PodFinding | None:
        if pod.is_finished:
            return _FINISHED
        if pod.controller is not None:
            return None
        if self.options.force:
            return PodFinding(
                PodAction.EVICT, PodReason.UNMANAGED, "no controller will re-create it"
            )
        return PodFinding(
            PodAction.REFUSE,
            PodReason.UNMANAGED,
            "no controller would re-create it; set force: true to evict it",
        )


class PlannedPod(msgspec.Struct, frozen=True):
    """A pod and the decision about it."""

    pod: Pod
    finding: PodFinding

    @property
    def name(self) -> str:
        """The pod as `namespace/name`."""
        return full_name(self.pod.metadata)

    @property
    def uid(self) -> str:
        """The pod's uid, which a later pod of the same name does not share."""
        return self.pod.metadata.uid


class DrainPlan(msgspec.Struct, frozen=True):
    """The pods of a node, each in exactly one group.

    The order within a group is stable: ordinary pods first, system-critical pods last; then by
    namespace and name.

    Attributes:
        evict: Pods that must be evicted.
        wait: Pods that terminate, or that their controller removes.
        ignore: Pods that stay on the node.
        refuse: Pods that must leave and that the options do not allow to be evicted. If there
            is one before the first eviction, no pod may be evicted.
    """

    evict: tuple[PlannedPod, ...] = ()
    wait: tuple[PlannedPod, ...] = ()
    ignore: tuple[PlannedPod, ...] = ()
    refuse: tuple[PlannedPod, ...] = ()

    @property
    def to_go(self) -> tuple[PlannedPod, ...]:
        """All pods that must still leave the node."""
        return (*self.evict, *self.wait, *self.refuse)

    @property
    def is_drained(self) -> bool:
        """Whether no pod must leave the node any more."""
        return not (self.evict or self.wait or self.refuse)


def classify(
    pods: Iterable[Pod],
    options: DrainOptions,
    daemon_set_exists: DaemonSetExists,
    *,
    now: datetime,
) -> DrainPlan:
    """Decide what happens to each pod of a node.

    A pure function of its arguments, except for calls of `daemon_set_exists`, whose exceptions
    pass through.

    Args:
        pods: The pods of one node, in any order.
        options: What the caller allows.
        daemon_set_exists: Called with namespace and name, once per pod of a DaemonSet.
        now: The present time, with a time zone; decides how long pods have been terminating.
    """
    filters = _PodFilters(options, daemon_set_exists, now)
    groups: dict[PodAction, list[PlannedPod]] = {action: [] for action in PodAction}
    for pod in sorted(pods, key=_order):
        finding = filters.evaluate(pod)
        groups[finding.action].append(PlannedPod(pod, finding))
    return DrainPlan(
        evict=tuple(groups[PodAction.EVICT]),
        wait=tuple(groups[PodAction.WAIT]),
        ignore=tuple(groups[PodAction.IGNORE]),
        refuse=tuple(groups[PodAction.REFUSE]),
    )


def _order(pod: Pod) -> tuple[bool, str, str]:
    return (pod.is_critical, pod.metadata.namespace, pod.metadata.name)
