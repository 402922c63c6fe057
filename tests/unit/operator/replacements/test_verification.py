"""Verifying: a node counts as done only when it is well after its action."""

from typing import Any, cast

import msgspec
import pytest
from tests.cases.waiting import wait_for
from tests.unit.operator.conftest import Make, Operator

from navarchos.clock import SYSTEM_CLOCK
from navarchos.drain import DAEMON_SETS, Pod
from navarchos.informers import SharedInformer
from navarchos.instrument import Instruments
from navarchos.meta import format_time
from navarchos.operator.actions import ActionDone, ActionOutcome, ActionRunning
from navarchos.operator.api.v1alpha1 import (
    ActionKind,
    ActionSpec,
    DrainPhase,
    Heir,
    NodeReplacement,
    NodeRollout,
    Step,
    StepStatus,
    VerifySpec,
)
from navarchos.operator.gates import GateMonitor, GateWait
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.reasons import Reason
from navarchos.operator.replacements.daemon_sets import DaemonSetTemplate, DaemonSetWatches, selects
from navarchos.operator.replacements.steps import decide
from navarchos.operator.replacements.steps.decision import (
    Advance,
    AwaitVerification,
    Complete,
    CompleteReturned,
    ContinueAction,
    Decision,
    FailAttempt,
    NoAction,
    RecordBootId,
    StepObservation,
    steps_of,
    through_gates,
)
from navarchos.operator.replacements.verification import (
    Verification,
    Verifier,
    missing_daemon_sets,
    verify,
)
from navarchos.runtime import Request
from navarchos.runtime.conditions import find_condition
from navarchos.testing.apiserver import ApiServer

pytestmark = pytest.mark.rule("NP-21")

WELL = Verification(())
CONTAINER = {"name": "c", "image": "i"}


def node(make: Make, *, ready: float | None = -100, taints: Any = (), **info: Any) -> Node:
    """Return node `a`, Ready since this second."""
    condition = {
        "type": "Ready",
        "status": "False" if ready is None else "True",
        "lastTransitionTime": format_time(make.at(ready or 0)),
    }
    status = {"conditions": [condition], "nodeInfo": info}
    built = msgspec.convert({"spec": {"taints": taints}, "status": status}, Node)
    return msgspec.structs.replace(built, metadata=make.node("a", pool="x").metadata)


def verifying(make: Make, *, status: Any = None, **verify_spec: Any) -> NodeReplacement:
    action = {"job": {"namespace": "x", "template": {}}, "verify": verify_spec}
    return make.replacement("a", step=Step.VERIFYING, action=action, status=status)


@pytest.mark.parametrize(
    ("ready", "missing", "recheck"),
    [
        (None, ("the node is not Ready",), None),
        (-29, ("the node has not been Ready for 30 s",), 1),
        (-30, (), None),
    ],
)
def test_a_node_must_be_ready_for_a_time(
    make: Make, ready: float | None, missing: tuple[str, ...], recheck: float | None
) -> None:
    found = verify(VerifySpec(), verifying(make), node(make, ready=ready), make.now)
    assert found.missing == missing
    assert found.recheck_at == (None if recheck is None else make.at(recheck))


@pytest.mark.parametrize(
    ("wanted", "info", "missing"),
    [
        ({"kubelet_version": "v2"}, {"kubeletVersion": "v2"}, ()),
        (
            {"kubelet_version": "v2"},
            {"kubeletVersion": "v1"},
            ("the kubelet has version v1, not v2",),
        ),
        ({"rebooted": True}, {"bootID": "second"}, ()),
        (
            {"rebooted": True},
            {"bootID": "first"},
            ("the node has not booted since its action began",),
        ),
        ({"rebooted": True}, {}, ("the node has not booted since its action began",)),
        ({}, {"bootID": "first", "kubeletVersion": "v1"}, ()),
    ],
)
def test_version_and_boot_id_are_compared_if_asked_for(
    make: Make, wanted: dict[str, Any], info: dict[str, Any], missing: tuple[str, ...]
) -> None:
    replacement = verifying(make, status={"boot_id": "first"})
    found = verify(VerifySpec(**wanted), replacement, node(make, **info), make.now)
    assert found.missing == missing


