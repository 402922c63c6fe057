"""Readiness gates of pods: which conditions change, and when a drain is answered (IG-76)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.unit.operator.conftest import NO_TIME, Killed, Operator

from navarchos.client import Forbidden, ResourceClient
from navarchos.drain import BUDGETS, Budget
from navarchos.meta import format_time
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, NodeDrain
from navarchos.operator.drains.preparing import PrepareOutcome, decide_preparation
from navarchos.operator.marks import (
    MarkHolder,
    read_marks,
    readiness_mark,
    return_patch,
    take_patch,
)
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.readiness_gates import (
    GATED_PODS,
    NODE_INDEX,
    READINESS_GATES,
    GatedPod,
    ReadinessReconciler,
    changes_of,
    index_by_node,
    trim_pod,
    unready_gates,
)
from navarchos.operator.systems import add_systems
from navarchos.runtime import DONE, Manager, Request, Result
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.testing.clock import FakeClock
from navarchos.testing.managers import running_manager

GATE, OTHER = "navarchos.pusher.com/in-service", "navarchos.pusher.com/warm"
FOREIGN = "target-health.example.com/web"
MARK = {"navarchos.pusher.com/unready.in-service": "true"}
ANSWER = "navarchos.pusher.com/pods-unready"
HOLDER = MarkHolder("NodeDrain", "d", "u")

pytestmark = pytest.mark.rule("IG-76")


def pod(
    name: str = "web", *gates: str, phase: str = "Running", **conditions: str
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "nodeName": "a",
            "containers": [{"name": "c", "image": "example.com/c:1"}],
            "readinessGates": [{"conditionType": gate} for gate in (gates or (GATE,))],
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": t, "status": s} for t, s in conditions.items()],
        },
    }


def read(manifest: dict[str, Any]) -> GatedPod:
    return msgspec.convert(manifest, GatedPod)


def budget(app: str) -> Budget:
    spec = {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1}
    meta = {"name": "b", "namespace": "default"}
    return msgspec.convert({"metadata": meta, "spec": spec}, Budget)


@pytest.mark.parametrize(
    ("manifest", "unready", "changes"),
    [
        (pod(), (), {GATE: True}),
        (pod(**{GATE: "True"}), (), {}),
        (pod(**{GATE: "Unknown"}), (), {GATE: True}),
        (pod(**{GATE: "False"}), (), {GATE: True}),
        (pod(**{GATE: "True"}), (GATE,), {GATE: False}),
        (pod(), (GATE,), {}),
        (pod(**{GATE: "Unknown"}), (GATE,), {}),
        (pod(**{GATE: "False"}), (GATE,), {}),
        (pod("web", GATE, OTHER, **{GATE: "True"}), (GATE,), {GATE: False, OTHER: True}),
        (pod("web", FOREIGN), (GATE,), {}),
        (pod("web", FOREIGN, GATE, **{GATE: "True"}), (GATE, FOREIGN), {GATE: False}),
        (pod("guarded", **{GATE: "True"}), (GATE,), {}),
        (pod("guarded", **{GATE: "False"}), (GATE,), {GATE: True}),
        (pod(phase="Succeeded"), (), {}),
        (pod(phase="Failed", **{GATE: "True"}), (GATE,), {}),
        (pod(phase="Pending"), (), {GATE: True}),
    ],
)
def test_a_condition_follows_the_mark_of_the_node(
    manifest: dict[str, Any], unready: tuple[str, ...], changes: dict[str, bool]
) -> None:
    found = changes_of(read(manifest), frozenset(unready), [budget("guarded")])
    assert {change.type: change.is_true for change in found} == changes


def test_a_pod_that_is_being_deleted_stays_as_it_is() -> None:
    manifest = pod(**{GATE: "True"})
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert list(changes_of(read(manifest), frozenset({GATE}), [])) == []


def test_only_marks_of_gates_count() -> None:
    annotations = {
        **MARK,
        "navarchos.pusher.com/unready.warm": "false",
        "navarchos.pusher.com/detached-for": "true",
        "example.com/unready.cold": "true",
    }
    node = msgspec.convert({"metadata": {"name": "a", "annotations": annotations}}, Node)
    assert unready_gates(node) == {GATE}


def test_caches_keep_only_the_identity_of_pods_without_gates() -> None:
    manifest = pod("web", FOREIGN)
    manifest["metadata"] |= {"uid": "u", "resourceVersion": "7", "annotations": {"a": "b"}}
    trimmed = trim_pod(read(manifest))
    bare = {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "7"}
    assert trimmed == msgspec.convert({"metadata": bare}, GatedPod)
    assert index_by_node(trimmed) == ()
    gated = read(pod(**{GATE: "True"}))
    assert list(changes_of(trim_pod(gated), frozenset(), [])) == []
    assert index_by_node(trim_pod(gated)) == ("a",)


@pytest.mark.parametrize(
    ("seconds", "outcome"), [(0, PrepareOutcome.READY), (1, PrepareOutcome.WAIT)]
)
def test_an_answer_counts_for_the_present_mark_only(seconds: int, outcome: PrepareOutcome) -> None:
    """The mark may have been removed by another client, and set again."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    metadata = {"name": "d", "uid": "u", "annotations": {ANSWER: format_time(at)}}
    spec = {"nodeName": "a", "prepare": {"readinessGate": GATE}}
    drain = msgspec.convert({"metadata": metadata, "spec": spec}, NodeDrain)
    node = msgspec.convert({"metadata": {"name": "a"}}, Node)
    since = at + timedelta(seconds=seconds)
    body = take_patch(node, [readiness_mark(GATE)], HOLDER, since)
    assert body is not None
    marked = msgspec.convert(merged({"metadata": {"name": "a"}}, body), Node)
    decision = decide_preparation(drain, marked, None, at, since)
    assert decision is not None
    assert decision.outcome is outcome


