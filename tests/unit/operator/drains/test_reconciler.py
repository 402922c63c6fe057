"""Drains against a server, pass by pass, on a clock that the test moves."""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK
from navarchos.drain import BUDGETS, DAEMON_SETS
from navarchos.informers import SharedInformer
from navarchos.instrument import Instruments
from navarchos.operator.api.v1alpha1 import NODE_DRAINS
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.drains import Caches, assemble
from navarchos.operator.names import CORDONED_BY_ANNOTATION, DRAIN_FINALIZER
from navarchos.operator.nodes import NODES
from navarchos.runtime import DONE, Request, Result
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Change, Fault
from navarchos.testing.recorder import FakeRecorder

GROUP = "navarchos.pusher.com"
PATIENCE = 20.0


class ManualClock:
    """Time that the test moves; waits really wait, for a notification."""

    def __init__(self) -> None:
        self._start = datetime.now(UTC)
        self.passed = 0.0

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.passed)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        return condition.wait(timeout)


class Process:
    """One run of the manager: caches, reconciler, memory. Time and server outlive it."""

    def __init__(self, server: ApiServer, client: Client, clock: ManualClock) -> None:
        self._server = server
        self.clock = clock
        self.recorder = FakeRecorder()
        self.instruments = Instruments()
        self.woken: set[str] = set()
        self.caches = Caches(
            SharedInformer(client.resource(NODE_DRAINS)),
            SharedInformer(client.resource(NODES)),
            SharedInformer(client.resource(DAEMON_SETS)),
            SharedInformer(client.resource(BUDGETS)),
        )
        self.reconciler, self.machinery = assemble(
            client,
            self.caches,
            recorder=self.recorder,
            wake=self.woken.add,
            clock=clock,
            watch_clock=SYSTEM_CLOCK,
            rand=lambda: 0.0,
            instruments=self.instruments,
        )
        for informer in self._informers():
            informer.start()

    def _informers(self) -> list[SharedInformer[Any]]:
        caches = self.caches
        return [caches.drains, caches.nodes, caches.daemon_sets, caches.budgets]

    def step(self, name: str = "d") -> Result:
        """One pass on caches that are up to date."""
        self.catch_up()
        return self.reconciler.reconcile(Request("", name))

    def wait_for_wake(self) -> None:
        """Wait until something has asked for a look at a drain."""
        limit = SYSTEM_CLOCK.monotonic() + PATIENCE
        waiting = StopToken()
        while not self.woken:
            assert SYSTEM_CLOCK.monotonic() < limit, "nobody woke the drain"
            waiting.wait(0.002)

    def catch_up(self) -> None:
        """Wait until every cache has what the server has."""
        limit = SYSTEM_CLOCK.monotonic() + PATIENCE
        waiting = StopToken()
        for informer in [*self._informers(), *self.machinery.watches.active()]:
            while self._behind(informer):
                assert SYSTEM_CLOCK.monotonic() < limit, f"{informer.name} is behind"
                waiting.wait(0.002)

    def _behind(self, informer: SharedInformer[Any]) -> bool:
        kind = informer.resource
        node = informer.scope.field_selector.partition("=")[2]
        there = {
            (entry["metadata"]["uid"], entry["metadata"]["resourceVersion"])
            for entry in self._server.list(kind.plural, group=kind.group)
            if not node or entry["spec"].get("nodeName") == node
        }
        here = {
            (entry.metadata.uid, entry.metadata.resource_version)
            for entry in informer.store.values()
        }
        return not informer.has_synced() or here != there

    def run(
        self,
        done: Callable[[], object],
        *,
        meanwhile: Callable[[], object] = lambda: None,
        limit: float = 60.0,
        most: float = 1.0,
    ) -> float:
        """Pass after pass, time moving as each pass asks, until `done`; return the time."""
        began = self.clock.passed
        while not done():
            assert self.clock.passed - began < limit, "not done in time"
            result = self.step()
            if done():
                break
            meanwhile()
            self.clock.passed += min(result.requeue_after or most, most)
        return self.clock.passed - began

    def close(self) -> None:
        self.machinery.watches.close()
        for informer in self._informers():
            informer.stop()
        for informer in self._informers():
            assert informer.join(PATIENCE)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.instruments.registry.get_sample_value(name, labels)


