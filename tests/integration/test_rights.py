"""The operator uses exactly the permissions that `config/deploy` grants."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from tests.cases.waiting import wait_for

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK
from navarchos.drain import PODS
from navarchos.events import EventType
from navarchos.leaderelection import LEASES
from navarchos.meta import format_micro_time
from navarchos.operator import setup
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, NODE_REPLACEMENTS, NODE_ROLLOUTS
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.deployment.manifests import manager_rbac
from navarchos.operator.deployment.settings import LEASE, NAMESPACE
from navarchos.operator.jobs import JOBS
from navarchos.operator.nodes import NODES
from navarchos.runtime import LeaderElectionOptions, Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, AuditRecord, Fault
from navarchos.threads import ThreadGroup

LIMIT = 60.0
AGENT = "navarchos-manager"
FORCED = {"force": True}
RequestFacts = tuple[str, str]
"""A verb, and `plural` or `plural/subresource`."""


class Scene:
    """A server, the operator as `config/deploy` runs it, and a user."""

    def __init__(self, server: ApiServer, manager: Manager, person: Client) -> None:
        self.server = server
        self.manager = manager
        self._person = person

    def node(self, name: str, *pods: dict[str, Any]) -> None:
        self.server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        for number, metadata in enumerate(pods):
            self.server.install(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"{name}-{number}", "namespace": "shop", **metadata},
                    # There are no kubelets: these pods are removed when they are evicted.
                    "spec": {
                        "nodeName": name,
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{"name": "c", "image": "web"}],
                    },
                    "status": {"phase": "Running"},
                }
            )

    def create(self, resource: Any, name: str, **spec: object) -> None:
        self._person.resource(resource).create({"metadata": {"name": name}, "spec": spec})

    def patch(self, resource: Any, name: str, **spec: object) -> None:
        self._person.resource(resource).patch(name, {"spec": spec})

    def vacate(self) -> None:
        """Delete the lease, so that the next leader creates it."""
        self._person.resource(LEASES).delete(LEASE, NAMESPACE)

    def let_go(self, pod: str) -> None:
        """Remove the finalizers of a pod."""
        self._person.resource(PODS).patch(pod, {"metadata": {"finalizers": None}}, "shop")

    def complete_job(self, name: str) -> None:
        """Report that a Job has completed, as its controller would."""
        status = {"conditions": [{"type": "Complete", "status": "True"}]}
        self._person.resource(JOBS).patch(name, {"status": status}, "shop", subresource="status")

    def count_of(self, reason: str) -> int:
        """Return how often an event has happened according to the server."""
        events = self.server.list("events", group="events.k8s.io")
        found = next((event for event in events if event["reason"] == reason), None)
        return int((found.get("series") or {"count": 1})["count"]) if found else 0

    def delete(self, resource: Any, name: str) -> None:
        self._person.resource(resource).delete(name)

    def all(self, resource: Any) -> list[Any]:
        return self.server.list(resource.plural, group=resource.group)

    def find(self, resource: Any, name: str) -> Any:
        return next((o for o in self.all(resource) if o["metadata"]["name"] == name), None)

    def phase(self, resource: Any, name: str) -> str:
        found = self.find(resource, name) or {}
        return str(found.get("status", {}).get("phase", ""))

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait for a state of the objects, checked after each write."""
        happened = threading.Event()
        withdraw = self.server.subscribe(lambda _: happened.set() if reached() else None)
        try:
            assert reached() or happened.wait(LIMIT)
        finally:
            withdraw()


@contextmanager
def operator_on(server: ApiServer) -> Iterator[Scene]:
    """Run the operator until the scene is over, then wait until it has stopped."""
    stop = StopToken()
    election = LeaderElectionOptions(name=LEASE, namespace=NAMESPACE)
    with (
        Client(ClientConfig(host=server.url, user_agent=AGENT)) as client,
        Client(ClientConfig(host=server.url, user_agent="person")) as person,
    ):
        options = ManagerOptions(kinds=setup.KINDS, leader_election=election)
        manager = Manager(client, options=options)
        setup.add_operator(manager)
        threads = ThreadGroup("operator", stop=stop)
        threads.start("manager", lambda: manager.run(stop))
        try:
            yield Scene(server, manager, person)
        finally:
            stop.stop("the test is over")
            assert threads.join(LIMIT)
        threads.raise_failure()


def play(scene: Scene) -> None:
    """Run one scene for each permission that the operator needs."""
    succeed_a_leader(scene)
    roll_two_nodes_that_somebody_pauses(scene)
    fail_to_drain_a_node(scene)
    replace_a_node_by_hand(scene)
    drain_a_node_by_hand(scene)
    run_a_job_on_two_nodes(scene)
    repeat_an_event(scene)


def succeed_a_leader(scene: Scene) -> None:
    """Let another process lead until the operator watches the lease."""
    wanted = {("list", "leases"), ("get", "leases")}
    wait_for("the candidate", lambda: wanted <= {asked(r) for r in scene.server.audit}, LIMIT)
    scene.vacate()


