"""Nodes that are taken out of service before their cordon, drains without evictions, successors."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.target import CONFIG
from tests.cases.waiting import wait_for
from tests.integration.conftest import CommandLine
from tests.integration.operator.test_gates import CLUSTER_ROLES, allow

from navarchos.client import ApiError, ListOptions, PatchType, Resource
from navarchos.meta import format_time
from navarchos.operator.readiness_gates import READINESS_GATES
from navarchos.runtime.rbac import Subject, role, role_binding
from navarchos.stopping import StopToken
from navarchos.testing.cluster.pod_lifecycle import STARTS_AFTER

pytestmark = pytest.mark.timeout(240)

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
KEY, STAMP = "node-detacher.variant.run/detached", "node-detacher.variant.run/detachment-timestamp"
RECORD = "navarchos.pusher.com/detached-for"
MARKS = {
    "excludeFromExternalLoadBalancers": True,
    "annotateNode": {"key": KEY, "value": "true"},
}


def marks(case: Case, node: str) -> tuple[bool, bool, bool]:
    """Return whether a node has the label, the annotation and the record."""
    metadata = case.node(node)["metadata"]
    annotations = metadata.get("annotations") or {}
    return EXCLUDE in metadata["labels"], KEY in annotations, RECORD in annotations


def answer(case: Case, drain: str, hook: str, text: str) -> None:
    annotations = {f"hook.navarchos.pusher.com/{hook}": text}
    case.target.patch("NodeDrain", drain, {"metadata": {"annotations": annotations}})


@pytest.mark.rule("IG-70")
@pytest.mark.rule("IG-74")
def test_a_rollout_prepares_each_node_before_its_cordon(case: Case) -> None:
    nodes = case.add_nodes(2)
    case.add(manifests.deployment(case.name, "web", 2))
    case.add_nodes(1, first=3)
    case.manager()
    wait = {"key": STAMP, "gracePeriodSeconds": 1}
    prepare = {**MARKS, "waitForTimestamp": wait, "settleSeconds": 1, "hooks": ["f5"]}
    names = [{"name": name} for name in nodes]
    case.roll(nodeSelectors=[], nodeNames=names, drain={"prepare": prepare})
    for node in nodes:
        name = case.replacement(node)
        case.wait_for_phase("Preparing", "NodeDrain", name)
        wait_for("the step", lambda: _step(case, name) == "Preparing")  # noqa: B023 - called at once
        assert marks(case, node) == (True, True, True)
        assert not case.is_cordoned(node)
        stamp = {STAMP: format_time(datetime.now(UTC))}
        case.target.patch("Node", node, {"metadata": {"annotations": stamp}})
        answer(case, name, "f5", "Waiting: connections")
        wait_for("the answer", lambda: "connections" in _said(case, name))  # noqa: B023 - at once
        answer(case, name, "f5", "Done")
        case.wait_for_phase("Completed", "NodeReplacement", name)
        assert case.condition("Prepared", "NodeReplacement", name)["status"] == "True"
        assert case.is_cordoned(node)
    case.wait_for_phase("Completed")
    assert all(marks(case, node) == (True, True, True) for node in nodes)

    case.delete("NodeRollout")
    wait_for("the drains to be gone", lambda: not case.target.list("NodeDrain"))
    assert all(marks(case, node) == (True, True, True) for node in nodes), "they stay drained"
    case.target.patch("Node", nodes[0], {"spec": {"unschedulable": None}})
    wait_for("the marks to be gone", lambda: marks(case, nodes[0]) == (False, False, False))


def _said(case: Case, drain: str) -> str:
    message: str = case.condition("Prepared", "NodeDrain", drain).get("message", "")
    return message


def _step(case: Case, replacement: str) -> str:
    step: str = case.status("NodeReplacement", replacement).get("step", {}).get("name", "")
    return step


@pytest.mark.rule("IG-73")
def test_a_node_that_is_not_prepared_in_time_is_given_back(case: Case) -> None:
    (node,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 1))
    case.manager()
    prepare = {**MARKS, "hooks": ["f5"], "timeoutSeconds": 2}
    case.roll(strategy={"retries": 0}, drain={"prepare": prepare})
    case.wait_for_phase("Halted")
    (failure,) = case.status("NodeReplacement", case.replacement(node))["failures"]
    assert failure["reason"] == "PrepareTimeout"
    assert "hook f5: has not answered" in failure["message"]
    wait_for("the marks to be gone", lambda: marks(case, node) == (False, False, False))
    assert not case.is_cordoned(node)
    assert case.checker.evictions(case.name) == 0


# Each field, alone

HOOK, DETACHING = "navarchos.pusher.com/drain-hook", "node-detacher.variant.run/detaching"
OLD: Final = "2020-01-02T03:04:05+01:00"
DETACH: Final = {
    "annotateNode": {"key": KEY, "value": "true"},
    "waitForTimestamp": {"key": STAMP, "gracePeriodSeconds": 1},
}


@dataclass(frozen=True)
class Row:
    """What a drain is told to prepare, and what happens then.

    Attributes:
        prepare: The fields.
        before: The annotations that the node has before.
        excluded: The value of the label that the node has before.
        hook: The hook of a pod on the node.
        waits: A part of what the condition says until `release`; empty: nothing is waited for.
        release: Ends the wait, for a node and its drain.
    """

    prepare: dict[str, Any]
    before: dict[str, str] = field(default_factory=dict)
    excluded: str | None = None
    hook: str = ""
    waits: str = ""
    release: Callable[[Case, str, str], object] = lambda _case, _node, _drain: None


def stamp(case: Case, node: str, _drain: str = "") -> None:
    annotations = {STAMP: format_time(datetime.now(UTC))}
    case.target.patch("Node", node, {"metadata": {"annotations": annotations}})


def answer_f5(case: Case, _node: str, drain: str) -> None:
    answer(case, drain, "f5", "Done")


def remove_proxy(case: Case, node: str, drain: str) -> None:
    """Do what the controller of a pod with a hook does."""
    answer(case, drain, "ingress", "Done")
    case.wait_for_phase("Draining", "NodeDrain", drain)
    case.target.of("Pod").delete(f"proxy-{node}", case.name)


ROWS: Final = {
    "label": Row({"excludeFromExternalLoadBalancers": True}, excluded="false"),
    "annotation": Row({"annotateNode": DETACH["annotateNode"]}, before={KEY: "by hand"}),
    "time": Row(DETACH, before={STAMP: OLD}, waits="has no new time", release=stamp),
    "text": Row(DETACH, before={STAMP: "soon"}, waits="is not a time", release=stamp),
    "detaching": Row(DETACH, before={STAMP: OLD, DETACHING: "true"}),
    "settle": Row({**MARKS, "settleSeconds": 3}, waits="settleSeconds end at"),
    "hook": Row({"hooks": ["f5"]}, waits="hook f5: has not answered", release=answer_f5),
    "pod": Row({}, hook="ingress", waits="hook ingress of ", release=remove_proxy),
    "proceed": Row({"hooks": ["f5"], "timeoutSeconds": 1, "onTimeout": "Proceed"}),
}


def drain_by(case: Case, node: str, row: Row) -> str:
    """Make what the row has before, and drain the node."""
    metadata = {"annotations": row.before, "labels": {EXCLUDE: row.excluded}}
    case.target.patch("Node", node, {"metadata": metadata})
    if row.hook:
        add_proxy(case, node, row.hook)
    drain = f"drain-{node}"
    case.create(manifests.drain(drain, node, prepare=row.prepare))
    return drain


def add_proxy(case: Case, node: str, hook: str) -> None:
    """Add a pod with a hook to a node."""
    proxy = manifests.pod(case.name, f"proxy-{node}", node)
    proxy["metadata"]["annotations"] = {**proxy["metadata"]["annotations"], HOOK: hook}
    case.add(proxy)


@pytest.mark.rule("IG-24")
@pytest.mark.rule("IG-70")
@pytest.mark.rule("IG-72")
def test_each_field_prepares_a_node(case: Case) -> None:
    case.checker.in_flight = None
    nodes = dict(zip(ROWS, case.add_nodes(len(ROWS)), strict=True))
    case.manager()
    drains = {name: drain_by(case, nodes[name], row) for name, row in ROWS.items()}
    for name, row in ROWS.items():
        if row.waits:
            wait_for(f"row {name}", lambda: row.waits in _said(case, drains[name]))  # noqa: B023 - at once
            assert name == "settle" or not case.is_cordoned(nodes[name]), name
        row.release(case, nodes[name], drains[name])
    for name, drain in drains.items():
        case.wait_for_phase("Completed", "NodeDrain", drain)
        assert case.is_cordoned(nodes[name]), name
        reason = "PreparationSkipped" if name == "proceed" else "Prepared"
        assert case.condition("Prepared", "NodeDrain", drain)["reason"] == reason, name
        metadata = case.node(nodes[name])["metadata"]
        marks = ROWS[name].prepare
        is_excluded = "excludeFromExternalLoadBalancers" in marks
        assert metadata["labels"].get(EXCLUDE) == ("true" if is_excluded else None), name
        assert metadata.get("annotations", {}).get(KEY) == (
            "true" if "annotateNode" in marks else None
        ), name
    _settled(case, drains["settle"], nodes["settle"], 3)
    wait_for("the event", lambda: case.events(drains["text"]).get("TimestampUnreadable"))
    for name, drain in drains.items():
        case.target.of("NodeDrain").delete(drain)
        wait_for("the drain to be gone", lambda: not case.target.find("NodeDrain", drain))  # noqa: B023 - at once
        metadata = case.node(nodes[name])["metadata"]
        assert metadata["labels"].get(EXCLUDE) == ROWS[name].excluded, name
        assert metadata.get("annotations", {}).get(KEY) == ROWS[name].before.get(KEY), name
        assert RECORD not in metadata.get("annotations", {}), name
    (told,) = case.events(drains["text"])["TimestampUnreadable"]
    assert told.get("series") is None, "the text is reported once"


def _settled(case: Case, drain: str, node: str, seconds: int) -> None:
    """Assert that a node was cordoned so long after its marks were set."""
    record = case.node(node)["metadata"]["annotations"][RECORD]
    (since,) = set(re.findall(r'"since":"([^"]+)"', record))
    cordoned = case.condition("NodeCordoned", "NodeDrain", drain)["lastTransitionTime"]
    took = datetime.fromisoformat(cordoned) - datetime.fromisoformat(since)
    assert took.total_seconds() >= seconds


# A script as a hook

_PAGE: Final = CONFIG.parent / "docs" / "operations.md"
_SCRIPT: Final = re.compile(r"```sh\n(#!/bin/sh\n# Answer the hook f5.*?)```", re.DOTALL)


@contextmanager
def script(directory: Path, case: Case, kubectl: Path) -> Iterator[None]:
    """Run the script of the documentation, with a command that writes the names of nodes."""
    (text,) = _SCRIPT.findall(_PAGE.read_text(encoding="utf-8"))
    command = directory / "take-out-of-f5"
    command.write_text(f'#!/bin/sh\necho "$1" >> {directory}/taken\n', encoding="utf-8")
    command.chmod(0o700)
    (directory / "kubectl").symlink_to(kubectl)
    process = subprocess.Popen(
        ["/bin/sh", "-c", text],
        env={
            "PATH": f"{directory}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(directory),
            "KUBECONFIG": str(case.target.kubeconfig),
        },
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
        assert process.poll() is None, "the script has ended"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=10)


@pytest.mark.long
@pytest.mark.rule("IG-71")
def test_a_script_answers_the_hooks_of_a_rollout(
    case: Case, kubectl_path: Path, tmp_path: Path
) -> None:
    nodes = case.add_nodes(2)
    case.manager()
    with script(tmp_path, case, kubectl_path):
        case.roll(drain={"prepare": {**MARKS, "hooks": ["f5"]}})
        case.wait_for_phase("Completed")
    taken = (tmp_path / "taken").read_text(encoding="utf-8").split()
    assert list(dict.fromkeys(taken)) == nodes, "one after the other, each before its cordon"


# How a node is given back, or finishes, in each step


@pytest.mark.rule("NP-12")
@pytest.mark.rule("IG-74")
@pytest.mark.parametrize("step", ["Preparing", pytest.param("Draining", marks=pytest.mark.long)])
def test_a_rollout_is_ended_in_each_step_of_its_node(
    case: Case, navarchos: CommandLine, step: str
) -> None:
    case.checker.in_flight = 4
    ways = ("delete", "abort", "pause", "cancel")
    nodes = dict(zip(ways, case.add_nodes(len(ways)), strict=True))
    drains = {way: f"{case.name}-{way}-{node}" for way, node in nodes.items()}
    for node in nodes.values():
        add_proxy(case, node, "ingress")
    case.manager()
    for way, node in nodes.items():
        rollout = manifests.rollout(
            case.name,
            f"{case.name}-{way}",
            nodeSelectors=[],
            nodeNames=[{"name": node}],
            strategy={"maxConcurrent": 4},
            drain={"prepare": MARKS},
        )
        case.create(rollout)
    for drain in drains.values():
        case.wait_for_phase("Preparing", "NodeDrain", drain)
        if step == "Draining":
            answer(case, drain, "ingress", "Done")
        case.wait_for_phase(step, "NodeDrain", drain)
    rollouts = case.target.of("NodeRollout")
    rollouts.patch(f"{case.name}-pause", {"spec": {"paused": True}})
    at = ("--kubeconfig", str(case.target.kubeconfig))
    assert navarchos.run("cancel", f"{case.name}-cancel", *at).status == 0
    assert navarchos.run("abort", f"{case.name}-abort", *at).status == 0
    rollouts.delete(f"{case.name}-delete")

    for way in ("delete", "abort"):
        gone = drains[way]
        wait_for(f"{way} to end", lambda: not case.target.find("NodeDrain", gone))  # noqa: B023 - at once
        assert marks(case, nodes[way]) == (False, False, False)
        assert not case.is_cordoned(nodes[way])
    assert len(case.pods()) == len(ways), "pods with a hook are never evicted"
    paused = drains["pause"]
    wait_for(
        "the pause",
        lambda: case.condition("Paused", "NodeDrain", paused).get("status") == "True",
    )
    answer(case, paused, "ingress", "Done")
    remove_proxy(case, nodes["cancel"], drains["cancel"])
    case.wait_for_phase("Completed", "NodeReplacement", drains["cancel"])
    assert case.phase("NodeDrain", paused) == step
    assert case.is_cordoned(nodes["pause"]) is (step == "Draining")
    assert marks(case, nodes["pause"]) == (True, True, True)
    rollouts.patch(f"{case.name}-pause", {"spec": {"paused": False}})
    remove_proxy(case, nodes["pause"], paused)
    for way in ("pause", "cancel"):
        case.wait_for_phase("Completed", name=f"{case.name}-{way}")
        assert case.is_cordoned(nodes[way])
        assert marks(case, nodes[way]) == (True, True, True)
    assert case.checker.evictions(case.name) == 0


@pytest.mark.rule("IG-78")
def test_a_drain_without_evictions_only_cordons(case: Case) -> None:
    (node,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 2))
    case.manager()
    case.create(manifests.drain(case.name, node, evict=False))
    status = case.wait_for_phase("Completed", "NodeDrain")
    assert status["reason"] == "CordonedOnly"
    assert case.is_cordoned(node)
    assert len(case.pods(node)) == 2
    assert case.checker.evictions(case.name) == 0
    case.delete("NodeDrain")
    wait_for("the node to be uncordoned", lambda: not case.is_cordoned(node))


@pytest.mark.rule("IG-70")
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ({"waitForTimestamp": {"key": STAMP}}, "waitForTimestamp requires annotateNode"),
        ({"annotateNode": {"key": "navarchos.pusher.com/x"}}, "must not belong to Kubernetes"),
        ({"annotateNode": {"key": "node.kubernetes.io/x"}}, "must not belong to Kubernetes"),
        ({"annotateNode": {"key": "a b"}}, "must be the key of an annotation"),
        ({"hooks": ["a/b"]}, "hooks"),
        ({"onTimeout": "Ignore"}, "onTimeout"),
    ],
)
def test_a_preparation_that_cannot_work_is_refused(
    case: Case, prepare: dict[str, object], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        case.roll(drain={"prepare": prepare})


# Successors: one replica moves without an outage


class Probe:
    """A client that resolves a Service every 100 ms.

    Lifecycle: a context manager; its thread samples.
    """

    def __init__(self, case: Case, app: str) -> None:
        self._case, self._app = case, app
        self._stop = StopToken()
        self._thread = threading.Thread(target=self._run, name="probe")
        self.answers: list[bool] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.stop("the case has ended")
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.answers.append(self._is_served())

    def _is_served(self) -> bool:
        """Return whether the Service has a ready endpoint.

        Without controllers of EndpointSlices the pods are read, as such a controller does.
        """
        case = self._case
        if case.target.has_accounts:
            client, options = (
                case.target.client.resource(_SLICES),
                ListOptions(label_selector=f"kubernetes.io/service-name={self._app}"),
            )
            slices = client.list(case.name, options).items
            endpoints = [each for found in slices for each in found.get("endpoints") or ()]
            return any(each["conditions"].get("ready") for each in endpoints)
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for pod in case.pods()
            if pod["metadata"]["labels"].get("app") == self._app
            and "deletionTimestamp" not in pod["metadata"]
            for condition in pod["status"].get("conditions", ())
        )


_SLICES: Final = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True, type=dict
)
_SERVICES: Final = Resource("", "v1", "services", "Service", namespaced=True, type=dict)


def add_single_replica(case: Case, node: str) -> None:
    """Add a Service with one pod on a node, which needs a second to start."""
    web = manifests.deployment(case.name, "web", 1)
    web["spec"]["template"]["metadata"]["annotations"][STARTS_AFTER] = "1s"
    case.add(web)
    case.target.client.resource(_SERVICES).create(
        {
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        },
        case.name,
    )
    (pod,) = case.pods()
    assert pod["spec"]["nodeName"] == node


@pytest.mark.rule("IG-77")
@pytest.mark.parametrize("policy", ["SingleReplica", pytest.param("Never", marks=pytest.mark.long)])
def test_one_replica_moves_without_an_outage(case: Case, policy: str) -> None:
    (node,) = case.add_nodes(1)
    add_single_replica(case, node)
    if policy == "SingleReplica":
        case.add(manifests.budget(case.name, "web", minAvailable=1))
    allow(case, "apps", "replicasets", verbs=["get"])
    allow(case, "apps", "deployments", verbs=["get", "patch"])
    case.add_nodes(1, first=2)
    case.manager()
    with Probe(case, "web") as probe:
        wait_for("the first answers", lambda: sum(probe.answers) >= 5)
        case.roll(
            nodeSelectors=[],
            nodeNames=[{"name": node}],
            drain={"replaceFirst": policy},
            strategy={"pendingPods": "Ignore"},
        )
        case.wait_for_phase("Completed")
        before = len(probe.answers)
        wait_for("the last answers", lambda: len(probe.answers) >= before + 20)
    first = probe.answers.index(True)
    outages = probe.answers[first:].count(False)
    if policy == "Never":
        assert outages, "the probe sees an outage"
        return
    assert outages == 0
    assert case.checker.evictions(case.name) == 0
    found = case.target.get("Deployment", "web", case.name)
    assert found["spec"]["replicas"] == 1
    assert "navarchos.pusher.com/moved-for" in found["spec"]["template"]["metadata"]["annotations"]
    assert set(case.events(case.replacement(node))) >= {"PodReplacedFirst"}


# Pods that become unready

GATE: Final = "navarchos.pusher.com/in-service"
FOREIGN: Final = "target-health.example.com/web"
SYSTEM: Final = "--controllers=rollouts,readiness-gates"
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io",
    "v1",
    "clusterrolebindings",
    "ClusterRoleBinding",
    namespaced=False,
    type=dict,
)


@pytest.fixture
def may_write_readiness(case: Case) -> Iterator[None]:
    """Grant the permissions of the system to the account of managers."""
    if not case.target.has_accounts:
        yield
        return
    name, client = "navarchos-readiness-gates", case.target.client
    account = Subject("navarchos", "kube-system")
    client.resource(CLUSTER_ROLES).create(role(name, READINESS_GATES.rbac[""]))
    client.resource(BINDINGS).create(role_binding(name, account))
    yield
    client.resource(BINDINGS).delete(name)
    client.resource(CLUSTER_ROLES).delete(name)


def add_gated(case: Case, name: str, replicas: int) -> None:
    """Add a Service and pods with a readiness gate."""
    made = manifests.deployment(case.name, name, replicas)
    made["spec"]["template"]["spec"]["readinessGates"] = [{"conditionType": GATE}]
    case.add(made)
    service = {"spec": {"selector": {"app": name}, "ports": [{"port": 80}]}}
    case.target.client.resource(_SERVICES).create(
        {"metadata": {"name": name}, **service}, case.name
    )


def conditions(pod: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}


def pods_of(case: Case, app: str) -> list[dict[str, Any]]:
    return [pod for pod in case.pods() if pod["metadata"]["labels"].get("app") == app]


@pytest.mark.rule("IG-76")
@pytest.mark.rule("IG-74")
@pytest.mark.usefixtures("may_write_readiness")
def test_pods_leave_their_endpoints_before_they_are_evicted(case: Case) -> None:
    """Pods under a budget stay, and conditions of others are never written."""
    case.manager(SYSTEM)
    (node,) = case.add_nodes(1)
    add_gated(case, "web", 2)
    add_gated(case, "guarded", 1)
    case.add(manifests.budget(case.name, "guarded", minAvailable=1))
    for pod in pods_of(case, "web"):
        foreign = {"type": FOREIGN, "status": "True", "lastTransitionTime": OLD}
        case.target.client.resource(PODS).patch(
            pod["metadata"]["name"],
            {"status": {"conditions": [foreign]}},
            case.name,
            type=PatchType.STRATEGIC,
            subresource="status",
        )
    with Probe(case, "web") as probe:
        wait_for("the first answers", lambda: sum(probe.answers) >= 5)
        prepare = {"readinessGate": GATE, "settleSeconds": 1, "hooks": ["stop"]}
        case.roll(drain={"prepare": prepare}, strategy={"pendingPods": "Ignore"})
        drain = case.replacement(node)
        case.wait_for_phase("Preparing", "NodeDrain", drain)
        wait_for("no endpoint of web", lambda: not probe.answers[-1])
        wait_for("the answer", lambda: _said(case, drain) == "hook stop: has not answered")
    for pod in pods_of(case, "web"):
        assert "deletionTimestamp" not in pod["metadata"]
        found = conditions(pod)
        assert (found[GATE], found["Ready"], found[FOREIGN]) == ("False", "False", "True")
    (guarded,) = pods_of(case, "guarded")
    assert (conditions(guarded)[GATE], conditions(guarded)["Ready"]) == ("True", "True")
    assert not case.is_cordoned(node)

    case.delete("NodeRollout")
    wait_for("ready pods", lambda: all(conditions(p)["Ready"] == "True" for p in case.pods()))
    assert all(conditions(pod)[GATE] == "True" for pod in case.pods())
    assert case.checker.evictions(case.name) == 0


@pytest.mark.rule("IG-76")
@pytest.mark.usefixtures("may_write_readiness")
def test_unready_pods_are_evicted_and_new_pods_become_ready(case: Case) -> None:
    case.manager(SYSTEM)
    (node,) = case.add_nodes(1)
    add_gated(case, "web", 2)
    case.add_nodes(1, first=2)
    prepare = {"readinessGate": GATE}
    names = [{"name": node}]
    case.roll(nodeSelectors=[], nodeNames=names, drain={"prepare": prepare})
    case.wait_for_phase("Completed")
    case.settle()
    assert {pod["spec"]["nodeName"] for pod in pods_of(case, "web")} == {f"{case.name}-2"}
    assert all(conditions(pod)[GATE] == "True" for pod in pods_of(case, "web"))
    assert case.checker.evictions(case.name) == 2


@pytest.mark.rule("IG-73")
@pytest.mark.rule("IG-76")
def test_a_drain_says_that_no_manager_changes_readiness_gates(case: Case) -> None:
    (node,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 1))
    case.manager()
    prepare = {"readinessGate": GATE, "timeoutSeconds": 2}
    case.roll(strategy={"retries": 0}, drain={"prepare": prepare})
    case.wait_for_phase("Halted")
    (failure,) = case.status("NodeReplacement", case.replacement(node))["failures"]
    assert failure["reason"] == "PrepareTimeout"
    assert f"readiness gate {GATE}: its pods are not unready yet" in failure["message"]
    assert "--controllers=rollouts,readiness-gates" in failure["message"]
    assert not case.is_cordoned(node)
    annotations = case.node(node)["metadata"].get("annotations") or {}
    assert not [key for key in annotations if "unready" in key]
