"""Objects of the operator for tests, and both reconcilers on an in-process API server."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pytest
from tests.clocks import ManualClock

from navarchos.client import Client, ClientConfig, HttpRequest, Resource, Transport
from navarchos.client.http.pool import PooledTransport
from navarchos.client.transport import Response
from navarchos.drain import BUDGETS, PODS
from navarchos.informers import FactoryOptions, InformerFactory, SharedInformer
from navarchos.instrument import Instruments
from navarchos.meta import Object, ObjectMeta, OwnerReference, ResourceVersion, format_time
from navarchos.operator.actions import Actions, NodeAction
from navarchos.operator.api.v1alpha1 import (
    GROUP,
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    VERSION,
    ActionKind,
    AttemptFailure,
    DrainPhase,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
    PlannedNode,
    RolloutPhase,
    Step,
    StepStatus,
)
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.cache_transforms import KINDS
from navarchos.operator.clients import operator_clients
from navarchos.operator.jobs import JobActions, JobCaches
from navarchos.operator.names import ACTION_FINALIZER, DRAIN_FINALIZER
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.owners import Owners
from navarchos.operator.replacements.admission_loop import AdmissionInputs, AdmissionLoop
from navarchos.operator.replacements.budgets import BudgetLookup
from navarchos.operator.replacements.events import ReplacementEvents
from navarchos.operator.replacements.metrics import ReplacementMetrics
from navarchos.operator.replacements.pipeline import Pipeline
from navarchos.operator.replacements.preparation import NodePreparation
from navarchos.operator.replacements.reconciler import ADMISSION, ReplacementReconciler
from navarchos.operator.replacements.snapshot import PENDING_PODS, PENDING_SELECTOR, ClusterReader
from navarchos.operator.replacements.verification import Verifier
from navarchos.operator.rollouts.events import RolloutEvents
from navarchos.operator.rollouts.metrics import RolloutMetrics
from navarchos.operator.rollouts.reconciler import RolloutReconciler
from navarchos.operator.slots import DRAINS, ROLLOUTS, operator_slots
from navarchos.parallel import WorkerPool
from navarchos.runtime import CachedClient, Request
from navarchos.stopping import StopToken
from navarchos.testing import FakeRecorder
from navarchos.testing.apiserver import ApiServer


class Make:
    """Builds objects as an API server stores them. Times are whole seconds."""

    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

    def at(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def node(self, name: str, *, created: float = -1000, uid: str = "", **labels: str) -> Node:
        return Node(
            metadata=ObjectMeta(
                name=name,
                uid=uid or f"uid-{name}",
                creation_timestamp=self.at(created),
                labels={key.replace("_", "-"): value for key, value in labels.items()},
            )
        )

    def rollout(
        self,
        name: str = "roll",
        *,
        phase: RolloutPhase | None = RolloutPhase.IN_PROGRESS,
        nodes: tuple[str, ...] = (),
        annotations: dict[str, str] | None = None,
        deleting: bool = False,
        status: dict[str, Any] | None = None,
        **spec: Any,
    ) -> NodeRollout:
        base = NodeRollout(
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-{name}",
                generation=1,
                resource_version=ResourceVersion("1"),
                annotations=annotations or {},
                deletion_timestamp=self.now if deleting else None,
            )
        )
        given = msgspec.convert(spec, type(base.spec))
        known = msgspec.structs.replace(
            base.status,
            phase=phase,
            observed_generation=1,
            start_timestamp=self.at(-100) if phase is not None else None,
            nodes=tuple(PlannedNode(node, f"uid-{node}") for node in nodes),
        )
        known = msgspec.structs.replace(known, **(status or {}))
        return msgspec.structs.replace(base, spec=given, status=known)

    def replacement(
        self,
        node: str,
        *,
        rollout: str = "roll",
        step: Step = Step.WAITING,
        reason: str = "",
        since: float = 0,
        done: float | None = None,
        started: float | None = None,
        attempts: int = 0,
        failed_at: tuple[float, ...] = (),
        deleting: bool = False,
        annotations: dict[str, str] | None = None,
        status: dict[str, Any] | None = None,
        **spec: Any,
    ) -> NodeReplacement:
        name = f"{rollout}-{node}" if rollout else node
        owners = (self._owner("NodeRollout", rollout),) if rollout else ()
        given = {"nodeName": node, "nodeUID": f"uid-{node}", **spec}
        base = msgspec.convert({"spec": given}, NodeReplacement)
        known = msgspec.structs.replace(
            base.status,
            phase=step.phase,
            step=StepStatus(name=step, started_at=self.at(since), reason=reason),
            attempts=attempts or len(failed_at),
            failures=tuple(
                AttemptFailure(attempt=n + 1, at=self.at(at), reason="Timeout")
                for n, at in enumerate(failed_at)
            ),
            start_timestamp=None if started is None else self.at(started),
            completion_timestamp=None if done is None else self.at(done),
        )
        return msgspec.structs.replace(
            base,
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-{name}",
                resource_version=ResourceVersion("1"),
                generation=1,
                owner_references=owners,
                annotations=annotations or {},
                deletion_timestamp=self.now if deleting else None,
            ),
            status=msgspec.structs.replace(known, **(status or {})),
        )

    def drain(
        self,
        replacement: NodeReplacement,
        *,
        phase: DrainPhase | None = DrainPhase.DRAINING,
        cordoned: bool = True,
        deleting: bool = False,
        status: dict[str, Any] | None = None,
        **spec: Any,
    ) -> NodeDrain:
        conditions = [{"type": "NodeCordoned", "status": "True" if cordoned else "False"}]
        base = msgspec.convert(
            {
                "spec": {"nodeName": replacement.spec.node_name, **spec},
                "status": {"conditions": conditions, **(status or {})},
            },
            NodeDrain,
        )
        name = replacement.metadata.name
        return msgspec.structs.replace(
            base,
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-drain-{name}",
                owner_references=(self._owner("NodeReplacement", name),),
                deletion_timestamp=self.now if deleting else None,
            ),
            status=msgspec.structs.replace(base.status, phase=phase),
        )

    def _owner(self, kind: str, name: str) -> OwnerReference:
        return OwnerReference(
            api_version=f"{GROUP}/{VERSION}",
            kind=kind,
            name=name,
            uid=f"uid-{name}",
            controller=True,
        )


@pytest.fixture(scope="session")
def make() -> Make:
    """Return the builder of objects; it has no state."""
    return Make()


NO_TIME = 10.0
MAX_DELAY = 10.0
T = TypeVar("T")
K = TypeVar("K", bound=Object)


class Killed(BaseException):
    """The process was killed. No `except Exception` catches this."""


class DyingTransport:
    """Forwards requests, and kills the process right after a number of writes."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.armed = False
        self.writes_left = 0
        self.targets: list[str] = []
        self.together: threading.Barrier | None = (
            None  # POST requests meet here before they are sent
        )

    def send(self, request: HttpRequest) -> Response:
        self.targets.append(request.target)
        if self.together is not None and request.method == "POST":
            self.together.wait()
        answer = self._inner.send(request)
        if self.armed and request.method in {"POST", "PATCH", "PUT", "DELETE"}:
            self.writes_left -= 1
            if self.writes_left == 0:
                answer.read()
                raise Killed
        return answer

    def close(self) -> None:
        self._inner.close()


