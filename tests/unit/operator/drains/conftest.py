"""A cluster on a server, and processes whose reconciles the test starts one by one."""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.clocks import ManualClock
from tests.registering import MANAGERS

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK
from navarchos.drain import (
    BUDGETS,
    DAEMON_SETS,
    DrainPlan,
    PlannedPod,
    Pod,
    PodAction,
    PodFinding,
    PodReason,
)
from navarchos.informers import SharedInformer
from navarchos.instrument import Instruments
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NodeDrain,
    NodeDrainStatus,
)
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.drains.controller import (
    DrainCaches,
    DrainEnvironment,
    build_reconciler,
)
from navarchos.operator.drains.observation import DrainObservation
from navarchos.operator.drains.settings import DrainSettings
from navarchos.operator.names import CORDONED_BY_ANNOTATION, DRAIN_FINALIZER
from navarchos.operator.nodes import NODES
from navarchos.operator.throttle import REQUEUE_SOON
from navarchos.runtime import DONE, Request, Result
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.recorder import FakeRecorder

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

_REASONS = {
    PodAction.EVICT: PodReason.ORDINARY,
    PodAction.WAIT: PodReason.TERMINATING,
    PodAction.IGNORE: PodReason.DAEMON_SET,
    PodAction.REFUSE: PodReason.UNMANAGED,
}


def planned(
    name: str,
    namespace: str = "default",
    *,
    action: PodAction = PodAction.EVICT,
    ready: bool = True,
    labels: Mapping[str, str] | None = None,
    owner: str = "web",
    terminating_at: str = "",
    uid: str = "",
    critical: bool = False,
) -> PlannedPod:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "labels": labels or {},
    }
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner,
                "uid": f"uid-{owner}",
                "controller": True,
            }
        ]
    if terminating_at:
        metadata["deletionTimestamp"] = terminating_at
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    wire = {
        "metadata": metadata,
        "spec": {"priorityClassName": "system-cluster-critical" if critical else ""},
        "status": {"phase": "Running", "conditions": conditions},
    }
    return PlannedPod(msgspec.convert(wire, Pod), PodFinding(action, _REASONS[action], "a message"))


def observation(
    status: NodeDrainStatus, now: datetime, *, plan: DrainPlan | None = None, **spec: object
) -> DrainObservation:
    """Return what a reconcile observes of an adopted drain, whose node is not read."""
    wire = {
        "metadata": {"name": "d", "uid": "u", "finalizers": [DRAIN_FINALIZER]},
        "spec": {"nodeName": "n1", "nodeUID": "n", **spec},
    }
    drain = msgspec.structs.replace(msgspec.convert(wire, NodeDrain), status=status)
    return DrainObservation(
        drain=drain,
        settings=DrainSettings.from_spec(drain.spec),
        now=now,
        monotonic=0.0,
        is_suspended=drain.spec.paused,
        is_halted=False,
        attempts={},
        cordoned_for=None,
        status_wait=0.0,
        plan=plan,
    )


@pytest.fixture(scope="session")
def plan_pod() -> Callable[..., PlannedPod]:
    return planned


@pytest.fixture(scope="session")
def now() -> datetime:
    return NOW


GROUP = "navarchos.pusher.com"
PATIENCE = 20.0