def roll_two_nodes_that_somebody_pauses(scene: Scene) -> None:
    scene.node("a", {})
    scene.node("b")
    # The first response to a create was lost, and the request was sent again.
    scene.server.faults.add(
        Fault(verb="create", resource="nodereplacements", status=409, reason="AlreadyExists")
    )
    names = [{"name": "a"}, {"name": "b"}]
    scene.create(NODE_ROLLOUTS, "roll", nodeNames=names, drain=FORCED, paused=True)
    scene.wait_until(lambda: len(scene.all(NODE_REPLACEMENTS)) == 2)
    scene.patch(NODE_ROLLOUTS, "roll", paused=False)
    scene.wait_until(lambda: scene.phase(NODE_ROLLOUTS, "roll") == "Completed")
    # Its time to live expires immediately: the operator deletes it.
    scene.patch(NODE_ROLLOUTS, "roll", ttlSecondsAfterFinished=0)
    scene.wait_until(lambda: scene.find(NODE_ROLLOUTS, "roll") is None)


def fail_to_drain_a_node(scene: Scene) -> None:
    scene.node("refusing", {})
    strategy = {"retries": 0, "maxFailures": 1}
    scene.create(NODE_ROLLOUTS, "failing", nodeNames=[{"name": "refusing"}], strategy=strategy)
    scene.wait_until(lambda: scene.phase(NODE_ROLLOUTS, "failing") == "Completed")


def replace_a_node_by_hand(scene: Scene) -> None:
    scene.node("by-hand", {})
    scene.create(
        NODE_REPLACEMENTS, "by-hand", nodeName="by-hand", drain=FORCED | {"disableEviction": True}
    )
    scene.wait_until(lambda: scene.phase(NODE_REPLACEMENTS, "by-hand") == "Completed")


def drain_a_node_by_hand(scene: Scene) -> None:
    # A pod outlives its DaemonSet because of a finalizer: the operator has to find out
    # whether the DaemonSet was deleted or the cache is late.
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gone", "uid": "u"}
    held = {"ownerReferences": [owner | {"controller": True}], "finalizers": ["example.com/held"]}
    scene.node("drained", held)
    scene.create(NODE_DRAINS, "maintenance", nodeName="drained")
    scene.wait_until(lambda: scene.phase(NODE_DRAINS, "maintenance") == "Draining")
    scene.let_go("drained-0")
    scene.wait_until(lambda: scene.phase(NODE_DRAINS, "maintenance") == "Completed")
    scene.delete(NODE_DRAINS, "maintenance")
    scene.wait_until(lambda: scene.find(NODE_DRAINS, "maintenance") is None)


def run_a_job_on_two_nodes(scene: Scene) -> None:
    """Let one Job complete, and delete the rollout while the other one runs."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
    scene.node("acting-1", {"ownerReferences": [owner | {"controller": True}]})
    scene.node("acting-2")
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "patch"}]}
    scene.create(
        NODE_ROLLOUTS,
        "acting",
        nodeNames=[{"name": "acting-1"}, {"name": "acting-2"}],
        gates=[{"name": "pods", "evictedPods": {}}],
        action={"job": {"namespace": "shop", "template": {"spec": {"template": {"spec": pod}}}}},
    )
    scene.wait_until(lambda: len(scene.all(JOBS)) == 1)
    scene.complete_job(scene.all(JOBS)[0]["metadata"]["name"])
    scene.wait_until(lambda: len(scene.all(JOBS)) == 2)
    scene.delete(NODE_ROLLOUTS, "acting")
    scene.wait_until(lambda: scene.find(NODE_REPLACEMENTS, "acting-acting-2") is None)


def repeat_an_event(scene: Scene) -> None:
    node = scene.find(NODES, "a")

    def has_happened(count: int) -> bool:
        return scene.count_of("Repeated") == count

    for count in (1, 2):
        scene.manager.recorder.record(NODES, node, EventType.NORMAL, "Repeated", "again")
        scene.wait_until(partial(has_happened, count))


def asked(record: AuditRecord) -> RequestFacts:
    if record.verb == "evict":
        return "create", "pods/eviction"
    target = f"{record.resource}/{record.subresource}" if record.subresource else record.resource
    return record.verb, target


def held_lease() -> dict[str, Any]:
    """Return the lease, held by another process."""
    now = format_micro_time(SYSTEM_CLOCK.now())
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": "another",
            "leaseDurationSeconds": 3600,
            "acquireTime": now,
            "renewTime": now,
        },
    }


def is_granted(record: AuditRecord) -> bool:
    """Return whether a rule of the ClusterRole, or of a Role in the namespace, allows a request."""
    by_namespace = manager_rbac()
    rules = {"": by_namespace[""], record.namespace: by_namespace.get(record.namespace, ())}
    verb, target = asked(record)
    return any(
        rule.target == target
        and verb in rule.verbs
        and (not rule.names or record.name in rule.names)
        for rule in [rule for found in rules.values() for rule in found]
    )


@pytest.mark.rule("OP-62")
def test_the_operator_uses_every_granted_permission_and_no_other() -> None:
    # Without streaming lists, as on servers before 1.34: informers list, then watch.
    with ApiServer(crds=manifests(), serve_streaming_lists=False) as server:
        server.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        server.install(held_lease())
        with operator_on(server) as scene:
            play(scene)
    # The audit contains watches after they have ended, which they have by now.
    sent = [record for record in server.audit if record.user_agent == AGENT]
    assert [record for record in sent if not is_granted(record)] == []
    granted = {
        (verb, rule.target)
        for rules in manager_rbac().values()
        for rule in rules
        for verb in rule.verbs
        if not rule.asked_by_admission
    }
    assert {asked(record) for record in sent} == granted
