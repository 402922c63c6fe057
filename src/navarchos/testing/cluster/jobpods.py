"""What the controller of a Job does next: pure decisions.

The rules are those of `pkg/controller/job/job_controller.go`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from navarchos.testing.cluster.kinds import Job, Pod
from navarchos.testing.cluster.replicas import next_step

__all__ = ["Backoff", "Plan", "Tally", "Verdict", "is_over", "plan"]

_FIRST_DELAY: Final = 10.0
_LONGEST_DELAY: Final = 600.0
"""Simulated seconds between a failure and the next try; they double in between."""


class Verdict(StrEnum):
    """How a Job comes to its end: the type of the condition that it ends with."""

    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of a Job's status."""

    active: int
    ready: int
    succeeded: int
    failed: int
    terminating: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Pods to create or to delete, and what the status should say.

    Attributes:
        create: How many pods are missing.
        delete: Active pods that are too many.
        tally: The counts.
        failures: Uids of the pods whose failure is counted for the first time.
        successes: Uids of the pods whose success is.
        verdict: Whether the Job has come to its end, but for pods that still run.
    """

    create: int
    delete: tuple[Pod, ...]
    tally: Tally
    failures: frozenset[str] = frozenset()
    successes: frozenset[str] = frozenset()
    verdict: Verdict | None = None

    @property
    def is_settled(self) -> bool:
        """Whether none of its pods runs any more."""
        return not self.tally.active and not self.tally.terminating

    @property
    def conditions(self) -> tuple[str, ...]:
        """The types of the conditions that are true.

        First it is said how the Job will end, and that it has once its last pod is gone:
        servers refuse `Complete` before `SuccessCriteriaMet`.
        """
        if self.verdict is None:
            return ()
        first = "SuccessCriteriaMet" if self.verdict is Verdict.COMPLETE else "FailureTarget"
        return (first, self.verdict.value) if self.is_settled else (first,)

    def differs_from(self, job: Job) -> bool:
        """Tell whether the status says something else."""
        shown = job.status
        counts = Tally(shown.active, shown.ready, shown.succeeded, shown.failed, shown.terminating)
        return self.tally != counts or not true_conditions(job).issuperset(self.conditions)


def plan(job: Job, pods: Iterable[Pod], counted: Collection[str]) -> Plan:
    """Return what is missing for a Job to come to its end.

    Args:
        job: The Job.
        pods: Those that it owns.
        counted: Uids of pods whose end is already part of the status; they may be gone
            by now.
    """
    pods = list(pods)
    fresh = [pod for pod in pods if pod.metadata.uid not in counted]
    successes = frozenset(p.metadata.uid for p in fresh if p.status.phase == "Succeeded")
    failures = frozenset(p.metadata.uid for p in fresh if _has_failed(job, p))
    active = [pod for pod in pods if pod.is_active]
    tally = Tally(
        active=len(active),
        ready=sum(pod.is_ready for pod in active),
        succeeded=job.status.succeeded + len(successes),
        failed=job.status.failed + len(failures),
        terminating=sum(pod.is_terminating and not pod.is_finished for pod in pods),
    )
    verdict = _verdict(job, tally)
    wanted = 0 if verdict is not None else _wanted(job, tally)
    step = next_step(active, wanted)
    # Who asks for it waits until a pod has ended before another one takes its place.
    held = tally.terminating if _waits_for_the_end(job) else 0
    create = max(0, step.create - held)
    return Plan(create, step.delete, tally, failures, successes, verdict)


def _verdict(job: Job, tally: Tally) -> Verdict | None:
    shown = true_conditions(job)
    if "FailureTarget" in shown or tally.failed > job.spec.backoff_limit:
        return Verdict.FAILED
    if job.spec.completions is None:
        is_complete = tally.succeeded > 0 and not tally.active
    else:
        is_complete = tally.succeeded >= job.spec.completions
    return Verdict.COMPLETE if is_complete or "SuccessCriteriaMet" in shown else None


def _wanted(job: Job, tally: Tally) -> int:
    if job.spec.completions is not None:
        return min(job.spec.parallelism, job.spec.completions - tally.succeeded)
    # A work queue: once a pod has succeeded the others come to their end, and no new one.
    return min(tally.active, job.spec.parallelism) if tally.succeeded else job.spec.parallelism


def _has_failed(job: Job, pod: Pod) -> bool:
    """Tell whether a pod counts as failed: one that is deleted does, as upstream."""
    if pod.status.phase == "Failed":
        return True
    return pod.is_terminating and not pod.is_finished and not _waits_for_the_end(job)


def _waits_for_the_end(job: Job) -> bool:
    return job.spec.pod_replacement_policy == "Failed"


def true_conditions(job: Job) -> set[str]:
    """Return the types of a Job's conditions that are true."""
    return {c.type for c in job.status.conditions if c.status == "True"}


def is_over(job: Job) -> bool:
    """Tell whether a Job has come to its end."""
    return not true_conditions(job).isdisjoint(Verdict)


class Backoff:
    """How long a Job waits after its pods have failed.

    Ten seconds after the first failure, twice as long after each further one, ten
    minutes at most; a success begins anew.
    """

    def __init__(self) -> None:
        self._noted: set[str] = set()
        self._in_a_row = 0
        self._last = 0.0

    def note(self, step: Plan, now: float) -> None:
        """Take the ends of pods into account; those that were noted count once."""
        if step.successes - self._noted:
            self._in_a_row = 0
        if fresh := step.failures - self._noted:
            self._in_a_row += len(fresh)
            self._last = now
        self._noted |= step.successes | step.failures

    def left(self, now: float, *, speed: float) -> float:
        """Return the real seconds until a pod may be created."""
        if not self._in_a_row:
            return 0.0
        delay = min(_FIRST_DELAY * 2.0 ** min(self._in_a_row - 1, 10), _LONGEST_DELAY)
        return max(0.0, self._last + delay / speed - now)
