"""A whole manager at gates, windows and waves, in virtual time: when nodes start, at which cost."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cases.manifests import API_VERSION, WIDGETS, widget_definition

from navarchos.client import Client, Resource
from navarchos.operator import deployment
from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NODE_ROLLOUTS
from navarchos.operator.names import JOINING_TAINT
from navarchos.operator.setup import add_operator
from navarchos.runtime import Manager
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.testing.clock import FakeClock
from navarchos.testing.managers import running_manager

pytestmark = pytest.mark.usefixtures("no_detector")

CONFIG: Final = Path(__file__).parents[2] / "config"
MINUTE: Final = 60.0
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict)
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
CLUSTER_ROLES: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False, type=dict
)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    type=dict,
)
ROLLOUTS: Final = NODE_ROLLOUTS.projected(dict)
READY: Final = {"conditions": [{"type": "Ready", "status": "True"}]}

GATE: Final[dict[str, Any]] = {
    "name": "widget",
    "object": {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "namespace": "default",
        "name": "disk",
    },
    "for": "jsonpath={.status.health}=OK",
    "stableSeconds": 30,
}


class CountingClock(FakeClock):
    """Virtual time that counts the waits of the thread that opens the informers of gates."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_of_gates = 0

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        if threading.current_thread().name == "nav-gates":
            self.waits_of_gates += 1
        return super().wait(condition, timeout)


class World:
    """A server without a network, its manager, and the user who changes its objects."""

    def __init__(
        self, server: ApiServer, clock: CountingClock, user: Client, manager: Manager
    ) -> None:
        self.server = server
        self.clock = clock
        self.user = user
        self._manager = manager

    def add_node(self, name: str, **spec: Any) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        self.server.install({**node, "status": READY})

    def add_widget(self, health: str) -> None:
        self.server.install(widget_definition())
        self.user.resource(WIDGETS).create({"metadata": {"name": "disk"}}, "default")
        self.set_health(health)

    def set_health(self, health: str) -> None:
        body = {"status": {"health": health}}
        self.user.resource(WIDGETS).patch("disk", body, "default", subresource="status")
        self.clock.settle()

    def set_ready(self, node: str, status: str) -> None:
        body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        self.user.resource(NODES).patch(node, body, subresource="status")
        self.clock.settle()

    def roll(self, *nodes: str, **spec: Any) -> None:
        spec["nodeNames"] = [{"name": name} for name in nodes]
        rollout = {"apiVersion": API_VERSION, "kind": "NodeRollout", "metadata": {"name": "roll"}}
        self.user.resource(ROLLOUTS).create({**rollout, "spec": spec})
        self.clock.advance(1)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.get("noderollouts", "roll", group=ROLLOUTS.group)
        return found.get("status") or {}

    def wait_until_completed(self) -> None:
        """Let pass the time for which status writes may be deferred."""
        self.clock.advance(20)
        assert self.status()["phase"] == "Completed"

    def gate(self, name: str = "widget") -> tuple[str, str]:
        (found,) = (each for each in self.status()["gates"] if each["name"] == name)
        return found["state"], found.get("message", "")

    def starts(self) -> dict[str, datetime]:
        """Return when each node started."""
        found = self.server.list("nodereplacements", group=NODE_REPLACEMENTS.group)
        return {
            each["spec"]["nodeName"]: datetime.fromisoformat(each["status"]["startTimestamp"])
            for each in found
            if (each.get("status") or {}).get("startTimestamp")
        }

    def requests(self) -> Counter[tuple[str, str]]:
        """Return the requests of the manager, by verb and kind, without watches.

        A watch that has ended after its normal lifetime begins again in any idle manager.
        """
        return Counter(
            (each.verb, each.resource)
            for each in self.server.audit
            if each.user_agent == "manager" and each.verb != "watch"
        )

    def wake_ups(self) -> Counter[str]:
        """Return how often controllers and gates woke, and how often alerts were queried."""
        found = Counter(gates=self.clock.waits_of_gates)
        for family in self._manager.instruments.registry.collect():
            for sample in family.samples:
                if sample.name == "controller_runtime_reconcile_total":
                    found[sample.labels["controller"]] += int(sample.value)
                elif sample.name == "navarchos_gate_alert_queries_total":
                    found["alerts"] += int(sample.value)
        return found


