"""The parts of a finished node that the operator's caches keep."""

import sys
from typing import Any

import msgspec
import pytest
from tests.unit.operator.conftest import Make, Operator

from navarchos.meta import ObjectMeta
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    DrainPhase,
    NodeDrain,
    NodeReplacement,
    Step,
)
from navarchos.operator.cache_transforms import node_transform, strip_drain, strip_replacement
from navarchos.operator.names import CORDONED_BY_ANNOTATION, RESUME_ANNOTATION
from navarchos.operator.nodes import Node, NodeCondition, NodeInfo, NodeStatus

PODS = ["default/web-1", "default/web-2"]


def report(pods: int) -> dict[str, Any]:
    """Return the status fields about the pods of a node, which belong to ten workloads."""
    names = [f"default/web-{number:05}" for number in range(pods)]
    return {
        "nodePods": names,
        "evictedPods": names,
        "ignoredPods": [{"name": name, "reason": "DaemonSetPod"} for name in names],
        "failedPods": [{"name": name, "reason": "Timeout"} for name in names],
        "evictedOwners": [
            {"namespace": "default", "kind": "ReplicaSet", "name": f"web-{n}", "uid": f"uid-{n}"}
            for n in range(10)
        ],
    }


def finished_replacement(make: Make, pods: int, step: Step = Step.DONE) -> NodeReplacement:
    status = msgspec.to_builtins(make.replacement("a", step=step).status) | report(pods)
    base = make.replacement("a", step=step)
    return msgspec.structs.replace(base, status=msgspec.convert(status, type(base.status)))


def finished_drain(pods: int, *, keeps_cordon: bool = True, owned: bool = True) -> NodeDrain:
    owner = {"apiVersion": "x/v1", "kind": "K", "name": "o", "uid": "u", "controller": True}
    return msgspec.convert(
        {
            "metadata": {"name": "a", "ownerReferences": [owner] if owned else []},
            "spec": {"nodeName": "a", "uncordonOnDelete": not keeps_cordon},
            "status": {"phase": "Completed", "total": pods, "evicted": pods, **report(pods)},
        },
        NodeDrain,
    )


def size(obj: object, seen: set[int] | None = None) -> int:
    """Return the size of an object and of all objects that it refers to, in bytes."""
    seen = set() if seen is None else seen
    if id(obj) in seen:
        return 0
    seen.add(id(obj))
    parts: list[object] = []
    if isinstance(obj, msgspec.Struct):
        parts = [getattr(obj, name) for name in obj.__struct_fields__]
    elif isinstance(obj, dict):
        parts = [*obj, *obj.values()]
    elif isinstance(obj, tuple | list):
        parts = list(obj)
    return sys.getsizeof(obj) + sum(size(part, seen) for part in parts)


@pytest.mark.parametrize("step", [step for step in Step if step.is_finished])
def test_the_memory_of_a_finished_replacement_does_not_depend_on_its_pods(
    make: Make, step: Step
) -> None:
    few, many = (finished_replacement(make, pods, step) for pods in (3, 300))
    assert size(many) > 10 * size(few), "otherwise the comparison below means nothing"
    assert size(strip_replacement(many)) == size(strip_replacement(few))


def test_equal_owners_of_finished_replacements_are_one_object(make: Make) -> None:
    kept = [strip_replacement(finished_replacement(make, 3)) for _ in range(2)]
    assert len(kept[0].status.evicted_owners) == 10, "admission reads them"
    first, second = (replacement.status.evicted_owners for replacement in kept)
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_the_memory_of_a_stripped_drain_does_not_depend_on_its_pods() -> None:
    few, many = finished_drain(3), finished_drain(300)
    assert size(many) > 10 * size(few), "otherwise the comparison below means nothing"
    assert size(strip_drain(many)) <= size(strip_drain(few)) + 16, "except for the counts"
    assert strip_drain(many).status.evicted == 300


@pytest.mark.parametrize("step", [step for step in Step if not step.is_finished], ids=str)
def test_a_replacement_in_flight_is_not_stripped(make: Make, step: Step) -> None:
    replacement = finished_replacement(make, 3, step)
    assert strip_replacement(replacement) is replacement