class Process:
    """One process: caches, reconciler, memory. Time and server outlive it."""

    def __init__(self, server: ApiServer, client: Client, clock: ManualClock) -> None:
        self._server = server
        self.clock = clock
        self.recorder = FakeRecorder()
        self.instruments = Instruments()
        self._was_woken = threading.Event()
        self.is_suspended = False
        self.caches = DrainCaches(
            SharedInformer(client.resource(NODE_DRAINS)),
            SharedInformer(client.resource(NODES)),
            SharedInformer(client.resource(DAEMON_SETS)),
            SharedInformer(client.resource(BUDGETS)),
        )
        self.reconciler, self.runtime = build_reconciler(
            client,
            self.caches,
            DrainEnvironment(
                recorder=self.recorder,
                wake=self._wake,
                clock=clock,
                watch_clock=SYSTEM_CLOCK,
                rand=lambda: 0.0,
                instruments=self.instruments,
                is_suspended=lambda _drain: self.is_suspended,
            ),
        )
        for informer in self._informers():
            informer.start()

    def _informers(self) -> list[SharedInformer[Any]]:
        caches = self.caches
        return [caches.drains, caches.nodes, caches.daemon_sets, caches.budgets]

    def step(self, name: str = "d") -> Result:
        """Reconcile on caches that are up to date, again as long as that is due at once."""
        while True:
            result = self.reconcile_once(name)
            if result == DONE or (result.requeue_after or 0.0) > REQUEUE_SOON:
                return result

    def reconcile_once(self, name: str = "d") -> Result:
        """Reconcile once on caches that are up to date."""
        self.catch_up()
        return self.reconciler.reconcile(Request("", name))

    def wait_for_wake(self) -> None:
        """Wait until a reconcile of a drain has been requested."""
        assert self._was_woken.wait(PATIENCE), "no reconcile of the drain was requested"

    def forget_wakes(self) -> None:
        """Forget the reconciles that were requested so far."""
        self._was_woken.clear()

    def _wake(self, _drain: str) -> None:
        self._was_woken.set()

    def catch_up(self) -> None:
        """Wait until every cache has what the server has."""
        limit = SYSTEM_CLOCK.monotonic() + PATIENCE
        waiting = StopToken()
        for informer in [*self._informers(), *self.runtime.watches.active()]:
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
        """Reconcile until `done`, moving time as each result asks; return the time that passed."""
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
        self.runtime.watches.close()
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
        self.clock = ManualClock(datetime.now(UTC))
        self._processes: list[Process] = []

    def process(self, client: Client | None = None) -> Process:
        self._processes.append(Process(self.server, client or self.client, self.clock))
        return self._processes[-1]

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def node(self, name: str = "n1", **fields: Any) -> str:
        metadata = {"name": name, "managedFields": MANAGERS}
        self.server.install({"apiVersion": "v1", "kind": "Node", "metadata": metadata, **fields})
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

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Wait until `done`, which is called again after each change on the server."""
        changed = threading.Event()
        self.server.subscribe(lambda _change: changed.set())
        limit = SYSTEM_CLOCK.monotonic() + PATIENCE
        while not done():
            assert changed.wait(max(0.0, limit - SYSTEM_CLOCK.monotonic())), "not done in time"
            changed.clear()

    def drain(self, name: str = "d", **spec: Any) -> None:
        self.server.install(
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "NodeDrain",
                "metadata": {"name": name},
                "spec": {"nodeName": "n1", **spec},
            }
        )

    def blocked_drain(self, **spec: Any) -> None:
        """Make a node, a pod whose budget allows no eviction until `allow`, and a drain."""
        self.node()
        self.pod("a")
        self.budget(0)
        self.drain(**spec)

    def edit(self, name: str = "d", **spec: Any) -> None:
        self.patch(f"/apis/{GROUP}/v1alpha1/nodedrains/{name}", {"spec": spec})

    def answer(self, hook: str, text: str, name: str = "d") -> None:
        """Answer a hook of a drain."""
        annotations = {f"hook.{GROUP}/{hook}": text}
        path = f"/apis/{GROUP}/v1alpha1/nodedrains/{name}"
        self.patch(path, {"metadata": {"annotations": annotations}})

    def delete_drain(self, name: str = "d") -> None:
        assert self.client.raw("DELETE", f"/apis/{GROUP}/v1alpha1/nodedrains/{name}").status == 200

    def cordon(self, cordoned: bool) -> None:
        """Cordon or uncordon the node as another client."""
        self.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": cordoned or None}})

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self.client.raw("PATCH", path, body=body, headers=headers)
        assert answer.status == 200, answer.body

    def kubelet(self) -> None:
        """Finish the termination of all terminating pods."""
        for pod in self.server.list("pods"):
            meta = pod["metadata"]
            if meta.get("deletionTimestamp"):
                self.end(meta["name"], meta["namespace"])

    def end(self, pod: str, namespace: str = "default") -> None:
        """Delete a pod at once."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
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