@pytest.fixture
def world() -> Iterator[World]:
    with running_world() as found:
        yield found


@contextmanager
def running_world(*, rbac: bool = False) -> Iterator[World]:
    """Run a manager; with the shipped roles, if the server checks permissions."""
    clock = CountingClock()
    server = ApiServer(crds=[CONFIG / "crds"], clock=clock, rbac=rbac)
    if rbac:
        server.install(*deployment.manifests())
    account = "system:serviceaccount:kube-system:navarchos" if rbac else ""
    with (
        server.client(user_agent="manager", user=account) as client,
        server.client(user_agent="user") as user,
        running_manager(add_operator, client, clock=clock) as manager,
    ):
        yield World(server, clock, user, manager)


@pytest.mark.rule("NP-30")
def test_an_object_that_is_not_well_for_twenty_minutes_holds_the_next_node(world: World) -> None:
    for name in ("a", "b", "c"):
        world.add_node(name)
    add_pod(world, "a")
    world.add_widget("OK")
    world.roll("a", "b", "c", gates=[GATE], strategy={"maxConcurrent": 1})
    world.clock.advance(30)
    assert list(world.starts()) == ["a"]
    world.set_health("Degraded")
    world.user.resource(PODS).patch("app", {"metadata": {"finalizers": None}}, "default")
    for _ in range(20):
        world.clock.advance(MINUTE)
        assert list(world.starts()) == ["a"], "0 further nodes start"
    assert world.status()["replacementsCompleted"] == ["a"]
    assert world.gate() == ("Closed", "Widget default/disk: {.status.health}=Degraded")
    world.set_health("OK")
    world.clock.advance(20)
    world.set_health("Degraded")
    world.set_health("OK")
    opened = world.clock.now()
    world.clock.advance(29.9)
    assert list(world.starts()) == ["a"], "it was not stable"
    world.clock.advance(1.0)
    assert 30 <= (world.starts()["b"] - opened).total_seconds() < 31
    world.wait_until_completed()


def add_pod(world: World, node: str) -> None:
    """Add a pod that keeps its node draining until its finalizer is removed."""
    owner = {"apiVersion": "example.org/v1", "kind": "Replicas", "name": "app", "uid": "uid-app"}
    world.server.install(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "app",
                "namespace": "default",
                "finalizers": ["example.org/app"],
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "image": "i"}],
                "terminationGracePeriodSeconds": 0,
            },
            "status": {"phase": "Running"},
        }
    )


@pytest.mark.rule("NP-30")
def test_a_kind_that_arrives_later_opens_its_gate_without_a_restart(world: World) -> None:
    world.add_node("a")
    world.roll("a", gates=[{**GATE, "stableSeconds": 0}])
    world.clock.advance(MINUTE)
    assert world.gate() == ("Closed", "the server has no kind Widget in example.com/v1")
    assert world.starts() == {}
    world.add_widget("OK")
    world.clock.advance(6)
    assert world.gate()[0] == "Open"
    world.wait_until_completed()


ROLE: Final = {
    "metadata": {
        "name": "widgets",
        "labels": {"navarchos.pusher.com/aggregate-to-gates": "true"},
    },
    "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "watch"]}],
}
"""What a user adds for a gate on widgets, as the message of the gate says."""

NO_PERMISSION: Final = (
    "no permission to list and watch Widget of example.com/v1: add a ClusterRole with the label "
    'navarchos.pusher.com/aggregate-to-gates: "true" and the rule {apiGroups: ["example.com"], '
    'resources: ["widgets"], verbs: ["list", "watch"]}'
)


