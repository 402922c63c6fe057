"""The checker finds violations: each test breaks one rule."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from tests.cases.checker import Checker, Violation
from tests.cases.target import KINDS

from navarchos.client import Client, ClientConfig
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.names import CORDONED_BY_ANNOTATION, DRAIN_COMPLETED_LABEL
from navarchos.testing.apiserver import ApiServer, BucketId, Change

JsonObject = dict[str, Any]
LABELS = {"app": "web"}


class Scene:
    """A server without controllers, a checker that watches it, and methods that break rules."""

    def __init__(self, server: ApiServer, checker: Checker, client: Client) -> None:
        self.server = server
        self.checker = checker
        self._client = client

    def of(self, kind: str) -> Any:
        return self._client.resource(KINDS[kind])

    def cordon(self, node: str, drain: str = "d/u") -> None:
        annotations = {CORDONED_BY_ANNOTATION: drain}
        body = {"spec": {"unschedulable": True}, "metadata": {"annotations": annotations}}
        self.of("Node").patch(node, body)

    def found(self) -> list[str]:
        """Return the checker's violations, after it has received all changes."""
        self.checker.settle()
        self.checker.judge_the_end()
        return [violation.what for violation in self.checker.violations]


def pod(name: str, node: str = "a", **metadata: object) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": LABELS, **metadata},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "web"}],
            "terminationGracePeriodSeconds": 30,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def budget(minimum: int, allowed: int) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": minimum, "selector": {"matchLabels": LABELS}},
        # The API server decides by this value. No controller computes it here, so it may be wrong.
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 2,
            "desiredHealthy": minimum,
            "expectedPods": 2,
            "observedGeneration": 1,
        },
    }


def replacement(name: str, phase: str) -> JsonObject:
    return {
        "apiVersion": "navarchos.pusher.com/v1alpha1",
        "kind": "NodeReplacement",
        "metadata": {"name": name},
        "spec": {"nodeName": name},
        "status": {"phase": phase},
    }


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ApiServer(crds=manifests()) as server:
        server.install(
            *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": n}} for n in "abc"),
            pod("web-1"),
            pod("web-2"),
        )
        config = ClientConfig(host=server.url)
        with Client(config) as client, Checker(Client(config), late_binding=0.0) as checker:
            yield Scene(server, checker, client)


def test_a_correct_drain_has_no_violation(scene: Scene) -> None:
    scene.server.install(budget(1, 1))
    scene.cordon("a")
    scene.of("Pod").evict("web-1", "default")
    scene.of("Node").patch("a", {"metadata": {"labels": {DRAIN_COMPLETED_LABEL: "now"}}})
    scene.cordon("b")
    scene.of("Node").patch(
        "b",
        {
            "spec": {"unschedulable": None},
            "metadata": {"annotations": {CORDONED_BY_ANNOTATION: None}},
        },
    )
    assert scene.found() == []
    assert scene.checker.cordoned == ("a", "b")
    assert scene.checker.drained == ("a",)
    assert scene.checker.evictions("default") == 1
    assert scene.checker.most_in_flight == 1


def test_a_deletion_against_a_budget_is_a_violation(scene: Scene) -> None:
    scene.server.install(budget(2, 0))
    scene.checker.settle()
    scene.of("Pod").delete("web-1", "default")
    assert scene.found() == ["BudgetViolated"]
    (violation,) = scene.checker.violations
    assert violation.about == "default/web-1"


def test_an_eviction_that_was_granted_wrongly_is_a_violation(scene: Scene) -> None:
    scene.server.install(budget(2, 1))
    scene.checker.settle()
    scene.of("Pod").evict("web-1", "default")
    assert scene.found() == ["BudgetViolated"]


