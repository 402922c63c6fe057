"""Jobs: pods that run to their end.

Simulated are `parallelism`, `completions`, `backoffLimit` with its delays, and
`podReplacementPolicy`. Not simulated: indexes, deadlines, suspension, policies for
failures and success, tracking finalizers. An end is counted once by this process; a
pod that vanishes between its end and the count runs again, as it did in Kubernetes
before finalizers.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from navarchos.client import NotFound, ignore_terminating_namespace
from navarchos.meta import format_time
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster.agents import Agent
from navarchos.testing.cluster.controllers.frame import PodControl, owner_of
from navarchos.testing.cluster.jobpods import Backoff, Plan, Verdict, is_over, plan
from navarchos.testing.cluster.kinds import JOBS, PODS, Job
from navarchos.testing.cluster.pods import from_template
from navarchos.testing.cluster.world import World, terminating

__all__ = ["Jobs", "install"]

_WHY: Final = {
    Verdict.COMPLETE: ("CompletionsReached", "Reached expected number of succeeded pods"),
    Verdict.FAILED: ("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
}


@dataclass(slots=True)
class _Memory:
    """What is known of a Job beside its status."""

    uid: str
    counted: set[str] = field(default_factory=set)  # pods whose end the status counts
    backoff: Backoff = field(default_factory=Backoff)


class Jobs(Reconciler):
    """Creates pods until enough have succeeded. One worker: it keeps its count."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._jobs = world.writer(Agent.CONTROLLERS, JOBS)
        self._pods = PodControl(world)
        self._memories: dict[Request, _Memory] = {}

    def reconcile(self, request: Request) -> Result:
        """Bring one Job a step forward."""
        found = self._world.jobs.lister.find(request.name, request.namespace)
        if found is None or terminating(found) or is_over(found):
            self._memories.pop(request, None)
            return DONE
        memory = self._memories.get(request)
        if memory is None or memory.uid != found.metadata.uid:
            memory = self._memories[request] = _Memory(found.metadata.uid)
        now = self._world.clock.monotonic()
        step = self._plan(found, memory)
        memory.backoff.note(step, now)
        left = memory.backoff.left(now, speed=self._world.options.speed) if step.create else 0.0
        if not left and (step.create or step.delete):
            self._act(found, step)
            step = self._plan(found, memory)
        if step.differs_from(found):
            with suppress(NotFound):
                self._write_status(found, step)
                memory.counted |= step.successes | step.failures
        return Result(requeue_after=left) if left else DONE

    def _plan(self, found: Job, memory: _Memory) -> Plan:
        return plan(found, self._world.pods_of(found.metadata.uid), memory.counted)

    def _act(self, found: Job, step: Plan) -> None:
        owner, namespace = owner_of(JOBS, found), found.metadata.namespace
        with ignore_terminating_namespace():
            for _ in range(step.create):
                self._pods.create(from_template(found.spec.template, owner, namespace))
        for pod in step.delete:
            self._pods.delete(pod)

    def _write_status(self, found: Job, step: Plan) -> None:
        when = format_time(self._world.clock.now())
        tally = step.tally
        status: dict[str, object] = {
            "active": tally.active,
            "ready": tally.ready,
            "succeeded": tally.succeeded,
            "failed": tally.failed,
            "terminating": tally.terminating,
        }
        if found.status.start_time is None:
            status["startTime"] = when
        if step.verdict is not None:
            status["conditions"] = _conditions(step, step.verdict, when)
            if step.verdict is Verdict.COMPLETE and step.is_settled:
                status["completionTime"] = when
        metadata = found.metadata
        body = {"status": status}
        written = self._jobs.patch(metadata.name, body, metadata.namespace, subresource="status")
        self._world.jobs.observe_write(written)


def _conditions(step: Plan, verdict: Verdict, when: str) -> list[dict[str, object]]:
    reason, message = _WHY[verdict]
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


def install(world: World) -> None:
    """Add the controller to the manager."""
    Builder(world.manager, "job").for_(JOBS).owns(PODS).build(Jobs(world))
