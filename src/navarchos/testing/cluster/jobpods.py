"""What the controller of a Job does next: pure decisions."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from navarchos.testing.cluster.kinds import Job, Pod

__all__ = ["Plan", "is_complete", "plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How many pods to create, and the counts to show."""

    create: int
    active: int
    ready: int
    succeeded: int

    def differs_from(self, job: Job) -> bool:
        """Tell whether the status says something else."""
        shown = job.status
        return (self.active, self.ready, self.succeeded) != (
            shown.active,
            shown.ready,
            shown.succeeded,
        )


def plan(job: Job, pods: Iterable[Pod], counted: Collection[str]) -> Plan:
    """Return what is missing for a Job to come to its end.

    Args:
        job: The Job.
        pods: Those that it owns.
        counted: Uids of pods whose success is already part of the status; they may
            be gone by now.
    """
    pods = list(pods)
    active = [pod for pod in pods if pod.is_active]
    fresh = sum(pod.status.phase == "Succeeded" and pod.metadata.uid not in counted for pod in pods)
    succeeded = job.status.succeeded + fresh
    wanted = min(job.spec.parallelism, job.spec.completions - succeeded)
    return Plan(
        create=max(0, wanted - len(active)),
        active=len(active),
        ready=sum(pod.is_ready for pod in active),
        succeeded=succeeded,
    )


def is_complete(job: Job) -> bool:
    """Tell whether a Job has come to its end."""
    return any(
        c.type in {"Complete", "Failed"} and c.status == "True" for c in job.status.conditions
    )