class Operator:
    """Both reconcilers over HTTP, called by the test instead of by queues.

    The test acts as the drain controller.
    """

    def __init__(self, server: ApiServer, clock: ManualClock) -> None:
        self.server = server
        self.clock = clock
        self.stop = StopToken()
        config = ClientConfig(host=server.url)
        self.transport = DyingTransport(PooledTransport(config))
        self.client = Client(config, stop=self.stop, transport=self.transport)
        self.drain_controller = Client(config)
        self.recorder = FakeRecorder()
        self.instruments = Instruments()
        self.verifier = Verifier()
        self.further_actions: dict[ActionKind, NodeAction] = {}  # of other systems
        self.owners = Owners()  # the kinds of other systems that own replacements
        self.recheck_after: float | None = None  # the last result of admission
        self.begin()

    def begin(self) -> None:
        """Start with empty caches, like a process that has just become the leader."""
        self.factory = InformerFactory(self.client, FactoryOptions(kinds=KINDS))
        self.clients = operator_clients(self)
        pending = self.factory.informer(PENDING_PODS, field_selector=PENDING_SELECTOR)
        budgets = self.factory.informer(BUDGETS)
        self.factory.start(self.stop)
        self.factory.wait_for_sync(NO_TIME)
        self.informers: list[SharedInformer[Any]] = [
            self.clients.rollouts.informer,
            self.clients.replacements.informer,
            self.clients.drains.informer,
            self.clients.nodes.informer,
            pending,
            budgets,
        ]
        events = ReplacementEvents(self.recorder)
        self.actions = Actions()
        self.job_caches = JobCaches(self.client, self.factory, self.actions.notify)
        jobs = JobActions(self.job_caches)
        self.actions.register(ActionKind.JOB, jobs, observe=jobs.observe)
        for kind, action in self.further_actions.items():
            self.actions.register(kind, action)
        write_pool = WorkerPool("write", clock=self.clock)
        self.rollouts = RolloutReconciler(
            self.clients,
            RolloutEvents(self.recorder),
            write_pool,
            self.clock,
            metrics=RolloutMetrics(self.instruments),
        )
        budget_lookup = BudgetLookup(
            self.client.resource(PODS),
            lambda namespace: budgets.lister.list(namespace=namespace),
            self.clock,
        )
        self.slots = operator_slots(self.clients, self.clock)
        reader = ClusterReader(self.clients, pending.lister.list, self.slots, self.owners)
        admission = AdmissionLoop(
            AdmissionInputs(
                reader.snapshot, budget_lookup, self.slots, NodePreparation(self.actions)
            ),
            self.clients.replacements,
            events,
            ReplacementMetrics(self.instruments),
            write_pool,
            self.clock,
        )
        self.slots.add_admission(
            ROLLOUTS,
            admission.slots_changed,
            confirm=admission.confirm_unanswered_writes,
            sees=(DRAINS,),
        )
        pipeline = Pipeline(
            self.clients, events, self.clock, self.actions, self.owners, self.verifier
        )
        self.replacements = ReplacementReconciler(self.clients, admission, pipeline)

    def cached_client(self, resource: Resource[T]) -> CachedClient[T]:
        return CachedClient(self.client.resource(resource), self.factory.informer(resource))

    def restart(self) -> None:
        """Start again without any state that is not in the API."""
        assert self.factory.shutdown(NO_TIME)
        self.begin()

    def close(self) -> None:
        self.stop.stop()
        self.factory.shutdown(NO_TIME)
        self.client.close()
        self.drain_controller.close()

    def see(self) -> None:
        """Wait until the caches contain all writes of the test."""
        jobs = [self.job_caches.of(name).informer for name in self.job_caches.namespaces]
        for informer in (*self.informers, *jobs):
            assert informer.catch_up(NO_TIME)

    def settle(self) -> None:
        """Reconcile everything until nothing changes any more."""
        self.see()
        for _ in range(50):
            before = self._versions()
            self.round()
            if self._versions() == before:
                return
            self.see()
        raise AssertionError("not settled after 50 rounds")

    def settle_in_time(self) -> None:
        """Settle, and wait until all deferred writes are done."""
        self.settle()
        self.clock.advance(MAX_DELAY)
        self.settle()

    def round(self) -> None:
        for rollout in self.clients.rollouts.list():
            self.rollouts.reconcile(Request("", rollout.metadata.name))
        self.recheck_after = self.replacements.reconcile(ADMISSION).requeue_after
        for replacement in self.clients.replacements.list():
            self.replacements.reconcile(Request("", replacement.metadata.name))
        self._remove_finalizers()

    def _remove_finalizers(self) -> None:
        """Remove the finalizer, as the drain controller does after it has uncordoned the node."""
        drains = self.drain_controller.resource(NODE_DRAINS)
        replacements = self.drain_controller.resource(NODE_REPLACEMENTS).list().items
        held = {r.metadata.uid for r in replacements if ACTION_FINALIZER in r.metadata.finalizers}
        for drain in drains.list().items:
            owners = {owner.uid for owner in drain.metadata.owner_references}
            if drain.metadata.deletion_timestamp is None or owners & held:
                continue
            left = [name for name in drain.metadata.finalizers if name != DRAIN_FINALIZER]
            if len(left) < len(drain.metadata.finalizers):
                drains.patch(drain.metadata.name, {"metadata": {"finalizers": left}})

    # The cluster, as the test changes and reads it

    def add_node(self, name: str, **labels: str) -> None:
        self.server.install(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        )

    def remove_node(self, name: str) -> None:
        self.client.resource(NODES).delete(name)

    def add_rollout(self, name: str = "roll", **spec: Any) -> None:
        self.client.resource(NODE_ROLLOUTS).create({"metadata": {"name": name}, "spec": spec})

    def add_replacement(self, name: str, **spec: Any) -> None:
        self.client.resource(NODE_REPLACEMENTS).create({"metadata": {"name": name}, "spec": spec})

    def begin_with_many(self, count: int) -> None:
        """Create a rollout of this many nodes, with all of its children."""
        for number in range(count):
            self.add_node(f"n{number:03}")
        self.add_rollout(nodeSelectors=[{"matchAll": True}])
        self.see()
        while len(self.names()) < count:
            self.rollouts.reconcile(Request("", "roll"))
        self.see()

    def patch_rollout(self, name: str, **body: Any) -> None:
        self.client.resource(NODE_ROLLOUTS).patch(name, body)

    def rollout(self, name: str = "roll") -> NodeRollout:
        return self.client.resource(NODE_ROLLOUTS).get(name)

    def replacement(self, name: str) -> NodeReplacement:
        return self.client.resource(NODE_REPLACEMENTS).get(name)

    def names(self) -> list[str]:
        return [r.metadata.name for r in self.client.resource(NODE_REPLACEMENTS).list().items]

    def drain(self, name: str) -> NodeDrain:
        return self.client.resource(NODE_DRAINS).get(name)

    def drains(self) -> list[str]:
        return [d.metadata.name for d in self.client.resource(NODE_DRAINS).list().items]

    def node(self, name: str) -> Node:
        return self.client.resource(NODES).get(name)

    def steps(self) -> dict[str, Step]:
        found = self.client.resource(NODE_REPLACEMENTS).list().items
        return {r.metadata.name: r.status.current for r in found}

    def settle_or_die(self) -> bool:
        """Settle, and restart a process that is killed meanwhile; return whether it survived."""
        self.transport.armed = True
        try:
            self.settle()
        except Killed:
            self.transport.armed = False
            self.restart()
            self.settle()
            return False
        finally:
            self.transport.armed = False
        return True

    def play(self, drain: str, phase: DrainPhase, **status: Any) -> None:
        """Write what the drain controller would write next, then settle."""
        self.report(drain, phase, **status)
        self.settle()

    def report(self, drain: str, phase: DrainPhase, **status: Any) -> None:
        """Write what the drain controller would write next."""
        condition = {
            "type": "NodeCordoned",
            "status": "True",
            "reason": "NodeCordoned",
            "lastTransitionTime": format_time(self.clock.now()),
        }
        body = {
            "phase": phase,
            "startTimestamp": format_time(self.clock.now()),
            "conditions": [condition],
            **status,
        }
        if phase is DrainPhase.COMPLETED:
            body["completionTimestamp"] = format_time(self.clock.now())
        self.client.resource(NODE_DRAINS).patch(drain, {"status": body}, subresource="status")

    def finish(self, drain: str) -> None:
        """Complete a drain."""
        self.play(drain, DrainPhase.DRAINING)
        self.clock.advance(1.0)
        self.play(drain, DrainPhase.COMPLETED)

    def fail(self, drain: str, reason: str = "Timeout") -> None:
        """Fail a drain."""
        self.play(drain, DrainPhase.DRAINING)
        self.clock.advance(1.0)
        self.play(drain, DrainPhase.FAILED, reason=reason, message="2 pods are left")

    def events(self) -> list[str]:
        return [event.reason for event in self.recorder.events]

    def _versions(self) -> list[tuple[str, ...]]:
        return [
            self._versions_of(NODE_ROLLOUTS),
            self._versions_of(NODE_REPLACEMENTS),
            self._versions_of(NODE_DRAINS),
        ]

    def _versions_of(self, resource: Resource[K]) -> tuple[str, ...]:
        found = self.client.resource(resource).list().items
        return tuple(f"{obj.metadata.name}/{obj.metadata.resource_version}" for obj in found)


@pytest.fixture(scope="session")
def definitions() -> list[Any]:
    return list(manifests())


@pytest.fixture
def server(definitions: list[Any]) -> Iterator[ApiServer]:
    """An API server with the operator's kinds."""
    with ApiServer(crds=definitions, bookmark_interval=0.02) as server:
        yield server


@pytest.fixture
def operator(server: ApiServer) -> Iterator[Operator]:
    """The reconcilers of rollouts and replacements."""
    operator = Operator(server, ManualClock(Make.now))
    yield operator
    operator.close()
