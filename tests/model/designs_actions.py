"""Designed runs of actions, verifications, preparations and cancellations.

Each one leads a node into one situation, and checks what follows. The judge and the checks at the
end of a run are those of random runs.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.model.designs import Stage, expect
from tests.model.ending import faults_at_the_end
from tests.model.facts import GROUP, is_finished_job, phase_of
from tests.model.judging import Verdict
from tests.model.scheduling import Process
from tests.model.serving import Cut

from navarchos.operator.marks import EXCLUDE_LABEL
from navarchos.testing.apiserver.handler import ApiCall
from navarchos.testing.apiserver.requests import Request

__all__ = ["ACTION_DESIGNS", "play_action_design"]

_ROLLOUT: Final = f"/apis/{GROUP}/v1alpha1/noderollouts/r"
_DRAINS: Final = f"/apis/{GROUP}/v1alpha1/nodedrains"
_JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"


class ActionStage(Stage):
    """A stage with a controller of Jobs, hooks and kubelets."""

    def __init__(self) -> None:
        super().__init__()
        self.actors.begin()

    def begin(self, *results: str, **fields: Any) -> None:
        """Create a rollout of node n1, whose Jobs have these results.

        Args:
            results: `Complete`, `Failed` or `Hangs`, in order.
            fields: The spec of the rollout, with the fields of `action` besides its Job.
        """
        self.actors.results = [*results]
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        job = {"namespace": "default", "template": {"spec": {"template": {"spec": pod}}}}
        fields["action"] = {"job": job, **fields.get("action", {})}
        fields.setdefault("nodeSelectors", [])
        if not fields["nodeSelectors"]:
            fields["nodeNames"] = [{"name": "n1"}]
        fields["strategy"] = {"retries": 0, **fields.get("strategy", {})}
        self.add_rollout(**fields)

    def jobs(self) -> list[dict[str, Any]]:
        """Return all Jobs."""
        return self.server.list("jobs", "batch")

    def edit(self, **spec: Any) -> None:
        """Edit the rollout."""
        self.ask("PATCH", _ROLLOUT, {"spec": spec})

    def replacement(self) -> dict[str, Any]:
        """Return the replacement of node n1."""
        return next(r for r in self._of("nodereplacements") if r["spec"]["nodeName"] == "n1")

    def expect_phase(self, phase: str) -> None:
        """Wait until the rollout is in this phase."""
        self.wait(lambda: phase_of(self.rollout()) == phase)

    def expect_failure(self, *reasons: str) -> None:
        """Check why the attempts have failed, in order."""
        failures = (self.replacement().get("status") or {}).get("failures") or ()
        found = tuple(each["reason"] for each in failures)
        expect(found == reasons, f"the attempts failed with {found}, not with {reasons}")

    def check_end(self) -> None:
        """Check the state of the cluster as after a random run.

        Raises:
            Verdict: Something is left, or was not done.
        """
        self.pass_time(5.0)
        faults = faults_at_the_end(self.server, self.judge, self.people)
        expect(not faults, "; ".join(faults))


def _a_pause_before_the_job(stage: ActionStage) -> None:
    """A node that is paused before its Job exists gets none until it continues (NP-12)."""
    before, cut = stage.trouble.before, [True]

    def refuse(process: Process, call: ApiCall, asked: Request) -> None:
        before(process, call, asked)
        if cut[0] and (call.verb, call.resource) == ("create", "jobs"):
            raise Cut

    stage.trouble.before = refuse  # type: ignore[method-assign]
    stage.begin("Complete", action={"node": "Cordoned"})
    stage.wait(lambda: stage.step_of("n1") == "Acting")
    stage.pass_time(2.0)
    stage.edit(paused=True)
    stage.pass_time(12.0)
    cut[0] = False
    stage.pass_time(60.0)
    expect(not stage.jobs(), "a Job was created while its replacement is paused")
    stage.edit(paused=False)
    stage.expect_over("n1")
    stage.check_end()


def _a_lost_cordon(stage: ActionStage) -> None:
    """A Job whose node lost its NodeDrain is ended before the attempt is over."""
    stage.begin("Hangs")
    stage.wait(lambda: bool(stage.jobs()))
    stage.pass_time(3.0)
    stage.ask("DELETE", f"{_DRAINS}/r-n1")
    stage.expect_phase("Halted")
    stage.expect_failure("DrainDeleted")
    expect(not stage.jobs(), "the Job of a failed attempt has not been ended")
    stage.check_end()


def _a_deleted_rollout(stage: ActionStage) -> None:
    """A Job is ended before its node is returned (NP-12)."""
    stage.begin("Hangs", drain={"prepare": {"excludeFromExternalLoadBalancers": True}})
    stage.wait(lambda: bool(stage.jobs()))
    stage.pass_time(3.0)
    stage.ask("DELETE", _ROLLOUT)
    stage.wait(lambda: not stage.jobs())
    stage.wait(lambda: not (stage._of("nodereplacements") or stage._of("nodedrains")))
    expect(not stage.is_cordoned("n1"), "n1 was not uncordoned")
    stage.check_end()


def _a_cancelled_rollout(stage: ActionStage) -> None:
    """After `spec.cancel` a node in flight finishes, and no other one starts (NP-12)."""
    stage.begin("Complete", "Complete", nodeSelectors=[{"matchAll": True}])
    stage.wait(lambda: bool(stage.jobs()))
    stage.edit(cancel=True)
    stage.expect_phase("Completed")
    stage.expect_none(20.0)
    status = stage.rollout()["status"]
    counts = status.get("replacementsCompletedCount"), status.get("replacementsCancelledCount")
    expect(counts == (1, 5), f"{counts} nodes were completed and cancelled, not 1 and 5")
    stage.check_end()


def _a_hook_that_never_answers(stage: ActionStage) -> None:
    """A node that is not prepared in time is never cordoned (IG-73)."""
    prepare = {"hooks": ["never"], "timeoutSeconds": 20, "excludeFromExternalLoadBalancers": True}
    stage.begin(drain={"prepare": prepare}, strategy={"retries": 1})
    was_cordoned: list[str] = []

    def is_over() -> bool:
        was_cordoned.extend(["n1"] if stage.is_cordoned("n1") else [])
        return phase_of(stage.rollout()) == "Halted"

    elapsed = stage.wait(is_over)
    expect(40.0 <= elapsed <= 60.0, f"two attempts of 20 s took {elapsed:.1f} s")
    expect(not was_cordoned, "n1 was cordoned before its hook answered")
    stage.expect_failure("PrepareTimeout", "PrepareTimeout")
    stage.check_end()


def _a_hook_that_is_not_needed(stage: ActionStage) -> None:
    """With `onTimeout: Proceed` the node is drained after the timeout, and not before (IG-73)."""
    prepare = {"hooks": ["never"], "timeoutSeconds": 20, "onTimeout": "Proceed"}
    stage.begin("Complete", drain={"prepare": prepare})
    elapsed = stage.wait(lambda: stage.is_cordoned("n1"))
    expect(20.0 <= elapsed <= 25.0, f"n1 was cordoned after {elapsed:.1f} s")
    stage.expect_over("n1")
    stage.check_end()


def _a_pod_with_a_hook(stage: ActionStage) -> None:
    """A pod with a hook is not evicted: its controller removes it after the answer (IG-71)."""
    stage.actors.add_guard("n1", "late")
    stage.begin("Complete")
    stage.expect_over("n1")
    stage.check_end()


def _a_node_with_marks(stage: ActionStage) -> None:
    """A node has its marks while its Job runs, and none after it has returned (IG-74)."""
    stage.begin("Complete", drain={"prepare": {"excludeFromExternalLoadBalancers": True}})
    stage.wait(lambda: bool(stage.jobs()))
    node = stage.server.find("nodes", "n1")
    expect(node is not None and EXCLUDE_LABEL in node["metadata"]["labels"], "n1 has no mark")
    stage.expect_over("n1")
    expect(not stage.is_cordoned("n1"), "n1 did not return")
    stage.check_end()


def _a_deleted_job(stage: ActionStage) -> None:
    """A Job that a user deletes fails its attempt, and the next attempt has another Job."""
    stage.begin("Hangs", "Complete", strategy={"retries": 1})
    stage.wait(lambda: bool(stage.jobs()))
    stage.pass_time(3.0)
    stage.ask("DELETE", f"{_JOBS}/r-n1-job1?propagationPolicy=Background")
    stage.expect_over("n1")
    stage.expect_failure("JobDeleted")
    stage.check_end()


def _jobs_that_fail(stage: ActionStage) -> None:
    """A failed Job is repeated `retries` times; a resume begins again (UP-73)."""
    stage.begin("Failed", "Failed", "Failed", "Complete", strategy={"retries": 2, "maxFailures": 1})
    stage.expect_phase("Halted")
    expect(len(stage.jobs()) == 3, f"{len(stage.jobs())} Jobs were created, not 3")
    stage.expect_failure("JobFailed", "JobFailed", "JobFailed")
    stage.check_end()
    stage.people.resume()
    stage.expect_phase("Completed")
    expect(sum(map(is_finished_job, stage.jobs())) == 4, "there was no fourth Job")
    stage.check_end()


def _a_node_that_is_ready_late(stage: ActionStage) -> None:
    """A node counts as done when it has been Ready for `readySeconds` (NP-21)."""
    verify = {"readySeconds": 5, "timeoutSeconds": 120}
    stage.begin("Complete", action={"verify": verify})
    stage.wait(lambda: bool(stage.jobs()))
    stage.actors.make_unwell("n1", 60.0)
    stage.wait(lambda: stage.step_of("n1") == "Verifying")
    stage.pass_time(30.0)
    expect(stage.step_of("n1") == "Verifying", "n1 was verified before it was Ready")
    stage.expect_over("n1")
    stage.check_end()


def _a_node_that_is_never_ready(stage: ActionStage) -> None:
    """A node that is not well in time fails its attempt (NP-21)."""
    verify = {"readySeconds": 5, "timeoutSeconds": 30}
    stage.begin("Complete", action={"verify": verify, "node": "InService"})
    stage.wait(lambda: bool(stage.jobs()))
    stage.actors.make_unwell("n1", 600.0)
    stage.expect_phase("Halted")
    stage.expect_failure("NotReadyAgain")
    stage.check_end()


def _pods_that_stay(stage: ActionStage) -> None:
    """No Job is created while pods that had to leave are on the node (UP-72)."""
    stage.cluster.set_budget("web", {"maxUnavailable": 0})
    stage.cluster.count_budgets()
    stage.begin("Complete", strategy={"retries": 9})
    stage.wait(lambda: stage.is_cordoned("n1"))
    has_pods = any(
        pod["spec"].get("nodeName") == "n1" and pod["metadata"]["labels"].get("app") == "web"
        for pod in stage.server.list("pods")
    )
    expect(has_pods, "no pod has to leave n1")
    stage.pass_time(40.0)
    expect(not stage.jobs(), "a Job was created, and pods are on its node")
    stage.cluster.set_budget("web", {"maxUnavailable": 9})
    stage.cluster.count_budgets()
    stage.expect_over("n1")
    stage.check_end()


ACTION_DESIGNS: Final[Mapping[str, Callable[[ActionStage], None]]] = {
    "a pause before the job": _a_pause_before_the_job,
    "a lost cordon": _a_lost_cordon,
    "a deleted rollout": _a_deleted_rollout,
    "a cancelled rollout": _a_cancelled_rollout,
    "a hook that never answers": _a_hook_that_never_answers,
    "a hook that is not needed": _a_hook_that_is_not_needed,
    "a pod with a hook": _a_pod_with_a_hook,
    "a node with marks": _a_node_with_marks,
    "a deleted job": _a_deleted_job,
    "jobs that fail": _jobs_that_fail,
    "a node that is ready late": _a_node_that_is_ready_late,
    "a node that is never ready": _a_node_that_is_never_ready,
    "pods that stay": _pods_that_stay,
}
"""What happens, by name."""


def play_action_design(name: str) -> str:
    """Play a designed run; return the violation, or an empty text."""
    stage = ActionStage()
    try:
        ACTION_DESIGNS[name](stage)
    except Verdict as verdict:
        return f"{name}: {verdict}"
    finally:
        stage.close()
    return ""