def test_a_drain_keeps_its_report_until_its_replacement_has_stored_it() -> None:
    drain = finished_drain(3, keeps_cordon=False)
    assert strip_drain(drain) is drain
    by_hand = finished_drain(3, keeps_cordon=False, owned=False)
    assert strip_drain(by_hand).status.node_pods == (), "no replacement needs its report"


def test_the_memory_of_a_node_does_not_depend_on_foreign_annotations() -> None:
    notes = {CORDONED_BY_ANNOTATION: "roll-a/uid"}
    plain = Node(metadata=ObjectMeta(name="a", annotations=notes))
    noted = Node(metadata=ObjectMeta(name="a", annotations={**notes, "cni/state": "x" * 4096}))
    assert node_transform()(noted) == plain


@pytest.mark.rule("NP-54")
def test_a_cached_node_has_the_declared_annotations_only() -> None:
    given = {
        CORDONED_BY_ANNOTATION: "roll-a/uid",
        "agent.example/status": "idle",
        "checks.example/one": "true",
        "checks.example.org": "other",
        "cni/state": "x",
    }
    node = Node(metadata=ObjectMeta(name="a", annotations=given))
    kept = node_transform(["agent.example/status", "checks.example/*"])(node).metadata.annotations
    assert kept == {key: given[key] for key in list(given)[:3]}


@pytest.mark.rule("NP-54")
def test_a_cached_node_has_the_time_of_its_readiness_and_of_no_other_condition(make: Make) -> None:
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
        for kind in ("DiskPressure", "Ready")
    ]
    info = {"kubeletVersion": "v1.34.1", "bootID": "boot-1", "machineID": "not decoded"}
    first, second = (
        node_transform()(
            msgspec.convert(
                {
                    "metadata": {"name": name},
                    "status": {"conditions": conditions, "nodeInfo": info},
                },
                Node,
            )
        )
        for name in ("a", "b")
    )
    assert first.ready_since == make.at(0)
    assert first.status.conditions[0].last_transition_time is None
    assert first.status.conditions[0] is second.status.conditions[0], "not shared by all nodes"
    assert first.status.node_info == NodeInfo("v1.34.1", "boot-1")
    not_ready = NodeStatus(conditions=(NodeCondition("Ready", "Unknown", make.at(0)),))
    assert Node(status=not_ready).ready_since is None


def test_the_whole_report_is_stored_after_a_crash_between_its_two_writes(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING, nodePods=PODS)
    operator.report("mine", DrainPhase.COMPLETED, nodePods=PODS, evictedPods=PODS)
    # The last write of a process that was killed before it wrote the replacement's status.
    drains = operator.client.resource(NODE_DRAINS)
    drains.patch("mine", {"spec": {"uncordonOnDelete": False}})
    operator.restart()
    operator.see()
    cached = operator.clients.drains.find("mine")
    assert cached is not None
    assert cached.status.node_pods == (), "the cache has left the pods out"
    operator.settle()
    status = operator.replacement("mine").status
    assert status.current is Step.DONE
    assert (list(status.node_pods), list(status.evicted_pods)) == (PODS, PODS)


def test_a_resumed_replacement_lists_only_the_pods_of_its_new_attempt(
    operator: Operator,
) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"retries": 0})
    operator.settle()
    operator.play("mine", DrainPhase.DRAINING, nodePods=PODS)
    left = [{"name": PODS[1], "reason": "Timeout"}]
    operator.play("mine", DrainPhase.FAILED, nodePods=PODS, failedPods=left, reason="Timeout")
    operator.see()
    cached = operator.clients.replacements.find("mine")
    assert cached is not None
    assert cached.status.node_pods == ()
    status = operator.replacement("mine").status
    assert (list(status.node_pods), status.failed_pods_count) == (PODS, 1)
    operator.client.resource(NODE_REPLACEMENTS).patch(
        "mine", {"metadata": {"annotations": {RESUME_ANNOTATION: "now"}}}
    )
    operator.settle()
    operator.play("mine-attempt2", DrainPhase.DRAINING, nodePods=PODS[:1])
    status = operator.replacement("mine").status
    assert status.current is Step.DRAINING
    assert (list(status.node_pods), status.failed_pods) == (PODS[:1], ())
