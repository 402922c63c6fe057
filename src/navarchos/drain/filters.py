"""What is to be done with a pod: kubectl's filters, in kubectl's order.

The first filter that says "leave it" or "wait" ends the evaluation. Of the others
the first refusal stands, where kubectl keeps the last word only and so loses the
warning about local data of most pods.
"""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from navarchos.drain.options import DrainOptions
from navarchos.drain.pods import Pod

__all__ = ["Action", "DaemonSetExists", "Finding", "Judge", "Reason"]

DaemonSetExists = Callable[[str, str], bool]
"""Given namespace and name. May raise what its look-up raises; the drain fails then."""


class Action(StrEnum):
    """What happens to a pod."""

    EVICT = "Evict"
    WAIT = "Wait"
    IGNORE = "Ignore"
    REFUSE = "Refuse"


class Reason(StrEnum):
    """Why; one closed set for reports, conditions and tests."""

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


class Finding(msgspec.Struct, frozen=True):
    """The verdict on one pod.

    Attributes:
        action: What happens to it.
        reason: Why, for programs.
        message: Why, for people; a refusal says what would lift it.
    """

    action: Action
    reason: Reason
    message: str = ""


_EVICT: Final = Finding(Action.EVICT, Reason.ORDINARY)
_FINISHED: Final = Finding(Action.EVICT, Reason.FINISHED, "it has run to its end")


class Judge(msgspec.Struct, frozen=True):
    """Applies the filters to one pod after the other.

    Attributes:
        options: What the caller allows.
        daemon_set_exists: Looks a DaemonSet up.
        now: The time by which terminating pods are judged.
    """

    options: DrainOptions
    daemon_set_exists: DaemonSetExists
    now: datetime

    def judge(self, pod: Pod) -> Finding:
        """Return the verdict on a pod. Raises only what `daemon_set_exists` raises."""
        verdict = _EVICT
        for look in (
            self._selected,
            self._terminating_too_long,
            self._daemon_set,
            self._mirror,
            self._terminating,
            self._local_storage,
            self._unmanaged,
        ):
            finding = look(pod)
            if finding is None:
                continue
            if finding.action is not Action.EVICT:
                return finding
            verdict = _weightier(verdict, finding)
        return verdict

    def _selected(self, pod: Pod) -> Finding | None:
        # kubectl does not even list the others.
        if self.options.pod_selector.matches(pod.metadata.labels):
            return None
        return Finding(Action.IGNORE, Reason.NOT_SELECTED, "the pod selector leaves it out")

    def _terminating_too_long(self, pod: Pod) -> Finding | None:
        limit = self.options.skip_wait_for_delete_timeout
        overdue = pod.overdue(self.now)
        if limit <= 0 or overdue is None or overdue <= limit:
            return None
        return Finding(
            Action.IGNORE,
            Reason.TERMINATING_TOO_LONG,
            f"its grace period ended more than {limit:g} s ago; nobody waits for it any more",
        )

    def _daemon_set(self, pod: Pod) -> Finding | None:
        owner = pod.controller
        if owner is None or owner.kind != "DaemonSet" or owner.api_version != "apps/v1":
            return None
        if pod.is_finished:
            return _FINISHED
        if not self.daemon_set_exists(pod.metadata.namespace, owner.name):
            # The garbage collector follows the DaemonSet: such a pod may be going.
            return None if pod.is_terminating else self._orphan(owner.name)
        if self.options.ignore_daemon_sets:
            return Finding(Action.IGNORE, Reason.DAEMON_SET, f"DaemonSet {owner.name} runs it")
        return Finding(
            Action.REFUSE,
            Reason.DAEMON_SET_NOT_IGNORED,
            f"DaemonSet {owner.name} would bring it back at once; "
            "ignoreDaemonSets: true leaves it alone",
        )

    def _orphan(self, daemon_set: str) -> Finding:
        gone = f"its DaemonSet {daemon_set} is gone"
        if self.options.force:
            return Finding(Action.EVICT, Reason.DAEMON_SET_GONE, gone)
        return Finding(
            Action.REFUSE, Reason.DAEMON_SET_GONE, f"{gone}; force: true removes it all the same"
        )

    def _mirror(self, pod: Pod) -> Finding | None:
        if not pod.is_mirror:
            return None
        return Finding(
            Action.IGNORE, Reason.MIRROR, "a static pod: its kubelet runs it from a file"
        )

    def _terminating(self, pod: Pod) -> Finding | None:
        # kubectl judges such a pod by the filters below. But it goes whatever we
        # say, so nobody's leave is needed to wait for it.
        if not pod.is_terminating:
            return None
        return Finding(Action.WAIT, Reason.TERMINATING, "it is terminating")

    def _local_storage(self, pod: Pod) -> Finding | None:
        if not pod.has_local_data or pod.is_finished:
            return None
        if self.options.delete_empty_dir_data:
            return Finding(Action.EVICT, Reason.LOCAL_STORAGE, "its emptyDir data is lost")
        return Finding(
            Action.REFUSE,
            Reason.LOCAL_STORAGE,
            "its emptyDir data would be lost; deleteEmptyDirData: true accepts that",
        )

    def _unmanaged(self, pod: Pod) -> Finding | None:
        if pod.is_finished:
            return _FINISHED
        if pod.controller is not None:
            return None
        if self.options.force:
            return Finding(Action.EVICT, Reason.UNMANAGED, "no controller brings it back")
        return Finding(
            Action.REFUSE,
            Reason.UNMANAGED,
            "no controller would bring it back; force: true removes it all the same",
        )


def _weightier(present: Finding, new: Finding) -> Finding:
    """Keep the first reason that says more than "ordinary"."""
    return new if present.reason is Reason.ORDINARY else present