def test_the_heir_is_verified_in_place_of_the_node(make: Make) -> None:
    heir = verifying(make, status={"heir": Heir(node_name="a", node_uid="uid-new")})
    old = node(make)
    new = msgspec.structs.replace(old, metadata=make.node("a", uid="uid-new").metadata)
    assert verify(VerifySpec(), heir, new, make.now) == WELL
    another = ("node a is another node than before (uid)",)
    assert verify(VerifySpec(), heir, old, make.now).missing == another
    assert verify(VerifySpec(), verifying(make), new, make.now).missing == another
    assert verify(VerifySpec(), heir, None, make.now).missing == ("node a does not exist",)


def daemon_set(name: str, **template: Any) -> DaemonSetTemplate:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "kube-system", "uid": f"uid-{name}"},
            "spec": {"template": {"spec": template}},
        },
        DaemonSetTemplate,
    )


def pod(owner: str, *, ready: bool = True, terminating: bool = False) -> Pod:
    reference = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner, "uid": f"uid-{owner}",
        "controller": True,
    }  # fmt: skip
    ending = {"deletionTimestamp": "2026-01-01T12:00:00Z"} if terminating else {}
    return msgspec.convert(
        {
            "metadata": {"name": owner, "ownerReferences": [reference], **ending},
            "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
        },
        Pod,
    )


@pytest.mark.parametrize(
    ("template", "taints", "selected"),
    [
        ({}, (), True),
        ({"nodeSelector": {"pool": "x"}}, (), True),
        ({"nodeSelector": {"pool": "y"}}, (), False),
        ({}, [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}], True),
        ({}, [{"key": "gpu", "effect": "NoSchedule"}], False),
        (
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            [{"key": "gpu", "effect": "NoSchedule"}],
            True,
        ),
    ],
)
def test_a_daemon_set_selects_nodes_as_its_controller_does(
    make: Make, template: Any, taints: Any, selected: bool
) -> None:
    assert selects(daemon_set("net", **template), node(make, taints=taints)) is selected


def test_each_daemon_set_needs_a_ready_pod_on_the_node(make: Make) -> None:
    sets = [daemon_set(name) for name in ("net", "log", "old")]
    sets.append(daemon_set("gpu", nodeSelector={"pool": "y"}))
    pods = [pod("net"), pod("log", ready=False), pod("old", terminating=True)]
    assert missing_daemon_sets(node(make), sets, pods) == (
        "no Ready pod of DaemonSet kube-system/log, kube-system/old is on the node",
    )
    assert missing_daemon_sets(node(make), sets[:1], pods) == ()
    many = [daemon_set(f"d{number}") for number in range(8)]
    assert " and 3 more " in missing_daemon_sets(node(make), many, [])[0]


def test_the_step_continues_waits_or_fails(make: Make) -> None:
    replacement = verifying(make)
    drain = make.drain(replacement, phase=DrainPhase.COMPLETED)
    lacking = Verification(("one", "two"), make.at(5))
    late = Verification(("one", "two"), is_overdue=True)

    def decided(found: Verification | None) -> object:
        return decide(StepObservation(replacement, drain, verification=found))

    assert decided(None) == NoAction(), "a step that was just entered has not read anything"
    assert decided(WELL) == Advance(Step.RETURNING)
    assert decided(lacking) == AwaitVerification(lacking)
    assert decided(late) == FailAttempt("NotReadyAgain", "one; two")
    undone = decide(StepObservation(replacement, None, verification=WELL))
    assert undone == FailAttempt(Reason.DRAIN_DELETED, "its NodeDrain was deleted")


def test_a_node_that_stays_cordoned_is_done_after_its_verification(make: Make) -> None:
    action = {"job": {"namespace": "x", "template": {}}, "afterwards": "Keep", "verify": {}}
    replacement = make.replacement("a", step=Step.VERIFYING, action=action)
    drain = make.drain(replacement, phase=DrainPhase.COMPLETED)
    assert decide(StepObservation(replacement, drain, verification=WELL)) == Complete()


