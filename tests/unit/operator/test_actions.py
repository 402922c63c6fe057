"""Actions: their steps, the Job on each node, crashes, and actions that prepare a node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.cases.waiting import wait_for
from tests.unit.operator.conftest import Make, Operator

from navarchos.client import Propagation, Resource, ignore_already_exists
from navarchos.drain import PODS
from navarchos.errors import ConfigError
from navarchos.instrument import Instruments
from navarchos.meta import Object
from navarchos.operator.actions import (
    ActionDone,
    ActionFailed,
    ActionOutcome,
    ActionRunning,
    Actions,
)
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_ROLLOUTS,
    ActionKind,
    DrainPhase,
    Heir,
    NodeReplacement,
    RolloutPhase,
    Step,
)
from navarchos.operator.jobs import JOBS, job_manifest, job_name
from navarchos.operator.names import ACTION_FINALIZER, DRAIN_COMPLETED_LABEL, RESUME_ANNOTATION
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.replacements.attempt_drain import drain_manifest
from navarchos.operator.replacements.steps import decide
from navarchos.operator.replacements.steps.decision import (
    Advance,
    Complete,
    CompleteReturned,
    CompleteWithoutNode,
    ContinueAction,
    DeleteDrain,
    FailAttempt,
    NoAction,
    StepObservation,
    steps_of,
)
from navarchos.runtime.conditions import Condition, find_condition

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, type=Object)
CONTAINER = {"name": "work", "image": "registry.example.com/work:1"}
TEMPLATE = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}}
JOB: dict[str, Any] = {"job": {"namespace": "work", "template": TEMPLATE}}
RUNNING = {"type": "ActionCompleted", "status": "False", "reason": "ActionRunning"}


# Steps


@pytest.mark.rule("NP-10")
@pytest.mark.parametrize(
    ("action", "steps"),
    [
        (None, "Reserved Cordoned Draining"),
        ({}, "Reserved Cordoned Draining Returning"),
        (JOB, "Reserved Cordoned Draining Acting Returning"),
        ({**JOB, "afterwards": "Keep"}, "Reserved Cordoned Draining Acting"),
        ({**JOB, "node": "Cordoned"}, "Reserved Cordoned Draining Acting Returning"),
        ({**JOB, "node": "InService"}, "Reserved Acting"),
        ({"reboot": {}}, "Reserved Cordoned Draining Acting Verifying Returning"),
        (
            {"plan": {"namespace": "n", "name": "p"}, "node": "InService"},
            "Reserved Acting Verifying",
        ),
        ({"remove": {}}, "Reserved Cordoned Draining Terminating"),
        ({"replace": {}}, "Reserved Cordoned Draining Terminating AwaitingReplacement Verifying"),
    ],
)
def test_the_steps_of_a_node_follow_from_its_spec(
    make: Make, action: dict[str, Any] | None, steps: str
) -> None:
    spec: dict[str, Any] = {} if action is None else {"action": action}
    assert " ".join(steps_of(make.replacement("a", **spec).spec)) == steps


def acting(make: Make, *, step: Step = Step.ACTING, **changes: Any) -> NodeReplacement:
    return make.replacement("a", step=step, **{"action": JOB, **changes})


@pytest.mark.rule("NP-12")
def test_a_pause_starts_no_action_and_lets_a_running_one_end(make: Make) -> None:
    paused = acting(make, paused=True)
    drain, node = make.drain(paused, phase=DrainPhase.COMPLETED), make.node("a")
    assert decide(StepObservation(paused, drain, node)) == NoAction()
    running = acting(make, paused=True, status={"conditions": conditions(RUNNING)})
    assert decide(StepObservation(running, drain, node)) == ContinueAction()


def test_acting_needs_the_node_and_its_cordon(make: Make) -> None:
    replacement, node = acting(make), make.node("a")
    drain = make.drain(replacement, phase=DrainPhase.COMPLETED)
    assert decide(StepObservation(replacement, drain, node)) == ContinueAction()
    assert decide(StepObservation(replacement, drain)) == CompleteWithoutNode()
    other = make.node("a", uid="other")
    assert decide(StepObservation(replacement, drain, other)) == CompleteWithoutNode()
    for undone in (None, make.drain(replacement, deleting=True)):
        decision = decide(StepObservation(replacement, undone, node))
        assert isinstance(decision, FailAttempt)
        assert decision.reason == "DrainDeleted"
    in_service = acting(make, action={**JOB, "node": "InService"})
    assert decide(StepObservation(in_service, None, node)) == ContinueAction()


def test_a_terminated_node_does_not_end_its_action(make: Make) -> None:
    for step in (Step.TERMINATING, Step.AWAITING_REPLACEMENT):
        replacement = acting(make, step=step, action={"replace": {}})
        assert decide(StepObservation(replacement)) == ContinueAction()


@pytest.mark.rule("UP-72")
def test_returning_deletes_the_drain_and_waits_until_it_is_gone(make: Make) -> None:
    replacement = acting(make, step=Step.RETURNING)
    assert decide(StepObservation(replacement, make.drain(replacement))) == DeleteDrain()
    going = make.drain(replacement, deleting=True)
    assert decide(StepObservation(replacement, going)) == NoAction()
    assert decide(StepObservation(replacement)) == CompleteReturned()


def test_what_follows_a_drain(make: Make) -> None:
    for action, following in (
        (None, Complete()),
        (JOB, Advance(Step.ACTING)),
        ({}, Advance(Step.RETURNING)),
        ({"remove": {}}, Advance(Step.TERMINATING)),
    ):
        spec: dict[str, Any] = {} if action is None else {"action": action}
        replacement = make.replacement("a", step=Step.DRAINING, **spec)
        drain = make.drain(replacement, phase=DrainPhase.COMPLETED)
        assert decide(StepObservation(replacement, drain)) == following


def conditions(*given: Mapping[str, str]) -> Any:
    return tuple(Condition(type=c["type"], status=c["status"], reason=c["reason"]) for c in given)


# The manifest of a Job


@pytest.mark.rule("UP-70")
def test_a_job_is_bound_to_its_node(make: Make) -> None:
    replacement = make.replacement("a", action=JOB)
    body = manifest(replacement)
    labels = {"navarchos.pusher.com/action": "uid-roll-a"}
    assert body["metadata"]["name"] == "roll-a-job1"
    assert body["metadata"]["labels"] == labels
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "NodeReplacement",
        "uid-roll-a",
        True,
    )
    pod = body["spec"]["template"]
    assert pod["metadata"]["labels"] == labels
    assert required(pod) == [{"matchFields": [on("a")]}]
    assert pod["spec"]["tolerations"] == [
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    ]
    (container,) = pod["spec"]["containers"]
    assert container["env"] == [
        {"name": "NAVARCHOS_NODE_NAME", "value": "a"},
        {"name": "NAVARCHOS_NODE_UID", "value": "uid-a"},
        {"name": "NAVARCHOS_ROLLOUT", "value": "roll"},
    ]


@pytest.mark.rule("UP-70")
def test_a_job_keeps_what_its_template_says(make: Make) -> None:
    zones = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    preferred = [{"weight": 1, "preference": zones}]
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "work"}, "annotations": {"note": "1"}},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 5,
            "template": {
                "metadata": {"creationTimestamp": None, "labels": {"app": "work"}},
                "spec": {
                    "affinity": {
                        "podAffinity": {"x": 1},
                        "nodeAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [zones, {"matchFields": [on("b")]}]
                            },
                        },
                    },
                    "tolerations": [{"operator": "Exists"}],
                    "initContainers": [{"name": "first"}],
                    "containers": [
                        {
                            "name": "work",
                            "env": [
                                {"name": "NAVARCHOS_NODE_NAME", "value": "mine"},
                                {"name": "HOST", "value": "$(NAVARCHOS_NODE_NAME)"},
                            ],
                        }
                    ],
                },
            },
        },
    }
    replacement = make.replacement("a", action={"job": {"namespace": "work", "template": template}})
    body = manifest(replacement)
    assert body["metadata"]["labels"]["app"] == "work"
    assert body["metadata"]["annotations"] == {"note": "1"}
    assert body["spec"]["backoffLimit"] == 0
    assert "ttlSecondsAfterFinished" not in body["spec"]
    pod = body["spec"]["template"]
    assert pod["metadata"]["labels"]["app"] == "work"
    # The scheduler needs one of these terms: the node must be in each of them.
    assert required(pod) == [
        {**zones, "matchFields": [on("a")]},
        {"matchFields": [on("b"), on("a")]},
    ]
    affinity = pod["spec"]["affinity"]
    assert affinity["podAffinity"] == {"x": 1}
    assert affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert pod["spec"]["tolerations"][0] == {"operator": "Exists"}
    assert pod["spec"]["initContainers"][0]["env"][0]["value"] == "a"
    (container,) = pod["spec"]["containers"]
    assert [entry["value"] for entry in container["env"]] == [
        "a",
        "uid-a",
        "roll",
        "$(NAVARCHOS_NODE_NAME)",
    ]
    assert template["spec"]["ttlSecondsAfterFinished"] == 5, "the template was changed"


@pytest.mark.rule("UP-70")
def test_the_name_of_a_job_is_a_label_value_and_differs_by_attempt(make: Make) -> None:
    names = [
        job_name(make.replacement("a", action=JOB)),
        job_name(make.replacement("a", action=JOB, attempts=1)),
    ]
    assert names == ["roll-a-job1", "roll-a-job2"]
    # While it is released, it is the Job of the attempt that has just been counted.
    assert job_name(make.replacement("a", step=Step.RELEASING, attempts=1)) == "roll-a-job1"
    node = f"ip-{'0' * 60}.example.com"
    long = [job_name(make.replacement(node, attempts=n)) for n in range(3)]
    assert len(set(long)) == 3
    assert all(len(name) <= 63 for name in long)


@pytest.mark.rule("UP-71")
def test_the_drain_of_a_node_with_an_action_spares_the_pods_of_actions(make: Make) -> None:
    mine = {"matchLabels": {"app": "x"}}
    replacement = make.replacement("a", action=JOB, drain={"podSelector": mine})
    spec: Any = stored(drain_manifest(replacement))["spec"]
    assert spec["podSelector"] == {
        **mine,
        "matchExpressions": [
            {"key": "navarchos.pusher.com/action", "operator": "DoesNotExist"},
            {"key": "upgrade.cattle.io/controller", "operator": "DoesNotExist"},
        ],
    }
    plain: Any = drain_manifest(make.replacement("a"))["spec"]
    assert "podSelector" not in plain
    assert "evict" not in plain
    cordon: Any = drain_manifest(make.replacement("a", action={**JOB, "node": "Cordoned"}))["spec"]
    assert cordon["evict"] is False


def stored(body: dict[str, object]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body))


def manifest(replacement: NodeReplacement) -> dict[str, Any]:
    action = replacement.spec.action
    assert action is not None
    assert action.job is not None
    return job_manifest(replacement, action.job)


def required(pod: dict[str, Any]) -> Any:
    nodes = pod["spec"]["affinity"]["nodeAffinity"]
    return nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def on(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


# A Job on each node


def begin(operator: Operator, *nodes: str, action: Mapping[str, Any] = JOB, **spec: Any) -> None:
    add_namespace(operator)
    for node in nodes:
        operator.add_node(node)
    names = [{"name": node} for node in nodes]
    operator.add_rollout("roll", nodeNames=names, action=action, **spec)
    operator.settle()


def add_namespace(operator: Operator) -> None:
    namespaces = operator.client.resource(NAMESPACES)
    with ignore_already_exists():
        namespaces.create({"metadata": {"name": "work"}})


def jobs(operator: Operator) -> list[str]:
    return [job.metadata.name for job in operator.client.resource(JOBS).list("work").items]


def end_job(operator: Operator, name: str, result: str = "Complete", **details: str) -> None:
    """Write what the Job controller would write, without reconciling."""
    early = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[result]
    written = [{"type": type_, "status": "True", **details} for type_ in (early, result)]
    operator.client.resource(JOBS).patch(
        name, {"status": {"conditions": written}}, "work", subresource="status"
    )


def condition(operator: Operator, name: str = "roll-a") -> tuple[str, str, str]:
    found = find_condition(operator.replacement(name).status.conditions, "ActionCompleted")
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.rule("NP-20")
@pytest.mark.rule("UP-74")
def test_a_job_runs_on_the_drained_node_which_then_returns(operator: Operator) -> None:
    begin(operator, "a")
    assert jobs(operator) == []
    operator.finish("roll-a")
    assert operator.steps() == {"roll-a": Step.ACTING}
    assert jobs(operator) == ["roll-a-job1"]
    assert condition(operator) == (
        "False",
        "ActionRunning",
        "Job work/roll-a-job1 has not ended",
    )
    end_job(operator, "roll-a-job1")
    operator.settle()
    status = operator.replacement("roll-a").status
    assert (status.current, status.step.reason if status.step else "") == (Step.DONE, "Returned")
    assert operator.drains() == []
    assert condition(operator)[:2] == ("True", "ActionCompleted")
    drained = find_condition(status.conditions, "NodeDrained")
    assert drained is not None
    assert (drained.status, drained.reason) == ("False", "Returned")
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels
    assert operator.events().count("ActionStarted") == 1
    assert operator.events().count("ActionCompleted") == 1
    assert operator.rollout().status.phase is RolloutPhase.COMPLETED


@pytest.mark.rule("UP-72")
def test_a_node_that_is_kept_is_labelled_and_stays_cordoned(operator: Operator) -> None:
    begin(operator, "a", action={**JOB, "afterwards": "Keep"})
    operator.finish("roll-a")
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels
    end_job(operator, "roll-a-job1")
    operator.settle()
    assert operator.steps() == {"roll-a": Step.DONE}
    assert operator.drain("roll-a").spec.uncordon_on_delete is False
    assert DRAIN_COMPLETED_LABEL in operator.node("a").metadata.labels


def test_a_node_in_service_gets_a_job_and_no_drain(operator: Operator) -> None:
    begin(operator, "a", action={**JOB, "node": "InService"})
    assert operator.steps() == {"roll-a": Step.ACTING}
    assert operator.drains() == []
    end_job(operator, "roll-a-job1")
    operator.settle()
    assert operator.steps() == {"roll-a": Step.DONE}
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels


def test_a_cordoned_node_that_is_kept_is_not_called_drained(operator: Operator) -> None:
    begin(operator, "a", action={**JOB, "node": "Cordoned", "afterwards": "Keep"})
    operator.play("roll-a", DrainPhase.COMPLETED)
    assert operator.steps() == {"roll-a": Step.ACTING}
    end_job(operator, "roll-a-job1")
    operator.settle()
    status = operator.replacement("roll-a").status
    assert status.step is not None
    assert (status.current, status.step.reason) == (Step.DONE, "ActionCompleted")
    assert operator.drain("roll-a").spec.uncordon_on_delete is False
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels


@pytest.mark.rule("UP-73")
def test_a_failed_job_fails_the_attempt_and_halts_the_rollout(operator: Operator) -> None:
    begin(operator, "a", "b", strategy={"retries": 1})
    operator.finish("roll-a")
    end_job(operator, "roll-a-job1", "Failed", reason="BackoffLimitExceeded", message="too many")
    operator.settle()
    failure = operator.replacement("roll-a").status.failures[0]
    assert failure.reason == "JobFailed"
    assert failure.message == ("Job work/roll-a-job1 has failed: BackoffLimitExceeded: too many")
    assert "roll-a" not in operator.drains(), "the node was not returned"
    # The other node comes first, and fails too.
    operator.finish("roll-b")
    end_job(operator, "roll-b-job1", "Failed")
    operator.settle()
    assert operator.rollout().status.phase is RolloutPhase.HALTED
    operator.patch_rollout("roll", metadata={"annotations": {RESUME_ANNOTATION: "now"}})
    operator.settle()
    for node in ("a", "b"):
        operator.finish(f"roll-{node}-attempt2")
        end_job(operator, f"roll-{node}-job2")
        operator.settle()
    assert operator.rollout().status.phase is RolloutPhase.COMPLETED
    assert jobs(operator) == ["roll-a-job1", "roll-a-job2", "roll-b-job1", "roll-b-job2"]


def test_a_refused_job_is_one_failure_that_says_why(operator: Operator) -> None:
    template: dict[str, Any] = {"spec": {"template": {"spec": {"containers": []}}}}
    action = {"job": {"namespace": "work", "template": template}}
    begin(operator, "a", action=action, strategy={"retries": 0})
    operator.finish("roll-a")
    (failure,) = operator.replacement("roll-a").status.failures
    assert failure.reason == "JobRefused"
    assert "the API server refused Job work/roll-a-job1: " in failure.message
    assert "containers" in failure.message
    assert operator.steps() == {"roll-a": Step.FAILED}


def test_a_missing_namespace_is_a_refusal(operator: Operator) -> None:
    action = {"job": {"namespace": "missing", "template": TEMPLATE}}
    begin(operator, "a", action=action, strategy={"retries": 0})
    operator.finish("roll-a")
    (failure,) = operator.replacement("roll-a").status.failures
    assert failure.reason == "JobRefused"
    assert "missing" in failure.message


def test_a_job_that_another_client_deletes_fails_the_attempt(operator: Operator) -> None:
    begin(operator, "a", strategy={"retries": 0})
    operator.finish("roll-a")
    operator.client.resource(JOBS).delete("roll-a-job1", "work")
    operator.settle()
    (failure,) = operator.replacement("roll-a").status.failures
    assert failure.reason == "JobDeleted"
    assert jobs(operator) == [], "the Job was created again"


def test_a_job_of_another_object_is_not_taken_over(operator: Operator) -> None:
    add_namespace(operator)
    operator.client.resource(JOBS).create({"metadata": {"name": "roll-a-job1"}, **TEMPLATE}, "work")
    begin(operator, "a", strategy={"retries": 0})
    operator.finish("roll-a")
    (failure,) = operator.replacement("roll-a").status.failures
    assert failure.reason == "NameTaken"
    assert operator.steps() == {"roll-a": Step.FAILED}


def test_the_job_of_a_former_replacement_is_awaited(operator: Operator) -> None:
    add_namespace(operator)
    labels = {"navarchos.pusher.com/action": "former"}
    operator.client.resource(JOBS).create(
        {"metadata": {"name": "roll-a-job1", "labels": labels}, **TEMPLATE}, "work"
    )
    begin(operator, "a")
    operator.finish("roll-a")
    assert condition(operator)[1] == "ActionWaiting"
    operator.client.resource(JOBS).delete("roll-a-job1", "work")
    operator.settle()
    assert condition(operator)[1] == "ActionRunning"
    assert jobs(operator) == ["roll-a-job1"]


def test_a_failed_attempt_ends_its_job_before_the_node_is_released(operator: Operator) -> None:
    begin(operator, "a", strategy={"retries": 0})
    operator.finish("roll-a")
    pod = add_pod_of_job(operator, "roll-a-job1")
    operator.client.resource(operator.clients.drains.resource).delete("roll-a")
    operator.settle()
    # The Job is being deleted, and a pod of it still runs on the node.
    assert operator.steps() == {"roll-a": Step.RELEASING}
    assert condition(operator)[1] == "ActionEnding"
    pod()
    operator.settle()
    assert operator.steps() == {"roll-a": Step.FAILED}
    assert jobs(operator) == []


def test_the_node_of_a_running_job_vanishes(operator: Operator) -> None:
    begin(operator, "a")
    operator.finish("roll-a")
    operator.remove_node("a")
    operator.settle()
    status = operator.replacement("roll-a").status
    assert status.step is not None
    assert (status.current, status.step.reason) == (Step.DONE, "NodeGone")
    assert jobs(operator) == [], "the Job would run on the next node of this name"


def watched(operator: Operator) -> list[str]:
    return list(operator.job_caches.namespaces)


def add_pod_of_job(operator: Operator, job: str) -> Callable[[], None]:
    """Add a pod that ends when the returned function is called."""
    found = operator.client.resource(JOBS).get(job, "work")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": found.metadata.uid}
    operator.server.install(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "pod",
                "namespace": "work",
                "finalizers": ["example.com/runs"],
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {"containers": [CONTAINER]},
        }
    )

    def end() -> None:
        operator.client.resource(PODS).patch("pod", {"metadata": {"finalizers": []}}, "work")

    return end


@pytest.mark.rule("UP-70")
def test_jobs_are_watched_only_where_unfinished_nodes_have_them(operator: Operator) -> None:
    begin(operator, "a")
    assert watched(operator) == []
    operator.finish("roll-a")
    assert watched(operator) == ["work"]
    targets = [t for t in operator.transport.targets if "/jobs?" in t and "watch" in t]
    assert targets
    assert all("/namespaces/work/jobs" in target for target in targets)
    assert all("labelSelector=navarchos.pusher.com%2Faction" in target for target in targets)
    end_job(operator, "roll-a-job1")
    operator.settle()
    assert watched(operator) == []


@pytest.mark.rule("NP-11")
@pytest.mark.rule("OP-26")
@pytest.mark.parametrize("afterwards", ["Return", "Keep"])
def test_a_crash_after_any_write_of_an_action_changes_nothing_in_the_end(
    operator: Operator, afterwards: str
) -> None:
    add_namespace(operator)
    writes, lived = 0, False
    while not lived:
        writes += 1
        name = f"r{writes}"
        lived = run_with_crash(operator, name, afterwards, dies_after=writes)
        assert end_state(operator, name) == {
            "step": Step.DONE,
            "reason": "Returned" if afterwards == "Return" else "Drained",
            "attempts": 1,
            "jobs": [f"{name}-{name}-a-job1", f"{name}-{name}-a-job2"],
            "kept": afterwards == "Keep",
            "labelled": afterwards == "Keep",
        }, f"killed after write {writes}"
        operator.client.resource(operator.clients.rollouts.resource).delete(name)
        operator.settle()
    assert writes > 15, "the test did not reach the last write of the rollout"


def run_with_crash(operator: Operator, name: str, afterwards: str, *, dies_after: int) -> bool:
    """Run a rollout of one node, whose first Job fails; return whether the process survived."""
    operator.add_node(f"{name}-a")
    action = {**JOB, "afterwards": afterwards}
    operator.add_rollout(name, nodeNames=[{"name": f"{name}-a"}], action=action)
    operator.transport.writes_left = dies_after
    lived = True
    while operator.rollout(name).status.phase is not RolloutPhase.COMPLETED:
        lived = operator.settle_or_die() and lived
        for drain in operator.drains():
            if drain.startswith(name) and operator.drain(drain).status.phase is None:
                operator.report(drain, DrainPhase.COMPLETED)
        for job in operator.client.resource(JOBS).list("work").items:
            if job.metadata.name.startswith(f"{name}-") and not job.status.conditions:
                first = job.metadata.name.endswith("job1")
                end_job(operator, job.metadata.name, "Failed" if first else "Complete")
    return lived


def end_state(operator: Operator, name: str) -> dict[str, Any]:
    status = operator.replacement(f"{name}-{name}-a").status
    assert status.step is not None
    return {
        "step": status.current,
        "reason": status.step.reason,
        "attempts": status.attempts,
        "jobs": [job for job in jobs(operator) if job.startswith(f"{name}-")],
        "kept": any(drain.startswith(f"{name}-") for drain in operator.drains()),
        "labelled": DRAIN_COMPLETED_LABEL in operator.node(f"{name}-a").metadata.labels,
    }


# Actions of other controllers


@dataclass
class Double:
    """An action that does what the test says."""

    outcomes: dict[str, ActionOutcome] = field(default_factory=dict)
    before_outcomes: dict[str, ActionOutcome] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    cancelled: ActionOutcome = field(default_factory=ActionDone)

    def before(self, replacement: NodeReplacement, node: Node) -> ActionOutcome:
        self.calls.append(f"before {node.metadata.name}")
        return self.before_outcomes.get(node.metadata.name, ActionRunning("still preparing"))

    def act(self, replacement: NodeReplacement, node: Node | None) -> ActionOutcome:
        step = replacement.status.current
        self.calls.append(f"{step} {replacement.spec.node_name}")
        return self.outcomes.get(step, ActionRunning("still at it"))

    def cancel(self, replacement: NodeReplacement) -> ActionOutcome:
        self.calls.append(f"cancel {replacement.spec.node_name}")
        return self.cancelled


def test_an_action_is_registered_once() -> None:
    actions = Actions()
    actions.register(ActionKind.REBOOT, Double())
    with pytest.raises(ConfigError, match="registered already"):
        actions.register(ActionKind.REBOOT, Double())
    assert actions.available == {ActionKind.REBOOT}
    assert actions.preparing == set()


def test_ended_actions_are_counted(make: Make) -> None:
    instruments = Instruments()
    actions, double = Actions(instruments), Double()
    actions.register(ActionKind.REBOOT, double)
    replacement = make.replacement("a", step=Step.ACTING, action={"reboot": {}})
    for outcome in (ActionRunning("x"), ActionDone(), ActionFailed("Why", "so")):
        double.outcomes["Acting"] = outcome
        actions.act(replacement, make.node("a"))
    value = instruments.registry.get_sample_value
    for ended in ("Done", "Failed"):
        labels = {"action": "reboot", "outcome": ended}
        assert value("navarchos_actions_total", labels) == 1


def test_an_action_without_its_controller_waits(make: Make) -> None:
    outcome = Actions().act(make.replacement("a", action={"reboot": {}}), None)
    assert isinstance(outcome, ActionRunning)
    assert not outcome.has_begun
    assert "--controllers=reboots" in outcome.message
    assert Actions().cancel(make.replacement("a")) == ActionDone()


@pytest.mark.rule("NP-20")
def test_a_node_with_an_unavailable_action_waits_and_delays_no_other(operator: Operator) -> None:
    operator.add_node("b")
    begin(operator, "a", action={"reboot": {}}, replacement={"priority": 9})
    operator.add_rollout("other", nodeNames=[{"name": "b"}])
    operator.settle()
    waiting = find_condition(operator.replacement("roll-a").status.conditions, "Waiting")
    assert waiting is not None
    assert waiting.reason == "ActionUnavailable"
    assert "--controllers=reboots" in waiting.message
    assert operator.steps() == {"roll-a": Step.WAITING, "other-b": Step.RESERVED}


@pytest.mark.rule("NP-20")
def test_machines_are_terminated_and_replaced_by_steps(operator: Operator) -> None:
    double = Double()
    operator.actions.register(ActionKind.REPLACE, double)
    begin(operator, "a", action={"replace": {}, "verify": {"readySeconds": 0}})
    operator.finish("roll-a")
    assert operator.steps() == {"roll-a": Step.TERMINATING}
    assert condition(operator)[1:] == ("ActionRunning", "still at it")
    operator.remove_node("a")  # its machine is gone
    double.outcomes["Terminating"] = ActionDone()
    operator.settle()
    assert operator.steps() == {"roll-a": Step.AWAITING_REPLACEMENT}
    operator.add_node("new")
    heir = Heir(node_name="new", node_uid=operator.node("new").metadata.uid)
    double.outcomes["AwaitingReplacement"] = ActionDone(heir)
    operator.settle()
    assert operator.steps() == {"roll-a": Step.VERIFYING}
    assert operator.replacement("roll-a").status.heir == heir
    lacking = find_condition(operator.replacement("roll-a").status.conditions, "NodeVerified")
    assert lacking is not None
    assert lacking.message == "the node is not Ready"
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    operator.client.resource(NODES).patch("new", {"status": ready}, subresource="status")
    operator.settle()
    assert operator.steps() == {"roll-a": Step.DONE}


def test_a_removed_machine_ends_its_node(operator: Operator) -> None:
    double = Double()
    operator.actions.register(ActionKind.REMOVE, double)
    begin(operator, "a", action={"remove": {}})
    operator.finish("roll-a")
    assert operator.steps() == {"roll-a": Step.TERMINATING}
    operator.remove_node("a")
    double.outcomes["Terminating"] = ActionDone()
    operator.settle()
    assert operator.steps() == {"roll-a": Step.DONE}
    assert operator.drain("roll-a").spec.uncordon_on_delete is False


def test_a_failed_action_is_cancelled_before_the_slot_is_released(operator: Operator) -> None:
    double = Double(outcomes={"Acting": ActionFailed("NotNow", "no")})
    double.cancelled = ActionRunning("still ending")
    operator.actions.register(ActionKind.REBOOT, double)
    begin(operator, "a", action={"reboot": {}}, strategy={"retries": 0})
    operator.finish("roll-a")
    assert operator.steps() == {"roll-a": Step.RELEASING}
    assert condition(operator)[1:] == ("ActionEnding", "still ending")
    assert "roll-a" in operator.drains()
    double.cancelled = ActionDone()
    operator.settle()
    assert operator.steps() == {"roll-a": Step.FAILED}
    assert operator.drains() == []


# Deletion while an action runs


@pytest.mark.rule("NP-12")
def test_a_deleted_replacement_stays_until_its_action_has_ended(operator: Operator) -> None:
    double = Double()
    double.cancelled = ActionRunning("it reboots and cannot be stopped")
    operator.actions.register(ActionKind.REBOOT, double)
    begin(operator, "a", action={"reboot": {}})
    assert operator.replacement("roll-a").metadata.finalizers == ()
    operator.finish("roll-a")
    assert operator.replacement("roll-a").metadata.finalizers == (ACTION_FINALIZER,)
    operator.client.resource(NODE_ROLLOUTS).delete("roll")
    wait_for("the deletion", lambda: operator.replacement("roll-a").metadata.deletion_timestamp)
    operator.settle()
    assert operator.drains() == ["roll-a"], "the node is returned while its action runs"
    assert condition(operator)[1:] == ("ActionEnding", "it reboots and cannot be stopped")
    assert operator.replacement("roll-a").status.occupies_slot
    double.cancelled = ActionDone()
    operator.settle()
    wait_for("the end", lambda: operator.names() == [])

    def is_released() -> bool:
        operator.settle()
        return operator.drains() == []

    wait_for("the release", is_released)


@pytest.mark.rule("NP-12")
@pytest.mark.rule("NP-11")
@pytest.mark.parametrize(
    ("policy", "most"), [(Propagation.BACKGROUND, 3), (Propagation.FOREGROUND, 2)]
)
def test_a_crash_after_any_write_of_a_deletion_changes_nothing_in_the_end(
    operator: Operator, policy: Propagation, most: int
) -> None:
    """In the foreground the garbage collector deletes the Job, which saves a write."""
    add_namespace(operator)
    writes, lived = 0, False
    while not lived:
        writes += 1
        name = f"r{writes}"
        lived = delete_with_crash(operator, name, policy, dies_after=writes)
        assert (operator.names(), operator.drains(), jobs(operator)) == ([], [], []), (
            f"killed after write {writes}"
        )
    # The deletion of the Job, the status, the finalizer.
    assert writes == most + 1, "the test did not reach the last write of the deletion"


def delete_with_crash(
    operator: Operator, name: str, policy: Propagation, *, dies_after: int
) -> bool:
    """Delete a rollout while its Job runs; return whether the process survived."""
    operator.add_node(f"{name}-a")
    operator.add_rollout(name, nodeNames=[{"name": f"{name}-a"}], action=JOB)
    operator.settle()
    child = f"{name}-{name}-a"
    operator.finish(child)
    assert operator.replacement(child).metadata.finalizers == (ACTION_FINALIZER,)
    end_pod = add_pod_of_job(operator, f"{child}-job1")
    operator.client.resource(NODE_ROLLOUTS).delete(name, propagation=policy)
    wait_for("the deletion", lambda: operator.replacement(child).metadata.deletion_timestamp)
    if policy is Propagation.FOREGROUND:
        wait_for("the drain's", lambda: operator.drain(child).metadata.deletion_timestamp)
        running = operator.client.resource(JOBS)
        job = f"{child}-job1"
        wait_for("the Job's", lambda: running.get(job, "work").metadata.deletion_timestamp)
    operator.transport.writes_left = dies_after
    lived = operator.settle_or_die()
    # The pod of the Job still runs, so the node must stay as it is.
    assert operator.drains() == [child]
    assert ACTION_FINALIZER in operator.replacement(child).metadata.finalizers
    assert condition(operator, child)[1] == "ActionEnding"
    end_pod()
    wait_for("the end of the Job", lambda: jobs(operator) == [])

    def is_gone() -> bool:
        nonlocal lived
        lived = operator.settle_or_die() and lived
        return operator.names() == operator.drains() == []

    wait_for("the end of the replacement and its drain", is_gone)
    return lived


@pytest.mark.rule("NP-12")
def test_a_drain_that_is_deleted_under_its_action_waits_for_the_end_of_the_action(
    operator: Operator,
) -> None:
    double = Double()
    double.cancelled = ActionRunning("it reboots and cannot be stopped")
    operator.actions.register(ActionKind.REBOOT, double)
    begin(operator, "a", action={"reboot": {}}, strategy={"retries": 0})
    operator.finish("roll-a")
    operator.client.resource(NODE_DRAINS).delete("roll-a")
    operator.settle()
    assert operator.steps() == {"roll-a": Step.RELEASING}
    assert condition(operator)[1:] == ("ActionEnding", "it reboots and cannot be stopped")
    assert operator.replacement("roll-a").metadata.finalizers == (ACTION_FINALIZER,)
    assert operator.drains() == ["roll-a"]
    double.cancelled = ActionDone()
    operator.settle()
    assert operator.drains() == []
    assert operator.steps() == {"roll-a": Step.FAILED}
    assert operator.replacement("roll-a").metadata.finalizers == ()


@pytest.mark.rule("NP-12")
@pytest.mark.parametrize("ending", [ActionDone(), ActionFailed("NotNow", "no")], ids=type)
def test_a_finalizer_lasts_as_long_as_the_action(operator: Operator, ending: ActionOutcome) -> None:
    double = Double()
    operator.actions.register(ActionKind.REBOOT, double)
    strategy = {"retries": 0}
    begin(operator, "a", action={"reboot": {}, "verify": {}}, strategy=strategy)
    operator.finish("roll-a")
    assert operator.replacement("roll-a").metadata.finalizers == (ACTION_FINALIZER,)
    double.outcomes["Acting"] = ending
    operator.settle()
    assert operator.steps()["roll-a"] in {Step.VERIFYING, Step.FAILED}
    assert operator.replacement("roll-a").metadata.finalizers == ()


@pytest.mark.rule("NP-12")
def test_an_action_acts_only_behind_its_finalizer(operator: Operator) -> None:
    seen: list[list[str]] = []

    class Watching(Double):
        def act(self, replacement: NodeReplacement, node: Node | None) -> ActionOutcome:
            stored = operator.replacement(replacement.metadata.name)
            seen.append(list(stored.metadata.finalizers))
            return ActionRunning("still at it")

    operator.actions.register(ActionKind.REBOOT, Watching())
    begin(operator, "a", action={"reboot": {}})
    operator.finish("roll-a")
    assert seen
    assert all(each == [ACTION_FINALIZER] for each in seen), "deleted, it would leave an action"


@pytest.mark.rule("NP-12")
def test_a_rollout_without_an_action_has_no_finalizer(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.finish("mine")
    assert operator.steps() == {"mine": Step.DONE}
    assert operator.replacement("mine").metadata.finalizers == ()


@pytest.mark.rule("NP-12")
def test_the_preparation_of_a_cancelled_node_is_ended(operator: Operator) -> None:
    double = Double()
    operator.actions.register(ActionKind.PLAN, double, prepares=True)
    begin(operator, "a", action={"plan": {"namespace": "n", "name": "p"}})
    assert double.calls[-1] == "before a"
    operator.patch_rollout("roll", spec={"cancel": True})
    operator.settle()
    assert operator.steps() == {"roll-a": Step.CANCELLED}
    assert double.calls[-1] == "cancel a"


# Preparing a node before it has a slot


@pytest.mark.rule("UP-55")
def test_a_node_is_prepared_before_it_has_a_slot(operator: Operator) -> None:
    double = Double(outcomes={"Acting": ActionDone()})
    operator.actions.register(ActionKind.REBOOT, double, prepares=True)
    begin(operator, "a", "b", action={"reboot": {}})
    reasons = {name: wait_reason(operator, name) for name in operator.names()}
    assert reasons == {"roll-a": "Preparing", "roll-b": "Queued"}
    assert {call for call in double.calls if call.startswith("before")} == {"before a"}
    assert operator.drains() == []
    double.before_outcomes["a"] = ActionDone()
    operator.settle()
    assert operator.steps()["roll-a"] is Step.RESERVED
    # The next node is prepared while the first one is in flight.
    assert wait_reason(operator, "roll-b") == "Preparing"


@pytest.mark.rule("UP-55")
def test_a_preparing_node_delays_no_node_of_a_lower_priority(operator: Operator) -> None:
    operator.actions.register(ActionKind.REBOOT, Double(), prepares=True)
    operator.add_node("low")
    operator.add_rollout("other", nodeNames=[{"name": "low"}])
    operator.add_node("high")
    operator.add_rollout(
        "roll",
        nodeNames=[{"name": "high", "replacement": {"priority": 5}}],
        action={"reboot": {}},
    )
    operator.settle()
    assert operator.steps() == {"roll-high": Step.WAITING, "other-low": Step.RESERVED}


def test_a_failed_preparation_fails_the_attempt(operator: Operator) -> None:
    double = Double(before_outcomes={"a": ActionFailed("PrepareFailed", "no space")})
    operator.actions.register(ActionKind.REBOOT, double, prepares=True)
    begin(operator, "a", action={"reboot": {}}, strategy={"retries": 0})
    status = operator.replacement("roll-a").status
    assert status.current is Step.FAILED
    assert [(f.reason, f.message) for f in status.failures] == [("PrepareFailed", "no space")]
    assert operator.drains() == []


def wait_reason(operator: Operator, name: str) -> str:
    operator.settle_in_time()
    step = operator.replacement(name).status.step
    return step.reason if step is not None else ""
