"""Deployments with one replica start their new pod before the old one leaves the node."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.unit.operator.drains.conftest import Process, World
from tests.unit.operator.drains.test_crashes import Killed, crashing_client

from navarchos.client import Client
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.deployment.settings import AGGREGATE_TO_GATES
from navarchos.operator.drains.successors import (
    RBAC_OF_USERS,
    Deployment,
    NoSuccessor,
    SuccessorAsked,
    SuccessorDue,
    judge,
)
from navarchos.runtime.rbac import role
from navarchos.testing.apiserver import Fault

__all__ = ["crashing_client"]

pytestmark = pytest.mark.rule("IG-77")

MOVED = "navarchos.pusher.com/moved-for"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(**spec: Any) -> Deployment:
    metadata = {"name": "web", "namespace": "default", "uid": "w"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Deployment)


def surge(amount: object) -> dict[str, Any]:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": amount}}}


@pytest.mark.parametrize(
    ("spec", "starts_first"),
    [
        ({}, True),
        ({"replicas": 1, **surge(1)}, True),
        ({"replicas": 1, **surge("1%")}, True),
        ({"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": None}}, True),
        ({"replicas": 1, **surge(0)}, False),
        ({"replicas": 1, **surge("0%")}, False),
        ({"replicas": 1, **surge("much")}, False),
        ({"replicas": 1, "strategy": {"type": "Recreate"}}, False),
        ({"replicas": 1, "paused": True}, False),
        ({"replicas": 2}, False),
        ({"replicas": 0}, False),
    ],
)
def test_only_a_rolling_update_with_a_surge_has_no_outage(
    spec: dict[str, Any], starts_first: bool
) -> None:
    found = deployment(**spec)
    drain = msgspec.convert({"metadata": {"uid": "d"}, "spec": {"nodeName": "n"}}, api.NodeDrain)
    assert judge(found, drain) == (SuccessorDue(found) if starts_first else NoSuccessor())
    asked = {**spec, "template": {"metadata": {"annotations": {MOVED: "d"}}}}
    assert judge(deployment(**asked), drain) == SuccessorAsked("default/web"), "asked once"
    others = {**spec, "template": {"metadata": {"annotations": {MOVED: "another"}}}}
    assert isinstance(judge(deployment(**others), drain), SuccessorDue) is starts_first


def add(world: World, name: str = "web", **spec: Any) -> None:
    """Add a Deployment and its ReplicaSet with a pod on the node."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    common = {"selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = {"name": name, "namespace": "default"}
    made: dict[str, Any] = {"apiVersion": "apps/v1", "metadata": metadata}
    world.server.install({**made, "kind": "Deployment", "spec": {"replicas": 1, **common, **spec}})
    world.server.install(
        {
            **made,
            "kind": "ReplicaSet",
            "metadata": {
                **metadata,
                "ownerReferences": [_owner(world, "Deployment", name)],
            },
            "spec": {"replicas": 1, **common},
        }
    )
    add_pod(world, f"{name}-1", name)


def add_pod(world: World, pod: str, name: str) -> None:
    world.pod(pod, metadata={"ownerReferences": [_owner(world, "ReplicaSet", name)]})


def _owner(world: World, kind: str, name: str) -> dict[str, Any]:
    found = world.server.get(f"{kind.lower()}s", name, "default", "apps")
    uid = found["metadata"]["uid"]
    return {
        "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True,
    }  # fmt: skip


def moved_for(world: World, name: str = "web") -> str | None:
    found = world.server.get("deployments", name, "default", "apps")
    annotations = found["spec"]["template"]["metadata"].get("annotations") or {}
    value: str | None = annotations.get(MOVED)
    return value


def patches(world: World) -> int:
    return sum(
        record.verb == "patch" and record.resource == "deployments" for record in world.server.audit
    )


def message(world: World) -> str:
    conditions = world.status()["conditions"]
    found: list[str] = [c.get("message", "") for c in conditions if c["type"] == "NodeDrained"]
    return found[0]


def start(world: World, **spec: Any) -> None:
    world.node()
    add(world)
    world.pod("other")
    world.drain(replaceFirst="SingleReplica", **spec)