@pytest.mark.parametrize(
    ("kind", "verification"),
    [
        (ActionKind.JOB, None),
        (ActionKind.PLAN, VerifySpec()),
        (ActionKind.REBOOT, VerifySpec(rebooted=True)),
        (ActionKind.REPLACE, VerifySpec(ready_seconds=10, daemon_sets=True)),
        (ActionKind.REMOVE, None),
    ],
)
def test_the_kind_of_the_action_decides_what_is_verified_by_default(
    make: Make, kind: ActionKind, verification: VerifySpec | None
) -> None:
    member: dict[ActionKind, Any] = {
        ActionKind.JOB: {"namespace": "x", "template": {}},
        ActionKind.PLAN: {"namespace": "x", "name": "p"},
    }
    action = msgspec.convert({str(kind): member.get(kind, {})}, ActionSpec)
    assert action.verification == verification
    spec = msgspec.structs.replace(make.replacement("a").spec, action=action)
    assert (Step.VERIFYING in steps_of(spec)) is (verification is not None)


def test_the_boot_id_is_recorded_before_the_action_begins(make: Make) -> None:
    action: dict[str, Any] = {"reboot": {}}
    replacement = make.replacement("a", step=Step.ACTING, action=action)
    drain = make.drain(replacement, phase=DrainPhase.COMPLETED)
    booted = node(make, bootID="first")
    assert decide(StepObservation(replacement, drain, booted)) == RecordBootId("first")
    assert decide(StepObservation(replacement, drain, node(make))) == RecordBootId("unknown")
    known = make.replacement("a", step=Step.ACTING, action=action, status={"boot_id": "first"})
    assert decide(StepObservation(known, drain, booted)) == ContinueAction()


def test_an_action_does_not_begin_for_a_deleted_rollout(make: Make) -> None:
    replacement = make.replacement(
        "a", step=Step.ACTING, action={"plan": {"namespace": "x", "name": "p"}}
    )
    drain = make.drain(replacement, phase=DrainPhase.COMPLETED)
    observed = StepObservation(replacement, drain, node(make), is_abandoned=True)
    assert decide(observed) == NoAction()


class Reboot:
    """An action that ends when the test says so."""

    def __init__(self) -> None:
        self.is_done = False
        self.boot_ids: list[str] = []

    def before(self, replacement: NodeReplacement, node: Node) -> ActionOutcome:
        return ActionDone()

    def act(self, replacement: NodeReplacement, node: Node | None) -> ActionOutcome:
        self.boot_ids.append(replacement.status.boot_id)
        return ActionDone() if self.is_done else ActionRunning("rebooting")

    def cancel(self, replacement: NodeReplacement) -> ActionOutcome:
        return ActionDone()


def report(operator: Operator, name: str, boot_id: str, *, ready: bool = True) -> None:
    """Report what a kubelet reports after a boot."""
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": format_time(operator.clock.now()),
    }
    status = {"conditions": [condition], "nodeInfo": {"bootID": boot_id}}
    operator.client.resource(NODES).patch(name, {"status": status}, subresource="status")


def start(operator: Operator, *, verify: Any, **spec: Any) -> Reboot:
    reboot = Reboot()
    operator.further_actions[ActionKind.REBOOT] = reboot
    operator.restart()
    operator.add_node("a")
    report(operator, "a", "first")
    operator.add_replacement("mine", nodeName="a", action={"reboot": {}, "verify": verify}, **spec)
    operator.settle()
    operator.finish("mine")
    return reboot


def message(operator: Operator) -> str:
    found = find_condition(operator.replacement("mine").status.conditions, "NodeVerified")
    return f"{found.status} {found.reason}: {found.message}" if found is not None else ""