@pytest.mark.rule("NP-30")
def test_a_kind_that_the_manager_may_not_read_opens_its_gate_when_the_role_arrives() -> None:
    with running_world(rbac=True) as world:
        world.add_node("a")
        world.add_widget("OK")
        world.roll("a", gates=[GATE])
        world.clock.advance(MINUTE)
        assert world.gate() == ("Closed", NO_PERMISSION)
        assert world.starts() == {}
        world.user.resource(CLUSTER_ROLES).create(ROLE)
        world.clock.advance(6)
        assert world.gate()[0] == "Open"
        opened = world.clock.now()
        world.clock.advance(MINUTE)
        assert (world.starts()["a"] - opened).total_seconds() <= 30
        assert world.status()["phase"] == "Completed"


@pytest.mark.rule("NP-30")
def test_a_gate_whose_permission_is_taken_away_does_not_trust_what_it_knew() -> None:
    with running_world(rbac=True) as world:
        roles = world.user.resource(CLUSTER_ROLES)
        roles.create(ROLE)
        world.add_node("a")
        world.add_widget("OK")
        world.roll("a", gates=[{**GATE, "stableSeconds": 3600}])
        assert world.gate()[0] == "Open"
        roles.delete("widgets")
        world.clock.advance(15 * MINUTE)  # the server checks a permission when a watch begins
        assert world.gate() == ("Closed", NO_PERMISSION)
        world.set_health("Degraded")
        roles.create(ROLE)
        world.clock.advance(MINUTE)
        assert world.gate() == ("Closed", "Widget default/disk: {.status.health}=Degraded")
        world.set_health("OK")
        opened = world.clock.now()
        world.clock.advance(3600 + MINUTE)
        assert 3600 <= (world.starts()["a"] - opened).total_seconds() < 3601


@pytest.mark.rule("NP-30")
def test_a_gate_follows_its_object_after_its_kind_was_removed_and_installed_again(
    world: World,
) -> None:
    world.add_node("a")
    world.add_widget("OK")
    world.roll("a", gates=[{**GATE, "stableSeconds": 3600}])
    assert world.gate()[0] == "Open"
    world.user.resource(DEFINITIONS).delete(widget_definition()["metadata"]["name"])
    world.clock.advance(15 * MINUTE)
    assert world.gate()[0] == "Closed"
    world.add_widget("Degraded")
    world.clock.advance(MINUTE)
    assert world.gate() == ("Closed", "Widget default/disk: {.status.health}=Degraded")
    world.set_health("OK")
    opened = world.clock.now()
    world.clock.advance(3600 + MINUTE)
    assert 3600 <= (world.starts()["a"] - opened).total_seconds() < 3601


LOST_WATCHES: Final[dict[str, dict[str, Any]]] = {
    "closed": {"drop_after": 2},
    "cut": {"truncate_after": 2},
    "silent": {"stall_after": 2},
    "refused": {"status": 503, "times": 5},
    "expired": {"status": 410, "times": 2},
    "forbidden": {"status": 403, "times": 3},
}
"""Faults of watches. The object and the end of the list are the first two events of a watch."""


@pytest.mark.rule("NP-30")
@pytest.mark.parametrize("lost", LOST_WATCHES)
def test_a_gate_follows_its_object_after_a_lost_watch(world: World, lost: str) -> None:
    world.add_node("a")
    world.add_widget("Degraded")
    world.server.faults.add(Fault(verb="watch", resource="widgets", **LOST_WATCHES[lost]))
    world.roll("a", gates=[{**GATE, "timeoutSeconds": 0}])
    world.clock.advance(10)
    assert world.gate()[0] == "Closed"
    world.set_health("OK")
    world.clock.advance(3 * MINUTE)
    assert world.server.faults.pending == ()
    assert world.status()["phase"] == "Completed"