def merged(manifest: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {**manifest["metadata"], **patch["metadata"]}}


class World:
    """The reconciler over HTTP, and a drain that prepares a node."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.person = operator.drain_controller
        self.begin()
        operator.add_node("a")
        prepare = {"readinessGate": GATE, "settleSeconds": 20}
        drain = {"metadata": {"name": "d"}, "spec": {"nodeName": "a", "prepare": prepare}}
        self.drains.create(drain)
        self.drains.patch("d", {"status": {"phase": "Preparing"}}, subresource="status")

    def begin(self) -> None:
        """Start with empty caches."""
        operator = self.operator
        self._pods = operator.cached_client(GATED_PODS)
        self._pods.informer.add_indexers({NODE_INDEX: index_by_node})
        self._budgets = operator.cached_client(BUDGETS)
        operator.factory.start(operator.stop)
        operator.factory.wait_for_sync(NO_TIME)
        clock = operator.clock
        self.reconciler = ReadinessReconciler(operator.clients, self._pods, self._budgets, clock)

    @property
    def drains(self) -> ResourceClient[Any]:
        return self.person.resource(NODE_DRAINS)

    def mark(self, *, is_marked: bool = True) -> None:
        """Set or end the mark, as the drain does."""
        now, node = self.operator.clock.now(), self.operator.node("a")
        body = take_patch(node, [readiness_mark(GATE)], HOLDER, now)
        if not is_marked:
            body = return_patch(node, [HOLDER])
        assert body is not None
        self.person.resource(NODES).patch("a", body)

    @property
    def marked_at(self) -> str:
        """The answer for the present mark."""
        return format_time(read_marks(self.operator.node("a"))[readiness_mark(GATE).id].since)

    def add(self, manifest: dict[str, Any]) -> None:
        self.operator.server.install({"apiVersion": "v1", "kind": "Pod", **manifest})

    def reconcile(self) -> Result:
        self.operator.see()
        for informer in (self._pods.informer, self._budgets.informer):
            assert informer.catch_up(NO_TIME)
        return self.reconciler.reconcile(Request("", "a"))

    def conditions(self, name: str = "web") -> dict[str, str]:
        found = self.operator.server.get("pods", name, "default")
        return {each["type"]: each["status"] for each in found["status"].get("conditions", ())}

    @property
    def answer(self) -> str:
        return str(self.drains.get("d").metadata.annotations.get(ANSWER, ""))

    def patches(self) -> int:
        records = self.operator.server.audit
        return sum((r.verb, r.subresource) == ("patch", "status") for r in records)


@pytest.fixture
def world(operator: Operator) -> World:
    return World(operator)


def test_a_drain_is_answered_when_its_pods_have_settled(world: World) -> None:
    world.add(pod(**{GATE: "True", FOREIGN: "True"}))
    assert world.reconcile() == DONE
    assert world.answer == ""
    world.mark()
    assert world.reconcile().requeue_after == 20.0
    assert world.conditions() == {GATE: "False", FOREIGN: "True"}
    assert world.answer == ""
    world.operator.clock.advance(19.0)
    assert world.reconcile().requeue_after == 1.0
    world.operator.clock.advance(1.0)
    assert world.reconcile() == DONE
    assert world.answer == world.marked_at
    version = world.drains.get("d").metadata.resource_version
    before = world.patches()
    assert world.reconcile() == DONE
    assert (world.drains.get("d").metadata.resource_version, world.patches()) == (version, before)
    world.mark(is_marked=False)
    world.reconcile()
    assert world.conditions() == {GATE: "True", FOREIGN: "True"}


def test_a_drain_of_a_node_without_such_pods_is_answered_at_once(world: World) -> None:
    world.add(pod("other", FOREIGN))
    world.mark()
    assert world.reconcile() == DONE
    assert world.answer == world.marked_at
    assert world.conditions("other") == {}


def test_a_drain_is_not_answered_while_a_patch_is_refused(world: World) -> None:
    world.add(pod(**{GATE: "True"}))
    world.mark()
    refused = Fault(verb="patch", resource="pods", status=403, times=1)
    world.operator.server.faults.add(refused)
    with pytest.raises(Forbidden):
        world.reconcile()
    assert (world.conditions(), world.answer) == ({GATE: "True"}, "")
    assert world.reconcile().requeue_after == 20.0


def test_a_pod_that_was_replaced_under_its_name_is_not_written(world: World) -> None:
    world.add(pod(**{GATE: "True"}))
    world.mark()
    world.operator.see()
    assert world.operator.factory.shutdown(NO_TIME)  # the caches do not follow any more
    world.person.resource(GATED_PODS).delete("web", "default", grace_period_seconds=0)
    world.add(pod())
    world.reconciler.reconcile(Request("", "a"))
    assert world.conditions() == {}


def test_a_manager_that_takes_over_writes_nothing_twice(world: World) -> None:
    """All state is in the mark, and in the time of the condition."""
    world.add(pod(**{GATE: "True"}))
    world.mark()
    world.reconcile()
    before = world.patches()
    world.operator.clock.advance(12.0)
    world.operator.restart()
    world.begin()
    assert world.reconcile().requeue_after == 8.0
    assert world.patches() == before


def test_a_pod_is_ready_also_if_its_node_is_seen_later(definitions: list[Any]) -> None:
    """The watches of pods and of nodes are independent of each other."""
    clock = FakeClock()
    server = ApiServer(crds=definitions, clock=clock)

    def set_up(manager: Manager) -> None:
        add_systems(manager, [READINESS_GATES])

    def conditions() -> dict[str, str]:
        clock.advance(2.0)
        found = server.get("pods", "web", "default")["status"].get("conditions", ())
        return {each["type"]: each["status"] for each in found}

    with (
        server.client(user_agent="manager") as client,
        running_manager(set_up, client, clock=clock),
    ):
        server.install({"apiVersion": "v1", "kind": "Pod", **pod()})
        assert conditions() == {}
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
        assert conditions() == {GATE: "True"}


def test_a_drain_is_not_answered_while_a_write_conflicts(world: World) -> None:
    """The conflicting write may be of another condition, of which no event comes."""
    world.add(pod(**{GATE: "True"}))
    world.mark()
    world.drains.patch("d", {"spec": {"prepare": {"settleSeconds": 0}}})
    conflict = Fault(verb="patch", resource="pods", status=409, times=1)
    world.operator.server.faults.add(conflict)
    assert world.reconcile().requeue_after == 1.0
    assert (world.conditions(), world.answer) == ({GATE: "True"}, "")
    assert world.reconcile() == DONE
    assert (world.conditions(), world.answer) == ({GATE: "False"}, world.marked_at)


@pytest.mark.parametrize("writes", range(1, 5))
def test_a_process_that_is_killed_after_any_write_is_continued(world: World, writes: int) -> None:
    for name in ("one", "two", "three"):
        world.add(pod(name, **{GATE: "True"}))
    world.mark()
    world.drains.patch("d", {"spec": {"prepare": {"settleSeconds": 0}}})
    world.operator.see()
    transport = world.operator.transport
    transport.armed, transport.writes_left = True, writes
    with pytest.raises(Killed):
        world.reconcile()
    transport.armed = False
    world.operator.restart()
    world.begin()
    before = world.patches()
    assert world.reconcile() == DONE
    assert [world.conditions(name) for name in ("one", "two", "three")] == [{GATE: "False"}] * 3
    assert (world.answer, world.patches() - before) == (world.marked_at, max(3 - writes, 0))


def test_pods_that_come_after_the_mark_do_not_prolong_the_wait(world: World) -> None:
    """They have never been ready on this node, and a busy node gets one after the other."""
    world.add(pod(**{GATE: "True"}))
    world.mark()
    assert world.reconcile().requeue_after == 20.0
    world.operator.clock.advance(15.0)
    world.add(pod("late", GATE))
    assert world.reconcile().requeue_after == 5.0
    assert world.conditions("late") == {}
    world.mark(is_marked=False)
    world.reconcile()
    assert world.conditions("late") == {GATE: "True"}