def test_a_rebooted_node_returns_when_it_has_been_ready_for_a_time(operator: Operator) -> None:
    reboot = start(operator, verify={"rebooted": True, "readySeconds": 20, "timeoutSeconds": 60})
    assert operator.steps() == {"mine": Step.ACTING}
    assert set(reboot.boot_ids) == {"first"}, "the action began before the boot id was stored"
    reboot.is_done = True
    operator.settle()
    status = operator.replacement("mine").status
    assert status.current is Step.VERIFYING
    assert status.step is not None
    assert status.step.deadline is not None
    lacking = "the node has not been Ready for 20 s; the node has not booted since its action began"
    assert message(operator) == f"False Verifying: {lacking}"
    operator.clock.advance(10.0)
    report(operator, "a", "second")
    operator.settle()
    writes = operator.server.requests_by("").get("patch", 0)
    result = operator.replacements.reconcile(Request("", "mine"))
    assert result.requeue_after == pytest.approx(20.0, abs=1.0), "a deadline, not a poll"
    assert operator.server.requests_by("").get("patch", 0) == writes
    assert operator.drains() == ["mine"], "the node is still cordoned"
    operator.clock.advance(21.0)
    operator.settle()
    assert operator.steps() == {"mine": Step.DONE}
    assert operator.drains() == []
    assert message(operator).startswith("True NodeVerified")
    assert "NodeVerified" in operator.events()


def test_a_node_that_is_not_well_in_time_fails_and_is_rebooted_again(operator: Operator) -> None:
    reboot = start(operator, verify={"rebooted": True, "readySeconds": 0, "timeoutSeconds": 60})
    reboot.is_done = True
    operator.settle()
    operator.clock.advance(60.0)
    operator.settle()
    status = operator.replacement("mine").status
    assert [(f.reason, f.message) for f in status.failures] == [
        ("NotReadyAgain", "the node has not booted since its action began")
    ]
    assert message(operator).startswith("False NotReadyAgain")
    assert operator.drains() == ["mine-attempt2"], "the failed attempt was released first"
    report(operator, "a", "third")
    operator.settle()
    reboot.boot_ids.clear()
    operator.finish("mine-attempt2")
    assert set(reboot.boot_ids) == {"third"}, "the boot id of an earlier attempt is compared"


@pytest.mark.parametrize("dies_after", range(1, 9))
def test_a_crash_after_any_write_of_a_verification_changes_nothing_in_the_end(
    operator: Operator, dies_after: int
) -> None:
    reboot = start(operator, verify={"rebooted": True, "readySeconds": 0})
    reboot.is_done = True
    operator.transport.writes_left = dies_after
    operator.settle_or_die()
    report(operator, "a", "second")
    operator.transport.writes_left = dies_after
    operator.settle_or_die()
    operator.settle_in_time()
    status = operator.replacement("mine").status
    assert (status.current, status.attempts, status.boot_id) == (Step.DONE, 0, "first")
    assert operator.drains() == []


def test_daemon_sets_are_watched_only_while_a_node_is_verified(
    server: ApiServer, operator: Operator, make: Make
) -> None:
    woken: list[str] = []
    watches = DaemonSetWatches(
        operator.client, wake=woken.append, clock=SYSTEM_CLOCK, instruments=Instruments()
    )
    verifier = Verifier(watches)
    plain = verifying(make, readySeconds=0)
    assert verifier.observe(plain, node(make), make.now) == WELL
    assert len(watches) == 0, "read without being asked for"
    server.install(
        {
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "net", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": "net"}},
                "template": {
                    "metadata": {"labels": {"app": "net"}}, "spec": {"containers": [CONTAINER]},
                },
            },
        }
    )  # fmt: skip
    wanted = verifying(make, readySeconds=0, daemonSets=True)

    def missing() -> tuple[str, ...]:
        return verifier.observe(wanted, node(make), make.now).missing

    unknown = Verification(("its DaemonSets are not known yet",), make.at(0.5))
    assert Verifier().observe(wanted, node(make), make.now) == unknown
    lacking = ("no Ready pod of DaemonSet default/net is on the node",)
    wait_for("the lists", lambda: missing() == lacking)
    uid = operator.client.resource(DAEMON_SETS).get("net", "default").metadata.uid
    server.install(
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "net-1", "namespace": "default",
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "net", "uid": uid,
                     "controller": True}
                ],
            },
            "spec": {"nodeName": "a", "containers": [CONTAINER]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
    )  # fmt: skip
    wait_for("the pod", lambda: missing() == ())
    assert wanted.metadata.name in woken, "no event wakes the replacement"
    verifier.forget(wanted.metadata.name)
    assert len(watches) == 0
    watches.close()


