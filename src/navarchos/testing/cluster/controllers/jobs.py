"""Jobs: pods that run to their end.

Simulated are `parallelism`, `completions`, `backoffLimit` with its delays, and
`podReplacementPolicy`. Not simulated: indexes, deadlines, suspension, policies for
failures and success, tracking finalizers. An end is counted once by this process; a
pod that vanishes between its end and the count runs again, as it did in Kubernetes
before finalizers.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from navarchos.client import NotFound, ignore_terminating_namespace
from navarchos.meta import format_time
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster import kinds, options
from navarchos.testing.cluster.context import SimulatorContext, terminating
from navarchos.testing.cluster.controllers.replicasets import next_step
from navarchos.testing.cluster.controllers.workload_reconciler import PodControl, owner_of
from navarchos.testing.cluster.pods import from_template

__all__ = [
    "JobBackoff",
    "JobCounts",
    "JobPlan",
    "JobResult",
    "Jobs",
    "install",
    "is_over",
    "plan",
    "true_conditions",
]

_FIRST_DELAY: Final = 10.0
_MAX_DELAY: Final = 600.0
"""Simulated seconds between a failure and the next attempt; the delay doubles."""


class JobResult(StrEnum):
    """The result of a Job: the type of its final condition."""

    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The counts of a Job's status."""

    active: int
    ready: int
    succeeded: int
    failed: int
    terminating: int


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The pods to create and to delete, and the new status.

    Attributes:
        create: The number of missing pods.
        delete: The surplus active pods.
        counts: The counts of the status.
        failures: The uids of the pods whose failure is not counted yet.
        successes: The uids of the pods whose success is not counted yet.
        result: The result of the Job, also while pods still run; `None` before.
    """

    create: int
    delete: tuple[kinds.Pod, ...]
    counts: JobCounts
    failures: frozenset[str] = frozenset()
    successes: frozenset[str] = frozenset()
    result: JobResult | None = None

    @property
    def is_settled(self) -> bool:
        """Whether no pod of the Job is running."""
        return not self.counts.active and not self.counts.terminating

    @property
    def conditions(self) -> tuple[str, ...]:
        """The types of the conditions that are true.

        A first condition announces the result, and the final one follows after the last
        pod has ended: servers refuse `Complete` without `SuccessCriteriaMet`.
        """
        if self.result is None:
            return ()
        first = "SuccessCriteriaMet" if self.result is JobResult.COMPLETE else "FailureTarget"
        return (first, self.result.value) if self.is_settled else (first,)

    def differs_from(self, job: kinds.Job) -> bool:
        """Return whether the Job's status differs."""
        shown = job.status
        counts = JobCounts(
            shown.active, shown.ready, shown.succeeded, shown.failed, shown.terminating
        )
        return self.counts != counts or not true_conditions(job).issuperset(self.conditions)


def plan(job: kinds.Job, pods: Iterable[kinds.Pod], counted: Collection[str]) -> JobPlan:
    """Return the next step of a Job.

    Args:
        job: The Job.
        pods: The pods of the Job.
        counted: The uids of pods whose end is already part of the status, also of pods that
            no longer exist.
    """
    pods = list(pods)
    fresh = [pod for pod in pods if pod.metadata.uid not in counted]
    successes = frozenset(p.metadata.uid for p in fresh if p.status.phase == "Succeeded")
    failures = frozenset(p.metadata.uid for p in fresh if _has_failed(job, p))
    active = [pod for pod in pods if pod.is_active]
    counts = JobCounts(
        active=len(active),
        ready=sum(pod.is_ready for pod in active),
        succeeded=job.status.succeeded + len(successes),
        failed=job.status.failed + len(failures),
        terminating=sum(pod.is_terminating and not pod.is_finished for pod in pods),
    )
    result = _verdict(job, counts)
    wanted = 0 if result is not None else _wanted(job, counts)
    step = next_step(active, wanted)
    # With podReplacementPolicy=Failed, a pod is replaced only after it has ended.
    held = counts.terminating if _waits_for_the_end(job) else 0
    create = max(0, step.create - held)
    return JobPlan(create, step.delete, counts, failures, successes, result)


def _verdict(job: kinds.Job, counts: JobCounts) -> JobResult | None:
    shown = true_conditions(job)
    if "FailureTarget" in shown or counts.failed > job.spec.backoff_limit:
        return JobResult.FAILED
    if job.spec.completions is None:
        is_complete = counts.succeeded > 0 and not counts.active
    else:
        is_complete = counts.succeeded >= job.spec.completions
    return JobResult.COMPLETE if is_complete or "SuccessCriteriaMet" in shown else None


def _wanted(job: kinds.Job, counts: JobCounts) -> int:
    if job.spec.completions is not None:
        return min(job.spec.parallelism, job.spec.completions - counts.succeeded)
    # A work queue: after the first success no pod is created, and the others finish.
    return min(counts.active, job.spec.parallelism) if counts.succeeded else job.spec.parallelism