@pytest.mark.rule("NP-30")
def test_machines_that_join_do_not_close_a_gate_on_nodes(world: World) -> None:
    world.add_node("a")
    world.add_node("late")
    world.set_ready("late", "Unknown")
    world.roll("a", gates=[{"name": "nodes", "nodes": {"maxUnready": 0}}])
    message = "1 nodes are not Ready, more than maxUnready (0): late"
    assert world.gate("nodes") == ("Closed", message)
    joining = [{"key": JOINING_TAINT, "effect": "NoSchedule"}]
    world.user.resource(NODES).patch("late", {"spec": {"taints": joining}})
    world.clock.advance(1)
    assert world.gate("nodes")[0] == "Open"
    world.wait_until_completed()


IDLE: Final[dict[str, dict[str, Any]]] = {
    "closed gates": {
        "gates": [
            {**GATE, "timeoutSeconds": 0},
            {"name": "pods", "evictedPods": {}},
            {"name": "nodes", "nodes": {"maxUnready": 0}, "timeoutSeconds": 3600},
        ]
    },
    "open gate": {"gates": [{"name": "n", "nodes": {"maxUnready": 0}, "stableSeconds": 86400}]},
    "alerts behind a window": {
        "gates": [{"name": "alerts", "alerts": {"url": "http://127.0.0.1:9"}}],
        "strategy": {"windows": [{"days": ["mon"], "start": "03:00", "end": "04:00"}]},
    },
    "window": {"strategy": {"windows": [{"days": ["mon"], "start": "03:00", "end": "04:00"}]}},
    "blackout": {
        "strategy": {"blackouts": [{"from": "2025-12-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}]}
    },
    "approval": {
        "strategy": {"maxConcurrent": 1, "waves": [{"upTo": 1, "approval": True}, {"upTo": 3}]}
    },
    "soak": {"strategy": {"maxConcurrent": 1, "waves": [{"upTo": 1, "soakSeconds": 86400}]}},
}
"""Rollouts whose nodes wait. The virtual clock begins on a Thursday, the first of January 2026."""


@pytest.mark.rule("NP-30")
@pytest.mark.rule("NP-41")
@pytest.mark.rule("NP-43")
@pytest.mark.parametrize("case", IDLE)
def test_waiting_for_ten_minutes_costs_no_request_and_no_wake_up(world: World, case: str) -> None:
    """The writes before it ends waiting show that the count can fail."""
    for name in ("a", "b", "c"):
        world.add_node(name)
    world.add_widget("Degraded")
    world.roll("a", "b", "c", **IDLE[case])
    world.clock.advance(2 * MINUTE)  # a minute after a drain, its controller looks for pods again
    requests, wake_ups = world.requests(), world.wake_ups()
    assert requests
    assert wake_ups.total()
    assert wake_ups["alerts"] == 0
    if case == "closed gates":
        assert wake_ups["gates"]
    assert len(world.starts()) < 3
    world.clock.advance(10 * MINUTE)
    assert world.requests() - requests == Counter()
    assert world.wake_ups() == wake_ups
    assert len(world.starts()) < 3
    world.user.resource(ROLLOUTS).patch("roll", {"spec": {"gates": [], "strategy": None}})
    world.wait_until_completed()
    assert world.requests() - requests
    assert world.wake_ups() != wake_ups


@pytest.mark.rule("NP-21")
def test_a_drained_node_that_waits_for_a_gate_costs_no_request_and_no_wake_up(world: World) -> None:
    world.add_node("a")
    add_pod(world, "a")
    world.add_widget("OK")
    world.roll("a", gates=[{**GATE, "stableSeconds": 0, "after": True}])
    assert list(world.starts()) == ["a"]
    world.set_health("Degraded")
    world.user.resource(PODS).patch("app", {"metadata": {"finalizers": None}}, "default")
    world.clock.advance(2 * MINUTE)
    requests, wake_ups = world.requests(), world.wake_ups()
    world.clock.advance(10 * MINUTE)
    (found,) = world.server.list("nodereplacements", group=NODE_REPLACEMENTS.group)
    assert found["status"]["step"]["name"] == "Verifying"
    assert world.requests() - requests == Counter()
    assert world.wake_ups() == wake_ups
    world.set_health("OK")
    world.wait_until_completed()