class World:
    """The cluster: a server and what a test puts on it."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        self.server = server
        self.client = client
        self.clock = ManualClock()
        self._processes: list[Process] = []

    def process(self, client: Client | None = None) -> Process:
        self._processes.append(Process(self.server, client or self.client, self.clock))
        return self._processes[-1]

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def node(self, name: str = "n1", **fields: Any) -> str:
        self.server.install(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **fields}
        )
        uid: str = self.server.get("nodes", name)["metadata"]["uid"]
        return uid

    def pod(self, name: str, *, owner: str = "Set", node: str = "n1", **fields: Any) -> None:
        reference = {
            "apiVersion": "apps/v1" if owner == "DaemonSet" else "example.org/v1",
            "kind": owner,
            "name": "web",
            "uid": self._owner_uid(owner),
            "controller": True,
        }
        metadata = {
            "name": name,
            "namespace": "default",
            "labels": {"app": "web"},
            "ownerReferences": [reference] if owner else [],
            **fields.pop("metadata", {}),
        }
        self.server.install(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "c", "image": "i"}],
                    **fields.pop("spec", {}),
                },
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    **fields.pop("status", {}),
                },
            }
        )

    def _owner_uid(self, owner: str) -> str:
        if owner != "DaemonSet":
            return "web"
        if not self.server.list("daemonsets", "default", "apps"):
            template = {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            self.server.install(
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "metadata": {"name": "web", "namespace": "default"},
                    "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template},
                }
            )
        uid: str = self.server.get("daemonsets", "web", "default", "apps")["metadata"]["uid"]
        return uid

    def budget(self, allowed: int, name: str = "web") -> None:
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        self.server.install(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
                "status": status,
            }
        )

    def allow(self, allowed: int, name: str = "web") -> None:
        path = f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}/status"
        self.patch(path, {"status": {"disruptionsAllowed": allowed}})

    def drain(self, name: str = "d", **spec: Any) -> None:
        self.server.install(
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "NodeDrain",
                "metadata": {"name": name},
                "spec": {"nodeName": "n1", **spec},
            }
        )

    def edit(self, name: str = "d", **spec: Any) -> None:
        self.patch(f"/apis/{GROUP}/v1alpha1/nodedrains/{name}", {"spec": spec})

    def delete_drain(self, name: str = "d") -> None:
        assert self.client.raw("DELETE", f"/apis/{GROUP}/v1alpha1/nodedrains/{name}").status == 200

    def cordon(self, closed: bool) -> None:
        self.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": closed or None}})

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self.client.raw("PATCH", path, body=body, headers=headers)
        assert answer.status == 200, answer.body

    def kubelet(self) -> None:
        """End the pods that terminate."""
        for pod in self.server.list("pods"):
            meta = pod["metadata"]
            if meta.get("deletionTimestamp"):
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                self.client.raw("DELETE", path, body={"gracePeriodSeconds": 0})

    def get(self, name: str = "d") -> Any:
        return self.server.get("nodedrains", name, group=GROUP)

    def status(self, name: str = "d") -> Any:
        return self.get(name).get("status", {})

    def phase(self, name: str = "d") -> str:
        phase: str = self.status(name).get("phase", "")
        return phase

    def is_over(self) -> bool:
        return self.phase() in {"Completed", "Failed"}

    def condition(self, type_: str, name: str = "d") -> tuple[str, str]:
        for condition in self.status(name).get("conditions", []):
            if condition["type"] == type_:
                return condition["status"], condition["reason"]
        return "", ""

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.server.list("pods")]

    def terminating(self) -> list[str]:
        pods = self.server.list("pods")
        return [p["metadata"]["name"] for p in pods if p["metadata"].get("deletionTimestamp")]

    @property
    def node_now(self) -> Any:
        return self.server.get("nodes", "n1")

    @property
    def is_cordoned(self) -> bool:
        return bool(self.node_now["spec"].get("unschedulable"))

    @property
    def mark(self) -> str:
        annotations = self.node_now["metadata"].get("annotations") or {}
        mark: str = annotations.get(CORDONED_BY_ANNOTATION, "")
        return mark

    @property
    def evictions(self) -> int:
        return self.server.requests.get("evict", 0)


@pytest.fixture
def world() -> Iterator[World]:
    with (
        ApiServer(crds=manifests()) as server,
        Client(ClientConfig(host=server.url)) as client,
    ):
        world = World(server, client)
        try:
            yield world
        finally:
            world.close()


@pytest.fixture
def process(world: World) -> Process:
    return world.process()


# A drain from its beginning to its end


def test_a_node_is_cordoned_emptied_and_reported(world: World, process: Process) -> None:
    uid = world.node()
    world.pod("a")
    world.pod("b")
    world.pod("agent", owner="DaemonSet")
    world.pod("static", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    world.pod("elsewhere", node="n2")
    world.drain()

    took = process.run(world.is_over, meanwhile=world.kubelet)

    assert sorted(world.pods()) == ["agent", "elsewhere", "static"]
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Completed", "NodeDrained")
    assert {key: status[key] for key in ("total", "evicted", "ignored")} == {
        "total": 2,
        "evicted": 2,
        "ignored": 2,
    }
    assert status["nodePods"] == ["default/a", "default/agent", "default/b", "default/static"]
    assert status["evictedPods"] == ["default/a", "default/b"]
    assert status["evictedOwners"] == [
        {"namespace": "default", "kind": "Set", "name": "web", "uid": "web"}
    ]
    assert world.condition("NodeCordoned") == ("True", "NodeCordoned")
    assert world.condition("NodeDrained") == ("True", "NodeDrained")
    assert status["completionTimestamp"]
    drain = world.get()
    assert drain["spec"]["nodeUID"] == uid
    assert drain["metadata"]["finalizers"] == [DRAIN_FINALIZER]
    assert world.is_cordoned
    assert world.mark == f"d/{drain['metadata']['uid']}"
    assert process.recorder.reasons == ["NodeCordoned", "PodEvicted", "NodeDrained"]
    assert process.metric("navarchos_drain_evictions_total", outcome="Evicted") == 2
    assert process.metric("navarchos_drain_duration_seconds_count", result="Completed") == 1
    assert took >= 2, "a pod that was being bound during the cordon must have had its time"
    assert process.step() == DONE
    assert len(process.machinery.watches) == 0


@pytest.mark.rule("OP-40")
@pytest.mark.rule("OP-41")
def test_nothing_happens_before_the_claim_and_no_eviction_before_the_record(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.drain()
    process.step()
    writes = [
        (record.verb, record.resource, record.subresource)
        for record in world.server.audit
        if record.verb in {"patch", "evict"}
    ]
    assert [write[:2] for write in writes] == [
        ("patch", "nodedrains"),
        ("patch", "nodes"),
        ("patch", "nodedrains"),
        ("evict", "pods"),
    ]
    assert writes[2][2] == "status"


def test_an_empty_node_is_drained_after_the_time_of_a_late_binding(
    world: World, process: Process
) -> None:
    world.node()
    world.drain()
    assert 2 <= process.run(world.is_over) <= 4
    assert world.phase() == "Completed"


@pytest.mark.rule("OP-44")
def test_a_pod_that_arrives_late_is_drained_too(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.drain()
    process.step()
    world.kubelet()
    world.clock.passed += 5
    world.pod("late")
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []
    assert world.status()["evictedPods"] == ["default/a", "default/late"]


@pytest.mark.rule("OP-44")
def test_an_empty_watch_is_not_believed_without_a_list(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.drain()
    process.step()
    world.kubelet()
    world.clock.passed += 5
    process.catch_up()
    world.pod("unseen")  # the watch may not have it yet; the list does
    process.reconciler.reconcile(Request("", "d"))
    assert world.phase() == "Draining"
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []


# Which node


@pytest.mark.rule("OP-41")
@pytest.mark.rule("OP-20")
def test_a_node_of_another_uid_is_not_touched(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.drain(nodeUID="another")
    before = world.node_now
    process.step()
    assert (world.phase(), world.status()["reason"]) == ("Completed", "NodeGone")
    assert world.node_now == before
    assert world.evictions == 0
    assert world.terminating() == []


def test_a_missing_node_is_gone(world: World, process: Process) -> None:
    world.drain()
    process.step()
    assert (world.phase(), world.status()["reason"]) == ("Completed", "NodeGone")


@pytest.mark.rule("OP-41")
def test_a_node_that_is_replaced_during_its_drain_keeps_its_pods(
    world: World, process: Process
) -> None:
    """The original drained the new node by its name (N-4)."""
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain()
    process.step()
    assert world.evictions == 1
    world.client.raw("DELETE", "/api/v1/nodes/n1")
    world.node()
    world.allow(1)
    world.clock.passed += 60
    # Even on caches that have seen nothing of it.
    process.reconciler.reconcile(Request("", "d"))
    assert world.evictions == 1
    process.run(world.is_over)
    assert world.status()["reason"] == "NodeGone"
    assert not world.is_cordoned
    assert world.terminating() == []


# Whose cordon


@pytest.mark.rule("OP-41")
def test_a_foreign_cordon_survives_whatever_happens_to_the_drain(
    world: World, process: Process
) -> None:
    world.node(spec={"unschedulable": True})
    world.drain()
    process.run(world.is_over)
    assert world.condition("NodeCordoned") == ("True", "CordonedBefore")
    assert world.mark == ""
    world.delete_drain()
    process.step()
    assert world.is_cordoned
    assert world.server.list("nodedrains", group=GROUP) == []
    assert "NodeUncordoned" not in process.recorder.reasons
    assert "NodeCordoned" not in process.recorder.reasons


@pytest.mark.rule("OP-07")
@pytest.mark.rule("OP-41")
def test_deleting_a_drain_stops_it_and_undoes_its_cordon(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain()
    process.step()
    assert world.is_cordoned
    world.delete_drain()
    world.allow(1)
    world.clock.passed += 60
    process.step()
    assert not world.is_cordoned
    assert world.mark == ""
    assert world.terminating() == []
    assert world.server.list("nodedrains", group=GROUP) == []
    assert process.recorder.reasons[-1] == "NodeUncordoned"
    assert process.step() == DONE
    assert len(process.machinery.watches) == 0


def test_a_drain_that_keeps_its_cordon_leaves_it_marked(world: World, process: Process) -> None:
    world.node()
    world.drain(uncordonOnDelete=False)
    process.run(world.is_over)
    mark = world.mark
    world.delete_drain()
    process.step()
    assert world.is_cordoned
    assert world.mark == mark != ""
    assert world.server.list("nodedrains", group=GROUP) == []


def test_deleting_a_drain_leaves_the_cordon_of_another_one(world: World, process: Process) -> None:
    world.node()
    world.drain("d")
    world.drain("e")
    process.step("d")
    process.step("e")
    assert world.condition("NodeCordoned", "e") == ("True", "CordonedBefore")
    world.delete_drain("e")
    process.step("e")
    assert world.is_cordoned
    world.delete_drain("d")
    process.step("d")
    assert not world.is_cordoned


@pytest.mark.rule("OP-41")
def test_whoever_uncordons_is_contradicted_once_and_then_obeyed(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain()
    process.step()
    world.cordon(False)
    world.clock.passed += 2
    process.step()
    assert world.is_cordoned
    assert process.recorder.reasons.count("NodeCordoned") == 2
    assert world.condition("NodeCordoned") == ("True", "CordonedAgain")
    world.cordon(False)
    world.clock.passed += 2
    process.step()
    assert not world.is_cordoned
    assert world.mark == ""
    assert world.condition("NodeCordoned") == ("False", "UncordonedByOthers")
    asked = world.evictions
    world.allow(1)
    world.clock.passed += 60
    process.step()
    assert world.evictions == asked
    world.cordon(True)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.pods() == []
    world.delete_drain()
    process.step()
    assert world.is_cordoned, "this cordon is the person's"


# Who may not go


@pytest.mark.rule("OP-42")
def test_one_pod_that_may_not_go_refuses_the_drain_before_any_eviction(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.pod("bare", owner="")
    world.drain()
    process.step()
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "PodsRefused")
    assert world.evictions == 0
    assert [note["name"] for note in status["failedPods"]] == ["default/bare"]
    (blocker,) = status["blockers"]
    assert (blocker["pod"], blocker["reason"]) == ("bare", "UnmanagedPod")
    assert "force: true" in blocker["message"]
    assert process.recorder.reasons[-1] == "EvictionBlocked"
    assert process.metric("navarchos_drain_duration_seconds_count", result="Failed") == 0


@pytest.mark.rule("OP-42")
@pytest.mark.parametrize(
    ("pod", "spec", "reason"),
    [
        ({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, {}, "LocalStorage"),
        ({"owner": "DaemonSet"}, {"ignoreDaemonSets": False}, "DaemonSetNotIgnored"),
    ],
)
def test_other_refusals_name_their_reason(
    world: World, process: Process, pod: dict[str, Any], spec: dict[str, Any], reason: str
) -> None:
    world.node()
    world.pod("a", **pod)
    world.drain(deleteEmptyDirData=False, **spec)
    process.step()
    assert world.status()["blockers"][0]["reason"] == reason


def test_a_pod_that_arrives_late_and_may_not_go_blocks_and_is_told(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.drain()
    process.step()
    world.pod("bare", owner="")
    world.kubelet()
    for _ in range(2):
        world.clock.passed += 5
        process.step()
    assert world.phase() == "Draining"
    assert [b["pod"] for b in world.status()["blockers"]] == ["bare"]
    world.edit(force=True)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"


def test_a_selector_that_cannot_be_read_fails_the_drain(world: World, process: Process) -> None:
    world.node()
    world.drain(podSelector={"matchLabels": {"-no-": "x"}})
    process.step()
    assert (world.phase(), world.status()["reason"]) == ("Failed", "InvalidSpec")
    assert not world.is_cordoned


# Blocked


@pytest.mark.rule("OP-43")
def test_a_budget_blocks_until_it_is_free_and_the_drain_is_woken_at_once(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain()
    process.step()
    world.clock.passed += 1
    result = process.step()
    status = world.status()
    (blocker,) = status["blockers"]
    assert (blocker["namespace"], blocker["pod"]) == ("default", "a")
    assert (blocker["reason"], blocker["budget"]) == ("BlockedByBudget", "default/web")
    assert (status["blocked"], status["remaining"], status.get("evicted", 0)) == (1, 1, 0)
    assert process.recorder.reasons[-1] == "EvictionBlocked"
    assert process.metric("navarchos_drain_blocked_pods") == 1
    assert result.requeue_after is not None
    assert 3 < result.requeue_after <= 5
    assert world.evictions == 1

    process.woken.clear()
    world.allow(1)
    process.wait_for_wake()
    process.step()
    assert world.evictions == 2, "nobody waits for the retry when the budget is free again"
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert "blockers" not in world.status()
    assert process.metric("navarchos_drain_blocked_pods") == 0


@pytest.mark.rule("OP-43")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            {
                "status": 403,
                "message": 'User "x" cannot create resource "pods/eviction" in API group ""',
            },
            "Forbidden",
        ),
        ({"status": 422, "message": 'admission webhook "w" denied the request'}, "WebhookDenied"),
        ({"status": 503}, "Retry"),
        ({"status": 429, "retry_after": 7}, "InProgress"),
    ],
)
def test_any_other_answer_blocks_with_its_message_and_is_tried_again(
    world: World, process: Process, fault: dict[str, Any], reason: str
) -> None:
    world.node()
    world.pod("a")
    world.drain()
    world.server.faults.add(Fault(verb="evict", **fault))
    process.step()
    world.clock.passed += 1
    process.step()
    (blocker,) = world.status()["blockers"]
    assert blocker["reason"] == reason
    assert fault.get("message", "injected fault") in blocker["message"]
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"


@pytest.mark.rule("OP-43")
def test_two_budgets_on_one_pod_are_named_and_not_spun_on(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.budget(1, "one")
    world.budget(1, "two")
    world.drain(timeoutSeconds=0)
    process.run(lambda: world.clock.passed > 60, limit=100)
    (blocker,) = world.status()["blockers"]
    assert blocker["reason"] == "MultipleBudgets"
    assert blocker["budget"] == "default/one,default/two"
    assert world.evictions <= 6


@pytest.mark.rule("OP-47")
def test_unchanged_facts_cause_no_write_and_changed_ones_one_a_second(
    world: World, process: Process
) -> None:
    world.node()
    for name in "abc":
        world.pod(name)
    world.budget(0)
    world.drain(timeoutSeconds=0)
    writes: list[float] = []

    def note(change: Change) -> None:
        if change.resource.plural == "nodedrains" and change.request is not None:
            before = (change.previous or {}).get("status")
            if change.object.get("status") != before:
                writes.append(world.clock.passed)

    world.server.subscribe(note)
    process.run(lambda: world.clock.passed > 3)
    settled = len(writes)
    process.run(lambda: world.clock.passed > 90, limit=100)
    assert len(writes) == settled
    assert settled == 2
    world.allow(3)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert all(later - earlier >= 1 for earlier, later in pairwise(writes))


@pytest.mark.rule("OP-40")
def test_many_blocked_pods_keep_a_pass_short(world: World, process: Process) -> None:
    world.node()
    for number in range(100):
        world.pod(f"p{number:03}")
    world.budget(0)
    world.drain()
    result = process.step()
    assert world.evictions == 64
    assert result.requeue_after is not None
    assert result.requeue_after < 0.1
    process.step()
    assert world.evictions == 100
    world.clock.passed += 1
    process.step()
    status = world.status()
    assert (status["blocked"], len(status["blockers"])) == (100, 50)


# Time


@pytest.mark.rule("OP-46")
def test_a_drain_whose_time_is_up_fails_and_keeps_its_blockers(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain(timeoutSeconds=30)
    took = process.run(world.is_over)
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Timeout")
    assert 29 <= took <= 32
    assert [b["pod"] for b in status["blockers"]] == ["a"]
    assert [note["name"] for note in status["failedPods"]] == ["default/a"]
    assert world.is_cordoned, "the cordon is given back with the drain, not before"
    asked = world.evictions
    assert process.step() == DONE
    assert world.evictions == asked


@pytest.mark.rule("OP-46")
def test_a_drain_that_holds_keeps_trying(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain(
        timeoutSeconds=30,
        onTimeout="Hold",
        escalation=[{"afterSeconds": 40, "action": "Delete"}],
    )
    process.run(lambda: world.clock.passed > 90, limit=100)
    assert world.phase() == "Draining"
    assert world.condition("NodeDrained") == ("False", "TimeoutHold")
    assert world.terminating() == []
    world.allow(1)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"


@pytest.mark.rule("OP-46")
@pytest.mark.rule("OP-64")
def test_a_stage_deletes_past_the_budget_and_says_so(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain(escalation=[{"afterSeconds": 20, "action": "Delete"}])
    took = process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert 20 <= took <= 26
    (event,) = [e for e in process.recorder.events if e.reason == "BudgetBypassed"]
    for fact in ("default/a", "default/web", "stage 1"):
        assert fact in event.message
    assert process.metric("navarchos_drain_evictions_total", outcome="Deleted") == 1


@pytest.mark.rule("OP-45")
def test_a_pod_that_terminates_for_too_long_no_longer_counts(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a", spec={"terminationGracePeriodSeconds": 1})
    world.drain(skipWaitForDeleteTimeoutSeconds=10)
    took = process.run(world.is_over)  # no kubelet confirms anything
    assert world.phase() == "Completed"
    assert 10 <= took <= 14
    assert world.status()["evictedPods"] == ["default/a"]


def test_disable_eviction_deletes(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain(disableEviction=True)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert world.evictions == 0


# Pause


@pytest.mark.rule("OP-07")
def test_a_paused_drain_sends_nothing_and_goes_on_when_resumed(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.budget(0)
    world.drain(timeoutSeconds=60)
    process.step()
    asked = world.evictions
    world.edit(paused=True)
    world.allow(1)
    process.run(lambda: world.clock.passed > 300, limit=400)
    assert world.evictions == asked
    assert world.phase() == "Draining"
    assert world.condition("Paused") == ("True", "Paused")
    world.edit(paused=False)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert world.condition("Paused") == ("False", "Resumed")


def test_a_drain_that_is_paused_from_the_start_touches_no_node(
    world: World, process: Process
) -> None:
    world.node()
    world.pod("a")
    world.drain(paused=True)
    assert process.step() == DONE
    assert world.phase() == "Pending"
    assert not world.is_cordoned
    world.edit(paused=False)
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"


# Crashes, conflicts


@pytest.mark.rule("OP-26")
def test_a_new_process_goes_on_where_the_old_one_died(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.pod("b")
    world.budget(1)
    world.drain()
    process.step()
    assert len(world.terminating()) == 1
    process.close()
    began = world.status()["startTimestamp"]
    world.kubelet()
    world.clock.passed += 10

    heir = world.process()
    heir.step()
    world.allow(1)
    heir.run(world.is_over, meanwhile=world.kubelet)
    status = world.status()
    assert status["startTimestamp"] == began
    assert (status["total"], status["evicted"]) == (2, 2)
    assert status["evictedPods"] == ["default/a", "default/b"]
    assert "NodeCordoned" not in heir.recorder.reasons


def test_an_overtaken_write_is_decided_again(world: World, process: Process) -> None:
    world.node()
    world.pod("a")
    world.drain()
    world.server.faults.add(Fault(verb="patch", resource="nodedrains", status=409))
    world.server.faults.add(Fault(verb="patch", resource="nodes", status=409))
    for _ in range(2):
        result = process.step()
        assert result.requeue_after is not None
        assert world.evictions == 0
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.phase() == "Completed"
    assert process.recorder.reasons.count("NodeCordoned") == 1