def test_the_pod_of_a_single_replica_is_replaced_and_others_are_evicted(
    world: World, process: Process
) -> None:
    start(world)
    process.run(lambda: "other" in world.terminating())
    assert moved_for(world) == world.get()["metadata"]["uid"]
    world.kubelet()
    world.clock.passed += 60
    process.step()
    assert (world.evictions, world.pods()) == (1, ["web-1"])
    assert message(world) == "replaced first by their Deployments: default/web-1"
    assert world.status()["blocked"] == 0
    assert process.recorder.reasons == ["NodeCordoned", "PodReplacedFirst", "PodEvicted"]
    assert process.metric("navarchos_drain_replaced_first_total") == 1

    world.end("web-1")  # as the Deployment does when the new pod is available
    process.run(world.is_over)
    status = world.status()
    assert status["reason"] == "NodeDrained"
    assert status["evictedPods"] == ["default/other", "default/web-1"]
    assert (world.evictions, patches(world)) == (1, 1)


def test_a_pod_without_its_successor_is_evicted_after_half_of_the_timeout(
    world: World, process: Process
) -> None:
    start(world, timeoutSeconds=100)
    took = process.run(lambda: "web-1" in world.terminating(), meanwhile=world.kubelet, limit=90)
    assert 50 <= took <= 53
    assert patches(world) == 1
    process.run(world.is_over, meanwhile=world.kubelet)
    assert world.status()["reason"] == "NodeDrained"


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 2},
        {"strategy": {"type": "Recreate"}},
        {"paused": True},
        {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
    ],
)
def test_other_deployments_are_not_changed(
    world: World, process: Process, change: dict[str, Any]
) -> None:
    world.node()
    add(world, **change)
    world.drain(replaceFirst="SingleReplica")
    process.run(lambda: world.terminating() == ["web-1"])
    assert moved_for(world) is None


def test_without_the_field_no_deployment_is_read(world: World, process: Process) -> None:
    world.node()
    add(world)
    world.drain()
    process.run(world.is_over, meanwhile=world.kubelet)
    kinds = {record.resource for record in world.server.audit}
    assert not {"deployments", "replicasets"} & kinds


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_a_missing_permission_is_reported_and_the_pod_is_evicted_later(
    world: World, process: Process, verb: str
) -> None:
    start(world, timeoutSeconds=60, evictionRetrySeconds=5)
    world.server.faults.add(
        Fault(verb=verb, resource="deployments", status=403, message="not allowed", times=None)
    )
    process.run(lambda: world.status().get("blockers"), meanwhile=world.kubelet)
    (blocker,) = world.status()["blockers"]
    assert (blocker["pod"], blocker["reason"]) == ("web-1", "Forbidden")
    assert "not allowed" in blocker["message"]
    before = len(world.server.audit)
    process.run(lambda: "web-1" in world.terminating(), meanwhile=world.kubelet)
    sent = [r for r in world.server.audit[before:] if r.resource == "deployments"]
    assert 5 <= len([r for r in sent if r.verb == verb]) <= 8, "once each 5 s, for 30 s"


@pytest.mark.parametrize("writes", range(1, 8))
def test_a_deployment_is_asked_once_also_after_a_kill(
    world: World, crashing_client: Client, writes: int
) -> None:
    world.node()
    add(world)
    world.drain(replaceFirst="SingleReplica")

    def deployment_acts() -> None:
        if moved_for(world) and "web-1" in world.pods():
            world.end("web-1")

    process, is_killed = world.process(crashing_client), False
    try:
        process.run(world.is_over, meanwhile=deployment_acts)
    except Killed:
        is_killed = True
    finally:
        process.close()
    assert is_killed is (writes <= 6), "every write is followed by a kill"
    world.clock.passed += 3
    successor = world.process()
    successor.run(world.is_over, meanwhile=deployment_acts)
    assert world.status()["evictedPods"] == ["default/web-1"]
    assert (world.evictions, patches(world)) == (0, 1)


def test_a_paused_drain_asks_no_deployment(world: World, process: Process) -> None:
    world.blocked_drain(replaceFirst="SingleReplica")
    process.run(lambda: world.phase() == "Draining")
    world.edit(paused=True)
    process.run(lambda: world.condition("Paused") == ("True", "Paused"))
    add(world)
    world.clock.passed += 60
    process.step()
    assert (moved_for(world), world.pods()) == (None, ["a", "web-1"])
    world.edit(paused=False)
    process.run(lambda: moved_for(world) is not None)


def test_the_documentation_has_the_role_that_users_grant() -> None:
    page = (Path(__file__).parents[4] / "docs" / "operations.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(apiVersion: rbac[^`]*replace-first[^`]*)```", page)
    found = yaml.safe_load(text)
    declared: Any = role("x", RBAC_OF_USERS)["rules"]
    assert sorted(found["rules"], key=str) == sorted(declared, key=str)
    assert found["metadata"]["labels"] == {AGGREGATE_TO_GATES: "true"}
