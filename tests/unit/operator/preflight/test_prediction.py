"""A fault is found only on the node that has it, and predictions follow the operator."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.operator.conftest import Make
from tests.unit.operator.preflight.conftest import Cluster

from navarchos.drain import Budget
from navarchos.operator.api.v1alpha1 import DrainPhase, NodeRollout, RolloutPhase, Step
from navarchos.operator.nodes import Node
from navarchos.operator.preflight import ClusterState, PredictedRollout, Severity, predict
from navarchos.operator.preflight.kinds import PlanNode, PlanPod
from navarchos.operator.slots import Holder

Json = dict[str, Any]

OWNED = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs"}
DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "ds"}
READY = [{"type": "Ready", "status": "True"}]
AGO = "2026-01-01T11:00:00Z"


def pod(name: str, node: str = "bad", **fields: Json) -> PlanPod:
    given: dict[str, Json] = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "labels": {"app": "web"},
            "creationTimestamp": AGO,
            "ownerReferences": [{**OWNED, "controller": True}],
        },
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": READY},
    }
    for part, changes in fields.items():
        given[part] = {**given[part], **changes}
    return msgspec.convert(given, PlanPod)


def plan_node(node: Node) -> PlanNode:
    given = {**msgspec.to_builtins(node), "status": {"conditions": READY}}
    return msgspec.convert(given, PlanNode)


def budget(name: str = "web", *, policy: str = "", app: str = "web", **status: int) -> Budget:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "shop", "generation": 1},
            "spec": {
                "selector": {"matchLabels": {"app": app}},
                "unhealthyPodEvictionPolicy": policy,
            },
            "status": {"observedGeneration": 1, **status},
        },
        Budget,
    )


NEVER = budget(disruptionsAllowed=0, currentHealthy=2, desiredHealthy=2, expectedPods=2)
EXHAUSTED = budget(disruptionsAllowed=0, currentHealthy=2, desiredHealthy=2, expectedPods=3)
ALLOWS = budget(disruptionsAllowed=1, currentHealthy=3, desiredHealthy=2, expectedPods=3)
UNREADY: Json = {"conditions": []}


def run(make: Make, state: dict[str, Any], **drain: Any) -> PredictedRollout:
    nodes = [plan_node(make.node("bad")), plan_node(make.node("good"))]
    rollout = make.rollout(phase=None, nodeSelectors=[{"matchAll": True}], drain=drain)
    daemon_sets = frozenset({("shop", "logs")})
    given = {"daemon_sets": daemon_sets, **state}
    given["pods"] = [*given.get("pods", ()), pod("fine", "good", metadata={"labels": {}})]
    (predicted,) = predict([rollout], ClusterState(nodes=nodes, **given), make.now)
    return predicted


@pytest.mark.parametrize(
    ("pods", "budgets", "drain", "reason", "severity"),
    [
        ([pod("a", metadata={"ownerReferences": []})], [], {}, "UnmanagedPod", "Blocks"),
        (
            [pod("a", metadata={"ownerReferences": []})],
            [],
            {"force": True},
            "UnmanagedPod",
            "Note",
        ),
        ([pod("a", spec={"volumes": [{"emptyDir": {}}]})], [], {}, "LocalStorage", "Note"),
        (
            [pod("a", spec={"volumes": [{"emptyDir": {}}]})],
            [],
            {"deleteEmptyDirData": False},
            "LocalStorage",
            "Blocks",
        ),
        (
            [pod("a", metadata={"ownerReferences": [{**DAEMON, "controller": True}]})],
            [],
            {"ignoreDaemonSets": False},
            "DaemonSetNotIgnored",
            "Blocks",
        ),
        (
            [
                pod(
                    "a",
                    metadata={"ownerReferences": [{**DAEMON, "name": "gone", "controller": True}]},
                )
            ],
            [],
            {},
            "DaemonSetGone",
            "Blocks",
        ),
        ([pod("a")], [NEVER], {}, "BudgetNeverAllows", "Blocks"),
        ([pod("a")], [EXHAUSTED], {}, "BudgetExhausted", "Delays"),
        ([pod("a")], [ALLOWS, budget("second")], {}, "MultipleBudgets", "Blocks"),
        (
            [pod("a")],
            [NEVER],
            {"escalation": [{"afterSeconds": 0, "action": "Delete"}]},
            "BudgetBypassed",
            "Note",
        ),
        ([pod("a", metadata={"deletionTimestamp": AGO})], [], {}, "StuckTerminating", "Delays"),
    ],
)
def test_a_fault_is_found_only_on_its_node(
    make: Make,
    pods: list[PlanPod],
    budgets: list[Budget],
    drain: dict[str, Any],
    reason: str,
    severity: str,
) -> None:
    predicted = run(make, {"pods": pods, "budgets": budgets}, **drain)
    bad, good = predicted.nodes
    assert [(f.reason, f.severity, f.pod) for f in bad.findings] == [(reason, severity, "shop/a")]
    assert good.findings == ()
    assert predicted.is_blocked is (severity == Severity.BLOCKS)


@pytest.mark.parametrize(
    ("pods", "budgets", "drain"),
    [
        ([pod("a")], [ALLOWS], {}),
        ([pod("a")], [budget(app="other"), budget("two", app="other")], {}),
        ([pod("a")], [NEVER], {"disableEviction": True}),
        ([pod("a", status={"phase": "Succeeded"})], [NEVER], {}),
        ([pod("a", status={"phase": "Pending", "conditions": []})], [NEVER], {}),
        ([pod("a", status=UNREADY)], [NEVER], {}),
        ([pod("a", status=UNREADY)], [budget(policy="AlwaysAllow", expectedPods=1)], {}),
        ([pod("a", metadata={"ownerReferences": [{**DAEMON, "controller": True}]})], [NEVER], {}),
        ([pod("a", metadata={"labels": {"app": "no"}})], [NEVER], {}),
    ],
)
def test_a_healthy_pod_gives_no_finding(
    make: Make, pods: list[PlanPod], budgets: list[Budget], drain: dict[str, Any]
) -> None:
    predicted = run(make, {"pods": pods, "budgets": budgets}, **drain)
    assert [node.findings for node in predicted.nodes] == [(), ()]
    assert not predicted.is_blocked


def test_a_terminating_namespace_delays_the_drain(make: Make) -> None:
    state = {"pods": [pod("a")], "budgets": [NEVER], "terminating": frozenset({"shop"})}
    (bad, good) = run(make, state).nodes
    assert [f.reason for f in bad.findings] == ["NamespaceTerminating"]
    assert [f.reason for f in good.findings] == ["NamespaceTerminating"]


def test_names_and_selectors_without_a_node_are_reported(make: Make) -> None:
    rollout = make.rollout(phase=None, nodeNames=[{"name": "typo"}])
    (predicted,) = predict([rollout], ClusterState(nodes=[plan_node(make.node("a"))]), make.now)
    assert [f.reason for f in predicted.findings] == ["NoNodesMatched", "NodeNotFound"]
    assert not predicted.is_blocked


def test_order_and_start_follow_the_priorities(make: Make) -> None:
    nodes = [
        plan_node(make.node("old", created=-9000)),
        plan_node(make.node("first")),
        plan_node(make.node("young")),
    ]
    rollout = make.rollout(
        phase=None,
        nodeNames=[{"name": "first", "replacement": {"priority": 7}}],
        nodeSelectors=[{"matchAll": True}],
    )
    (predicted,) = predict([rollout], ClusterState(nodes=nodes), make.now)
    assert [(n.order, n.name, n.priority, n.starts) for n in predicted.nodes] == [
        (1, "first", 7, "Now"),
        (2, "old", 0, "HigherPriority"),
        (3, "young", 0, "HigherPriority"),
    ]


def test_another_rollout_with_a_higher_priority_starts_first(make: Make) -> None:
    other = make.rollout("other")
    busy = make.replacement("b", rollout="other", step=Step.DRAINING, replacement={"priority": 9})
    rollout = make.rollout("mine", phase=None, nodeNames=[{"name": "a"}])
    state = ClusterState(
        nodes=[plan_node(make.node("a")), plan_node(make.node("b"))],
        rollouts=[other],
        replacements=[busy],
    )
    (predicted,) = predict([rollout], state, make.now)
    assert [n.starts for n in predicted.nodes] == ["HigherPriority"]


def test_an_existing_rollout_is_predicted_from_its_current_state(make: Make) -> None:
    rollout: NodeRollout = make.rollout(
        phase=RolloutPhase.IN_PROGRESS,
        nodes=("a", "b", "c"),
        status={"replacements_completed": ("a",)},
    )
    children = [
        make.replacement("a", step=Step.DONE),
        make.replacement("b", step=Step.DRAINING),
        make.replacement("c"),
    ]
    state = ClusterState(
        nodes=[plan_node(make.node(name)) for name in "abc"],
        rollouts=[rollout],
        replacements=children,
        drains=[make.drain(children[1], phase=DrainPhase.DRAINING)],
    )
    (predicted,) = predict([rollout], state, make.now)
    assert [(n.name, n.starts) for n in predicted.nodes] == [
        ("b", "InFlight"),
        ("c", "MaxConcurrent"),
    ]


def test_only_budgets_that_block_are_marked(make: Make) -> None:
    state = {
        "pods": [pod("a"), pod("b", metadata={"labels": {"app": "easy"}})],
        "budgets": [NEVER, budget("easy", app="easy", disruptionsAllowed=2)],
    }
    predicted = run(make, state)
    assert [(b.name, b.disruptions_allowed, b.pods, b.is_blocking) for b in predicted.budgets] == [
        ("shop/easy", 2, 1, False),
        ("shop/web", 0, 1, True),
    ]


def test_an_invalid_drain_spec_blocks(make: Make) -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}
    predicted = run(make, {}, podSelector=selector)
    assert [(f.reason, f.severity) for f in predicted.findings] == [("InvalidSpec", "Blocks")]
    assert predicted.is_blocked


JOB = {
    "namespace": "shop",
    "template": {
        "spec": {
            "activeDeadlineSeconds": 60,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "work", "image": "registry.example.com/work:1"}],
                }
            },
        }
    },
}


def plan_of_action(make_cluster: Callable[[], Cluster], **action: Any) -> PredictedRollout:
    cluster = make_cluster()
    cluster.node("a", "z1")
    cluster.pod("web", "a")
    cluster.spec = {"nodeSelectors": [{"matchAll": True}], "action": action}
    return cluster.plan_on_server()


@pytest.mark.parametrize(("state", "evicted"), [("Drained", 1), ("Cordoned", 0), ("InService", 0)])
def test_only_a_node_that_is_drained_loses_its_pods(
    make_cluster: Callable[[], Cluster], state: str, evicted: int
) -> None:
    predicted = plan_of_action(make_cluster, job=JOB, node=state)
    node = next(node for node in predicted.nodes if node.name == "a")
    assert node.pods.evict == evicted
    assert not predicted.is_blocked


def test_a_job_that_the_server_refuses_blocks(make_cluster: Callable[[], Cluster]) -> None:
    template: dict[str, Any] = {"spec": {"template": {"spec": {"containers": []}}}}
    predicted = plan_of_action(make_cluster, job={"namespace": "shop", "template": template})
    found = {finding.reason: finding for finding in predicted.findings}
    assert found["JobRefused"].severity == "Blocks"
    assert "containers" in found["JobRefused"].message
    assert found["JobWithoutDeadline"].severity == "Note"
    assert predicted.is_blocked


DRAINED = "each node is drained"
CORDONED = "each node is cordoned but not drained"
VERIFIED = (
    "it must be Ready for 60 s, with Ready pods of its DaemonSets, with the kubelet v1.34.0 "
    "within 600 s"
)


@pytest.mark.rule("NP-20")
def test_a_plan_says_what_happens_to_each_node(make: Make) -> None:
    def plan(controllers: frozenset[str] = frozenset({"rollouts"}), **action: Any) -> Any:
        spec: dict[str, Any] = {"nodeSelectors": [{"matchAll": True}], "action": action}
        state = ClusterState(nodes=[plan_node(make.node("a"))], controllers=controllers)
        (predicted,) = predict([make.rollout(phase=None, **spec)], state, make.now)
        return predicted

    verify = {"readySeconds": 60, "daemonSets": True, "kubeletVersion": "v1.34.0"}
    for action, message in (
        (
            {"job": JOB, "verify": verify},
            f"{DRAINED}, action.job is carried out, {VERIFIED}, and it returns to service",
        ),
        (
            {"job": JOB, "node": "Cordoned", "afterwards": "Keep"},
            f"{CORDONED}, action.job is carried out, and it stays as it is",
        ),
        ({"node": "Drained"}, f"{DRAINED}, and it returns to service"),
    ):
        predicted = plan(**action)
        assert message in [one.message for one in predicted.findings]
        assert not predicted.is_blocked
        assert [node.starts for node in predicted.nodes] == ["Now"]
    unavailable = plan(reboot={})
    assert unavailable.is_blocked
    (finding,) = [one for one in unavailable.findings if one.severity == "Blocks"]
    assert finding.reason == "ActionUnavailable"
    assert finding.next_action == (
        "install reboots and start the manager with --controllers=reboots"
    )
    assert [node.starts for node in unavailable.nodes] == ["ActionUnavailable"]
    assert "--controllers=reboots" in unavailable.nodes[0].message
    assert not plan(frozenset({"rollouts", "reboots"}), reboot={}).is_blocked


@pytest.mark.rule("NP-04")
@pytest.mark.rule("NP-05")
def test_a_plan_names_what_other_systems_hold_and_need(make: Make) -> None:
    nodes = [plan_node(make.node(name)) for name in "abc"]
    state = ClusterState(
        nodes=nodes, holders={"c": Holder("Plan", "os/base")}, objections={"a": "a last replica"}
    )
    spec: dict[str, Any] = {"nodeNames": [{"name": "a"}, {"name": "b"}]}
    (predicted,) = predict([make.rollout(phase=None, **spec)], state, make.now)
    assert [(node.name, node.starts, node.message) for node in predicted.nodes] == [
        ("a", "NodeNeeded", "a last replica"),
        ("b", "MaxConcurrent", "1 of 1 nodes in flight: Plan os/base"),
    ]


@pytest.mark.rule("NP-41")
@pytest.mark.rule("NP-43")
def test_a_plan_shows_windows_and_waves(make: Make) -> None:
    nodes = [plan_node(make.node(name)) for name in "abcd"]

    def plan(**strategy: Any) -> Any:
        spec: dict[str, Any] = {"nodeSelectors": [{"matchAll": True}], "strategy": strategy}
        (predicted,) = predict(
            [make.rollout(phase=None, **spec)], ClusterState(nodes=nodes), make.now
        )
        return predicted

    closed = plan(windows=[{"days": ["fri"], "start": "22:00", "end": "04:00"}])
    assert [(one.reason, one.severity) for one in closed.findings] == [("OutsideWindow", "Note")]
    message = "no node starts now; the next window opens at 2026-01-02 22:00:00 UTC"
    assert closed.findings[0].message == message
    assert [node.starts for node in closed.nodes] == ["OutsideWindow", *["Queued"] * 3]
    waves = plan(waves=[{"upTo": 1, "soakSeconds": 60}, {"upTo": "60%", "approval": True}])
    assert [one.message for one in waves.findings] == [
        "2 waves of 4 nodes: up to 1, then 60 s; up to 3, then an approval"
    ]
    assert [node.starts for node in waves.nodes] == ["Now", "Wave", "Queued", "Queued"]
    wrong = plan(waves=[{"upTo": 2}, {"upTo": "10%"}])
    assert wrong.is_blocked
    assert [one.reason for one in wrong.findings] == ["InvalidSpec"]
    wrong = plan(windows=[{"start": "9am", "end": "09:00"}])
    assert wrong.is_blocked


@pytest.mark.rule("IG-76")
def test_a_plan_names_the_pods_that_become_unready(make_cluster: Callable[[], Cluster]) -> None:
    cluster, gate = make_cluster(), "navarchos.pusher.com/in-service"
    cluster.spec["drain"] = {"prepare": {"readinessGate": gate}}
    gates, other = [{"conditionType": gate}], [{"conditionType": "navarchos.pusher.com/warm"}]
    cluster.pod("web-1", app="web", readinessGates=gates)
    cluster.pod("free", readinessGates=gates)
    cluster.pod("logs-1", owner=("apps/v1", "DaemonSet", "logs"), app="logs", readinessGates=gates)
    cluster.pod("warm", readinessGates=other)
    cluster.pod("elsewhere", "far", readinessGates=gates)
    ending = {"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": ["example.org/f"]}
    cluster.pod("ending", metadata=ending, readinessGates=gates)
    (node,) = cluster.plan().nodes
    found = {each.pod: each for each in node.findings if each.reason == "MadeUnready"}
    unready = f"becomes unready before the cordon of its node, by its readiness gate {gate}"
    kept = "stays ready until its eviction, because a budget covers it: shop/web"
    assert {pod: each.message for pod, each in found.items()} == {
        "shop/free": unready,
        "shop/logs-1": unready,
        "shop/web-1": kept,
    }
    assert found["shop/web-1"].budgets == ("shop/web",)
    del cluster.spec["drain"]
    (node,) = cluster.plan().nodes
    assert not [each for each in node.findings if each.reason == "MadeUnready"]