@pytest.mark.parametrize(("is_told", "found"), [(True, []), (False, ["BudgetViolated"])])
def test_an_eviction_may_arrive_before_the_expected_budget_change(
    scene: Scene, is_told: bool, found: list[str]
) -> None:
    scene.server.install(budget(2, 0))
    scene.checker.settle()
    before = scene.of("Pod").get("web-1", "default")
    after = deepcopy(before)
    after["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    after["status"]["conditions"].append(mark)
    if is_told:
        body = {"spec": {"minAvailable": 1}}
        budgets = scene.of("PodDisruptionBudget")
        former = budgets.get("web", "default")
        scene.checker.expect(budgets.patch("web", body, "default", dry_run=True))
        late = Change("MODIFIED", BucketId("poddisruptionbudgets", "policy"), former, None, 0, None)
        scene.checker.observe(late)
    scene.checker.observe(Change("MODIFIED", BucketId("pods", ""), after, before, 0, None))
    assert [violation.what for violation in scene.checker.violations] == found


def test_a_deletion_against_a_budget_is_allowed_if_the_case_bypasses_budgets(scene: Scene) -> None:
    scene.checker.bypasses_budgets = True
    scene.server.install(budget(2, 0))
    scene.of("Pod").delete("web-1", "default")
    assert scene.found() == []


def test_the_deletion_of_a_pod_of_a_missing_node_is_not_a_disruption(scene: Scene) -> None:
    scene.server.install(budget(2, 0))
    scene.of("Node").delete("a")
    scene.checker.settle()
    scene.of("Pod").delete("web-1", "default", grace_period_seconds=0)
    assert scene.found() == []


def test_one_replacement_too_many_in_flight_for_a_moment_is_a_violation(scene: Scene) -> None:
    scene.server.install(replacement("a", "InProgress"), replacement("b", "New"))
    ours = scene.of("NodeReplacement")
    ours.patch("b", {"status": {"phase": "InProgress"}}, subresource="status")
    ours.patch("a", {"status": {"phase": "Completed"}}, subresource="status")
    assert scene.found() == ["TooManyInFlight"]
    assert scene.checker.violations == [
        Violation("TooManyInFlight", "a, b", "2 replacements at once, at most 1 allowed")
    ]


def test_one_cordon_too_many_for_a_moment_is_a_violation(scene: Scene) -> None:
    scene.cordon("a")
    scene.cordon("b")
    labels = {DRAIN_COMPLETED_LABEL: "now"}
    for node in ("a", "b"):
        scene.of("Node").patch(node, {"metadata": {"labels": labels}})
    assert scene.found() == ["TooManyInFlight"]


def test_as_many_nodes_as_the_case_declares_are_allowed(scene: Scene) -> None:
    scene.checker.in_flight = 2
    scene.server.install(replacement("a", "InProgress"), replacement("b", "InProgress"))
    assert scene.found() == []
    assert scene.checker.most_in_flight == 2


def test_a_cordon_of_a_deleted_drain_is_a_violation(scene: Scene) -> None:
    scene.cordon("a", "gone/uid")
    assert scene.found() == ["CordonLeft"]


def test_the_cordon_of_an_existing_drain_is_allowed(scene: Scene) -> None:
    drain = {
        "apiVersion": "navarchos.pusher.com/v1alpha1",
        "kind": "NodeDrain",
        "metadata": {"name": "a"},
        "spec": {"nodeName": "a"},
    }
    made = scene.of("NodeDrain").create(drain)
    scene.cordon("a", f"a/{made['metadata']['uid']}")
    assert scene.found() == []


def test_a_pod_bound_to_a_cordoned_node_is_a_violation(scene: Scene) -> None:
    scene.of("Node").patch("b", {"spec": {"unschedulable": True}})
    scene.checker.settle()
    scene.of("Pod").create(pod("late", "b"), "default")
    assert scene.found() == ["BoundToCordonedNode"]


@pytest.mark.parametrize(
    ("state", "found"),
    [("Drained", ["ActionTooEarly"]), ("Cordoned", []), ("", ["ActionTooEarly"])],
)
def test_the_pod_of_an_action_beside_pods_that_must_leave_is_a_violation(
    scene: Scene, state: str, found: list[str]
) -> None:
    made = replacement("a", "InProgress")
    job = {"namespace": "default", "template": {"spec": {"template": {}}}}
    made["spec"]["action"] = {"job": job} | ({"node": state} if state else {})
    uid = scene.of("NodeReplacement").create(made)["metadata"]["uid"]
    scene.checker.settle()
    labels = {"navarchos.pusher.com/action": uid}
    scene.of("Pod").create(pod("work", "a", labels=labels), "default")
    assert scene.found() == found


def test_the_pod_of_an_action_on_an_empty_node_is_no_violation(scene: Scene) -> None:
    made = replacement("b", "InProgress")
    job = {"namespace": "default", "template": {"spec": {"template": {}}}}
    made["spec"]["action"] = {"job": job}
    uid = scene.of("NodeReplacement").create(made)["metadata"]["uid"]
    scene.checker.settle()
    labels = {"navarchos.pusher.com/action": uid}
    scene.of("Pod").create(pod("work", "b", labels=labels), "default")
    assert scene.found() == []


def test_a_daemon_sets_pod_may_be_bound_but_not_evicted(scene: Scene) -> None:
    template = {"metadata": {"labels": LABELS}, "spec": pod("")["spec"]}
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template},
    }
    uid = scene.of("DaemonSet").create(agent, "default")["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": uid}
    held = {"ownerReferences": [owner | {"controller": True}]}
    scene.of("Node").patch("b", {"spec": {"unschedulable": True}})
    scene.checker.settle()
    scene.of("Pod").create(pod("agent-1", "b", **held), "default")
    scene.of("Pod").patch(
        "agent-1",
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        "default",
        subresource="status",
    )
    assert scene.found() == []
    scene.of("Pod").evict("agent-1", "default")
    assert scene.found() == ["FixtureEvicted"]


def test_changes_before_a_relist_are_not_lost(scene: Scene) -> None:
    scene.server.install(budget(2, 0))
    scene.server.compact()
    scene.checker.settle()
    scene.of("Pod").delete("web-2", "default")
    assert scene.found() == ["BudgetViolated"]