def _has_failed(job: kinds.Job, pod: kinds.Pod) -> bool:
    """Return whether a pod counts as failed; a deleted pod does, as in upstream."""
    if pod.status.phase == "Failed":
        return True
    return pod.is_terminating and not pod.is_finished and not _waits_for_the_end(job)


def _waits_for_the_end(job: kinds.Job) -> bool:
    return job.spec.pod_replacement_policy == "Failed"


def true_conditions(job: kinds.Job) -> set[str]:
    """Return the types of a Job's conditions that are true."""
    return {c.type for c in job.status.conditions if c.status == "True"}


def is_over(job: kinds.Job) -> bool:
    """Return whether a Job has finished."""
    return not true_conditions(job).isdisjoint(JobResult)


class JobBackoff:
    """The delay of a Job after failures of its pods.

    The delay is ten seconds after the first failure and doubles with each further one, up
    to ten minutes. A success resets it.
    """

    def __init__(self) -> None:
        self._noted: set[str] = set()
        self._in_a_row = 0
        self._last = 0.0

    def note(self, step: JobPlan, now: float) -> None:
        """Record finished pods; each pod counts once."""
        if step.successes - self._noted:
            self._in_a_row = 0
        if fresh := step.failures - self._noted:
            self._in_a_row += len(fresh)
            self._last = now
        self._noted |= step.successes | step.failures

    def remaining(self, now: float, *, speed: float) -> float:
        """Return the real seconds until a pod may be created."""
        if not self._in_a_row:
            return 0.0
        delay = min(_FIRST_DELAY * 2.0 ** min(self._in_a_row - 1, 10), _MAX_DELAY)
        return max(0.0, self._last + delay / speed - now)


_CONDITION_TEXTS: Final = {
    JobResult.COMPLETE: ("CompletionsReached", "Reached expected number of succeeded pods"),
    JobResult.FAILED: ("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
}


@dataclass(slots=True)
class _Memory:
    """The controller's knowledge about a Job in addition to its status."""

    uid: str
    counted: set[str] = field(default_factory=set)  # pods whose end the status counts
    backoff: JobBackoff = field(default_factory=JobBackoff)


class Jobs(Reconciler):
    """Creates pods until enough of them have succeeded.

    Threads: one worker, because the counted pods are kept in memory without a lock.
    """

    def __init__(self, context: SimulatorContext) -> None:
        self._context = context
        self._jobs = context.writer(options.Agent.CONTROLLERS, kinds.JOBS)
        self._pods = PodControl(context)
        self._memories: dict[Request, _Memory] = {}

    def reconcile(self, request: Request) -> Result:
        """Reconcile one Job."""
        found = self._context.jobs.lister.find(request.name, request.namespace)
        if found is None or terminating(found) or is_over(found):
            self._memories.pop(request, None)
            return DONE
        memory = self._memories.get(request)
        if memory is None or memory.uid != found.metadata.uid:
            memory = self._memories[request] = _Memory(found.metadata.uid)
        now = self._context.clock.monotonic()
        step = self._plan(found, memory)
        memory.backoff.note(step, now)
        left = (
            memory.backoff.remaining(now, speed=self._context.options.speed) if step.create else 0.0
        )
        if not left and (step.create or step.delete):
            self._act(found, step)
            step = self._plan(found, memory)
        if step.differs_from(found):
            with suppress(NotFound):
                self._write_status(found, step)
                memory.counted |= step.successes | step.failures
        return Result(requeue_after=left) if left else DONE

    def _plan(self, found: kinds.Job, memory: _Memory) -> JobPlan:
        return plan(found, self._context.pods_of(found.metadata.uid), memory.counted)

    def _act(self, found: kinds.Job, step: JobPlan) -> None:
        owner, namespace = owner_of(kinds.JOBS, found), found.metadata.namespace
        with ignore_terminating_namespace():
            for _ in range(step.create):
                self._pods.create(from_template(found.spec.template, owner, namespace))
        for pod in step.delete:
            self._pods.delete(pod)

    def _write_status(self, found: kinds.Job, step: JobPlan) -> None:
        when = format_time(self._context.clock.now())
        counts = step.counts
        status: dict[str, object] = {
            "active": counts.active,
            "ready": counts.ready,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
            "terminating": counts.terminating,
        }
        if found.status.start_time is None:
            status["startTime"] = when
        if step.result is not None:
            status["conditions"] = _conditions(step, step.result, when)
            if step.result is JobResult.COMPLETE and step.is_settled:
                status["completionTime"] = when
        metadata = found.metadata
        body = {"status": status}
        written = self._jobs.patch(metadata.name, body, metadata.namespace, subresource="status")
        self._context.jobs.observe_write(written)


def _conditions(step: JobPlan, result: JobResult, when: str) -> list[dict[str, object]]:
    reason, message = _CONDITION_TEXTS[result]
    return [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": when,
            "lastTransitionTime": when,
        }
        for kind in step.conditions
    ]


def install(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    Builder(context.manager, "job").for_(kinds.JOBS).owns(kinds.PODS).build(Jobs(context))