def test_no_watch_begins_while_the_process_stops(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches = DaemonSetWatches(
        operator.client, wake=lambda _: None, clock=SYSTEM_CLOCK, instruments=Instruments()
    )
    make_pods = DaemonSetWatches._make_pods

    def stop_meanwhile(self: DaemonSetWatches, replacement: str, name: str) -> SharedInformer[Pod]:
        self.close()
        return make_pods(self, replacement, name)

    monkeypatch.setattr(DaemonSetWatches, "_make_pods", stop_meanwhile)
    assert watches.read("roll-a", "a") is None
    assert len(watches) == 0, "nothing would end it"


class ClosedGate:
    """The gates of all rollouts: closed until the test opens them."""

    def __init__(self) -> None:
        self.wait: GateWait | None = GateWait("gate web: 1 of 2 replicas", is_closed=True)

    def wait_after(self, rollout: NodeRollout) -> GateWait | None:
        return self.wait


GATE = {"name": "web", "nodes": {"maxUnready": 0}, "after": True}


def gated(make: Make, gate: ClosedGate, *, after: bool = True) -> Verifier:
    rollout = make.rollout(gates=[{**GATE, "after": after}])
    return Verifier(None, cast("GateMonitor", gate), lambda _: rollout)


def test_a_gate_after_a_node_is_part_of_its_verification(make: Make) -> None:
    gate, lacking = ClosedGate(), "the node has not been Ready for 30 s"
    verifier = gated(make, gate)
    deadline = {"step": StepStatus(name=Step.VERIFYING, deadline=make.at(-1))}
    replacement = verifying(make, status=deadline)
    both = verifier.observe(replacement, node(make, ready=-29), make.now)
    assert both.missing == (lacking, "gate web: 1 of 2 replicas")
    assert both.is_overdue
    closed = verifier.observe(replacement, node(make), make.now)
    assert closed == Verification(("gate web: 1 of 2 replicas",)), "the gate has its own timeout"
    gate.wait = GateWait("gate web", is_closed=False, until=make.at(7))
    assert verifier.observe(replacement, node(make), make.now).recheck_at == make.at(7)
    gate.wait = None
    assert verifier.observe(replacement, node(make), make.now) == WELL
    assert verifier.is_gated(replacement)
    assert not gated(make, gate, after=False).is_gated(replacement)
    assert not Verifier().is_gated(replacement)


@pytest.mark.parametrize(
    ("step", "before", "behind"),
    [
        (Step.DRAINING, Complete(), Advance(Step.VERIFYING)),
        (Step.ACTING, CompleteReturned(), Advance(Step.VERIFYING)),
        (Step.ACTING, Advance(Step.RETURNING), Advance(Step.VERIFYING)),
        (Step.VERIFYING, Advance(Step.RETURNING), Advance(Step.RETURNING)),
        (Step.VERIFYING, Complete(), Complete()),
        (Step.RETURNING, CompleteReturned(), CompleteReturned()),
        (Step.DRAINING, Advance(Step.ACTING), Advance(Step.ACTING)),
        (Step.DRAINING, NoAction(), NoAction()),
    ],
)
def test_a_node_behind_gates_is_verified_before_it_returns_or_ends(
    step: Step, before: Decision, behind: Decision
) -> None:
    assert through_gates(step, before) == behind


def test_a_drained_node_is_done_when_its_gate_is_open(operator: Operator, make: Make) -> None:
    gate = ClosedGate()
    operator.verifier = gated(make, gate)
    operator.restart()
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.finish("mine")
    assert operator.steps() == {"mine": Step.VERIFYING}
    assert message(operator) == "False Verifying: gate web: 1 of 2 replicas"
    assert DRAIN_COMPLETED_LABEL not in operator.node("a").metadata.labels
    gate.wait = None
    operator.settle()
    assert operator.steps() == {"mine": Step.DONE}
    assert DRAIN_COMPLETED_LABEL in operator.node("a").metadata.labels
