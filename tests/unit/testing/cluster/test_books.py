"""The updated counts equal the counts of all objects."""

import cProfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from navarchos.meta import ObjectMeta
from navarchos.testing.cluster.controllers.scheduler import Placement
from navarchos.testing.cluster.invariants import BudgetRecord, InvariantState, read_pod
from navarchos.testing.cluster.kinds import (
    Node,
    NodeStatus,
    Pod,
    PodMeta,
    PodSpec,
    StatusCondition,
)

NAMES = st.sampled_from([f"pod-{n}" for n in range(6)])
APPS = st.sampled_from(["web", "api"])
BUDGETS = st.sampled_from(["one", "two", "three"])

pod_changes = st.tuples(
    st.just("pod"), NAMES, st.integers(1, 2), APPS, st.booleans(), st.booleans(), APPS
)
steps = st.lists(
    st.one_of(
        pod_changes,
        st.tuples(st.just("gone"), NAMES),
        st.tuples(st.just("budget"), BUDGETS, st.sampled_from(["web", "api", ""])),
        st.tuples(st.just("no budget"), BUDGETS),
    ),
    max_size=40,
)


def raw(
    name: str, uid: int, app: str, ready: bool, terminating: bool, owner: str
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "shop",
        "uid": f"{name}-{uid}",
        "labels": {"app": app},
        "ownerReferences": [{"kind": "ReplicaSet", "uid": owner, "controller": True}],
    }
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}


def budget(name: str, app: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}} if app else {}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": selector}}


@given(steps)
def test_a_budgets_counts_equal_a_full_scan_after_any_changes(
    changes: list[tuple[Any, ...]],
) -> None:
    books = InvariantState()
    pods: dict[str, dict[str, Any]] = {}
    budgets: dict[str, str] = {}
    for what, name, *facts in changes:
        match what:
            case "pod":
                pods[name] = raw(name, *facts)
                books.set_pod(pods[name])
            case "gone":
                pods.pop(name, None)
                books.remove_pod(f"shop/{name}")
            case "budget":
                budgets[name] = facts[0]
                books.set_budget(budget(name, facts[0]))
            case _:
                budgets.pop(name, None)
                books.remove_budget(f"shop/{name}")
    kept = {record.name: record for pod in books.pods.values() for record in pod.budgets}
    for name, app in budgets.items():
        matching = [
            read_pod(pod)
            for pod in pods.values()
            if not app or pod["metadata"]["labels"]["app"] == app
        ]
        record = kept.pop(f"shop/{name}", None)
        assert counts_of(record) == (
            len(matching),
            sum(pod.is_healthy for pod in matching),
            Counter(pod.owner for pod in matching),
        )
    assert not kept, "a budget that is gone is known to no pod"


def counts_of(record: BudgetRecord | None) -> tuple[int, int, Counter[str]]:
    if record is None:
        return 0, 0, Counter()
    return record.pods, record.healthy, record.owners


def calls(work: Callable[[], object]) -> int:
    """Return the number of function calls, which is the same on any machine."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def test_entering_a_pod_costs_the_same_with_ten_budgets_and_with_a_thousand() -> None:
    costs = []
    for count in (10, 1000):
        books = InvariantState()
        for number in range(count):
            books.set_budget(budget(f"budget-{number}", f"app-{number}"))
        pod = raw("pod-1", 1, "app-7", True, False, "owner")
        costs.append(calls(lambda books=books, pod=pod: books.set_pod(pod)))  # type: ignore[misc]  # bound now
        assert [each.name for each in books.pods["shop/pod-1"].budgets] == ["shop/budget-7"]
    assert costs[0] == costs[1]


def test_entering_a_budget_costs_the_same_with_ten_pods_of_others_and_with_a_thousand() -> None:
    costs = []
    for count in (10, 1000):
        books = InvariantState()
        for number in range(count):
            books.set_pod(raw(f"pod-{number}", 1, f"app-{number}", True, False, "owner"))
        one = budget("budget", "app-7")
        costs.append(calls(lambda books=books, one=one: books.set_budget(one)))  # type: ignore[misc]  # bound now
    assert costs[0] == costs[1]


placements = st.lists(
    st.tuples(
        st.sampled_from(["place", "bind", "gone", "node", "no node"]),
        st.integers(0, 7),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(placements)
def test_the_books_of_a_scheduler_equal_a_full_scan_after_any_changes(
    changes: list[tuple[str, int, int]],
) -> None:
    placement, where, nodes = Placement(), dict[int, str](), set[str]()
    for what, number, place in changes:
        name, pod = f"node-{place}", unbound(number)
        match what:
            case "place":
                chosen = placement.place(pod)
                if chosen is not None:
                    assert chosen in nodes or where.get(number) == chosen
                    where[number] = chosen
            case "bind":
                where[number] = name
                placement.set_pod(bound(number, name))
            case "gone":
                where.pop(number, None)
                placement.remove_pod(pod.metadata.uid)
            case "node":
                nodes.add(name)
                placement.set_node(room_for_two(name))
            case _:
                nodes.discard(name)
                placement.remove_node(name)
        counts = Counter(where.values())
        assert all(placement.pods_on(f"node-{n}") == counts[f"node-{n}"] for n in range(3))


@given(st.integers(1, 3), st.integers(0, 12))
def test_no_node_is_given_more_pods_than_it_takes(nodes: int, pods: int) -> None:
    placement = Placement()
    for number in range(nodes):
        placement.set_node(room_for_two(f"node-{number}"))
    placed = [placement.place(unbound(number)) for number in range(pods)]
    counts = Counter(node for node in placed if node is not None)
    assert sum(counts.values()) == min(pods, 2 * nodes)
    assert all(count <= 2 for count in counts.values())


def unbound(number: int) -> Pod:
    return Pod(metadata=PodMeta(name=f"pod-{number}", uid=f"uid-{number}"))


def bound(number: int, node: str) -> Pod:
    return msgspec.structs.replace(unbound(number), spec=PodSpec(node_name=node))


def room_for_two(name: str) -> Node:
    status = NodeStatus(allocatable={"pods": "2"}, conditions=(StatusCondition("Ready", "True"),))
    return Node(metadata=ObjectMeta(name=name), status=status)
