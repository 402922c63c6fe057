"""Jobs: pods that run to their end.

Not simulated: failures, indexes, tracking finalizers. A success is counted once by
this process; a pod that vanishes between its end and the count runs again, as it
did in Kubernetes before finalizers.
"""

from datetime import datetime

from navarchos.meta import format_time
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster.agents import Agent
from navarchos.testing.cluster.jobpods import Plan, is_complete, plan
from navarchos.testing.cluster.kinds import JOBS, PODS, Job
from navarchos.testing.cluster.pods import Owner, from_template
from navarchos.testing.cluster.world import World, terminating

__all__ = ["Jobs", "install"]


class Jobs(Reconciler):
    """Creates pods until enough have succeeded. One worker: it keeps its count."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._jobs = world.writer(Agent.CONTROLLERS, JOBS)
        self._pods = world.writer(Agent.CONTROLLERS, PODS)
        self._counted: dict[str, set[str]] = {}  # pods in `status.succeeded`, by job uid

    def reconcile(self, request: Request) -> Result:
        """Bring one Job a step forward."""
        found = self._world.jobs.lister.find(request.name, request.namespace)
        if found is None or terminating(found) or is_complete(found):
            return DONE
        pods = self._world.pods_of(found.metadata.uid)
        counted = self._counted.setdefault(found.metadata.uid, set())
        step = plan(found, pods, counted)
        for _ in range(step.create):
            self._create(found)
        if step.create:
            step = plan(found, self._world.pods_of(found.metadata.uid), counted)
        if step.differs_from(found):
            self._write_status(found, step)
            counted |= {p.metadata.uid for p in pods if p.status.phase == "Succeeded"}
        return DONE

    def _create(self, owner: Job) -> None:
        metadata = owner.metadata
        reference = Owner("batch/v1", "Job", metadata.name, metadata.uid)
        pod = from_template(owner.spec.template, reference, metadata.namespace)
        self._world.pods.observe_write(self._pods.create(pod, metadata.namespace))

    def _write_status(self, found: Job, step: Plan) -> None:
        body = {"status": _status(found, step, self._world.clock.now())}
        metadata = found.metadata
        written = self._jobs.patch(metadata.name, body, metadata.namespace, subresource="status")
        self._world.jobs.observe_write(written)


def _status(found: Job, step: Plan, now: datetime) -> dict[str, object]:
    when = format_time(now)
    status: dict[str, object] = {
        "active": step.active,
        "ready": step.ready,
        "succeeded": step.succeeded,
    }
    if found.status.start_time is None:
        status["startTime"] = when
    if step.succeeded >= found.spec.completions:
        status["completionTime"] = when
        times = {"lastProbeTime": when, "lastTransitionTime": when}
        # The server accepts `Complete` only after `SuccessCriteriaMet`.
        status["conditions"] = [
            {"type": kind, "status": "True", **times} for kind in ("SuccessCriteriaMet", "Complete")
        ]
    return status


def install(world: World) -> None:
    """Add the controller to the manager."""
    Builder(world.manager, "job").for_(JOBS).owns(PODS).build(Jobs(world))
