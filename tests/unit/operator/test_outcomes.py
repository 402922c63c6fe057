"""How rollouts end when nodes cannot be drained. The test acts as the drain controller.

Time is virtual: durations are seconds of the operator's clock.
"""

from dataclasses import dataclass
from typing import Any, Final

import pytest
from tests.seeds import runs
from tests.unit.operator.conftest import Operator

from navarchos.client import Resource
from navarchos.operator.api.v1alpha1 import DrainPhase, RolloutPhase, Step
from navarchos.runtime.conditions import find_condition

DRAIN: Final = 30.0
"""Seconds that the drain of a node takes."""

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

TOTAL: Final = runs(20, at_most=100)
"""Nodes, of which one in twenty cannot be drained."""


class Drains:
    """Acts as the drain controller for all drains of a rollout: each drain ends after some time.

    Args:
        operator: Creates the drains.
        stalled: Nodes with a pod that cannot be evicted.
        timeout: Seconds after which the drain of such a node fails; `None` for never.
    """

    def __init__(
        self,
        operator: Operator,
        stalled: frozenset[str] = frozenset(),
        timeout: float | None = None,
    ) -> None:
        self._operator = operator
        self._stuck = stalled
        self._timeout = timeout
        self._known = frozenset(operator.drains())
        self._ends: dict[str, float] = {}
        self.started: list[tuple[float, str]] = []

    def run(self, rollout: str) -> None:
        """Advance the time until the rollout has ended, or only nodes on hold remain."""
        self._settle()
        while self._operator.rollout(rollout).status.phase is RolloutPhase.IN_PROGRESS:
            self._begin_new()
            now = self._operator.clock.monotonic()
            recheck = self._operator.recheck_after
            due = [*self._ends.values(), *([] if recheck is None else [now + recheck])]
            if not due:
                self._operator.settle_in_time()
                return
            self._operator.clock.advance(min(due) - now)
            for name in [name for name, end in self._ends.items() if end <= min(due)]:
                self._end(name)
            self._settle()

    def _begin_new(self) -> None:
        for drain in self._operator.clients.drains.list():
            name, node = drain.metadata.name, drain.spec.node_name
            if name in self._known:
                continue
            self._known |= {name}
            self.started.append((self._operator.clock.monotonic(), node))
            is_stalled = node in self._stuck
            self._operator.report(name, DrainPhase.DRAINING, remaining=9, blocked=9 * is_stalled)
            lasts = self._timeout if is_stalled else DRAIN
            if lasts is not None:
                self._ends[name] = self._operator.clock.monotonic() + lasts

    def _end(self, name: str) -> None:
        del self._ends[name]
        if self._operator.drain(name).spec.node_name in self._stuck:
            self._operator.report(
                name, DrainPhase.FAILED, reason="Timeout", message="1 pod is left"
            )
        else:
            self._operator.report(name, DrainPhase.COMPLETED, remaining=0)

    def _settle(self) -> None:
        # One round each for the end of a drain, its release, the next start, and its drain.
        for _ in range(3):
            self._operator.see()
            self._operator.round()
        self._operator.see()


def finished_within(operator: Operator, rollout: str, nodes: frozenset[str]) -> float:
    """Return the seconds from the start of a rollout until the last of these nodes was done."""
    begin = operator.rollout(rollout).status.start_timestamp
    assert begin is not None
    ends = [
        replacement.status.completion_timestamp
        for replacement in operator.clients.replacements.list()
        if replacement.metadata.name.startswith(f"{rollout}-")
        and replacement.spec.node_name in nodes
        and replacement.status.current is Step.DONE
    ]
    assert len(ends) == len(nodes)
    return max((end - begin).total_seconds() for end in ends if end is not None)


@dataclass(frozen=True)
class Played:
    """A rollout in which one of twenty nodes cannot be drained, and one without such nodes."""

    others: frozenset[str]
    stalled: frozenset[str]
    took: float
    """Seconds until the other nodes were done."""
    clean: float
    """Seconds until as many nodes were done in the rollout without such nodes."""
    started: list[tuple[float, str]]


def played(operator: Operator, *, timeout: float | None, **drain: Any) -> Played:
    """Run both rollouts. By their names, the nodes that cannot be drained start early."""
    nodes = [f"n{number:02}" for number in range(TOTAL)]
    stalled = frozenset(nodes[1 : TOTAL // 2 : 10])
    others = frozenset(nodes) - stalled
    for name in nodes:
        operator.add_node(name)
    spec: dict[str, Any] = {
        "nodeSelectors": [{"matchAll": True}],
        "strategy": {"maxConcurrent": TOTAL // 10, "maxFailures": len(stalled), "retries": 1},
        "drain": drain,
    }
    operator.add_rollout("clean", **spec)
    Drains(operator).run("clean")
    operator.add_rollout("hard", **spec)
    drains = Drains(operator, stalled, timeout)
    drains.run("hard")
    return Played(
        others=others,
        stalled=stalled,
        took=finished_within(operator, "hard", others),
        clean=finished_within(operator, "clean", frozenset(nodes)),
        started=drains.started,
    )


@pytest.mark.rule("OP-25")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("timeout", [2 * DRAIN, 30 * DRAIN, 0.5 * DAY])
def test_one_of_twenty_nodes_that_cannot_be_drained_delays_the_others_by_a_tenth(
    operator: Operator, timeout: float
) -> None:
    """With a long timeout, and with a retry after all other nodes."""
    end = played(operator, timeout=timeout, timeoutSeconds=int(timeout))
    status = operator.rollout("hard").status
    assert status.phase is RolloutPhase.COMPLETED
    assert status.replacements_failed == tuple(sorted(end.stalled))
    assert status.replacements_completed_count == len(end.others)
    assert end.took <= 1.1 * end.clean
    first: dict[str, float] = {}
    again = [(at, node) for at, node in end.started if first.setdefault(node, at) != at]
    assert first.keys() == end.others | end.stalled
    assert sorted(node for _, node in again) == sorted(end.stalled)
    assert min(at for at, _ in again) >= max(first.values()), "after all other nodes"


@pytest.mark.timeout(600)
def test_nodes_on_hold_delay_the_others_by_a_tenth_and_are_shown_as_stalled(
    operator: Operator,
) -> None:
    end = played(operator, timeout=None, timeoutSeconds=int(DRAIN), onTimeout="Hold")
    operator.settle_in_time()
    assert end.took <= 1.1 * end.clean
    status = operator.rollout("hard").status
    assert status.phase is RolloutPhase.IN_PROGRESS
    assert status.stalled == tuple(sorted(end.stalled))
    assert (status.in_flight, status.stalled_count) == ((), len(end.stalled))
    assert status.replacements_completed_count == len(end.others)


def pending_pod(operator: Operator, name: str, owner: dict[str, Any]) -> None:
    operator.server.install(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Pending"},
        }
    )


def replica_set(operator: Operator) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Create a ReplicaSet; return it as the owner of a pod, and as a drain reports it."""
    operator.server.install(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        }
    )
    uid = operator.server.get("replicasets", "web", "default", "apps")["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid}
    return owner, [{"namespace": "default", "kind": "ReplicaSet", "name": "web", "uid": uid}]


@pytest.mark.rule("OP-08")
@pytest.mark.rule("N-13")
def test_without_capacity_for_evicted_pods_only_the_first_batch_is_drained(
    operator: Operator,
) -> None:
    """The evicted pods run nowhere, so the pods of no further node may be evicted."""
    for name in "abcdef":
        operator.add_node(name)
    owner, evicted = replica_set(operator)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy={"maxConcurrent": 2})
    operator.settle()
    assert operator.drains() == ["roll-a", "roll-b"]
    operator.play("roll-a", DrainPhase.DRAINING, evictedOwners=evicted)
    pending_pod(operator, "web-1", owner)
    operator.play("roll-a", DrainPhase.COMPLETED, evictedOwners=evicted)
    operator.play("roll-b", DrainPhase.COMPLETED, evictedOwners=evicted)
    for _ in range(100):
        if operator.rollout().status.phase is RolloutPhase.HALTED:
            break
        operator.clock.advance(60.0)
        operator.settle()
    status = operator.rollout().status
    assert status.phase is RolloutPhase.HALTED
    halted = find_condition(status.conditions, "Halted")
    assert halted is not None
    assert "consecutive attempts failed" in halted.message
    assert operator.drains() == ["roll-a", "roll-b"], "only the first batch was changed"
    assert not any(operator.node(name).spec.unschedulable for name in "cdef")

    # Neither time, nor a restart, nor running pods continue the halted rollout.
    operator.restart()
    operator.clock.advance(DAY)
    operator.settle()
    operator.client.resource(_PODS).delete("web-1", "default", grace_period_seconds=0)
    operator.settle()
    assert operator.rollout().status.phase is RolloutPhase.HALTED
    assert operator.drains() == ["roll-a", "roll-b"]


@pytest.mark.rule("N-13")
def test_no_node_starts_while_the_pods_of_a_drained_node_are_pending(
    operator: Operator,
) -> None:
    for name in "abc":
        operator.add_node(name)
    owner, evicted = replica_set(operator)
    operator.add_rollout(
        nodeSelectors=[{"matchAll": True}], strategy={"pendingPodsTimeoutSeconds": int(DAY)}
    )
    operator.settle()
    operator.play("roll-a", DrainPhase.DRAINING, evictedOwners=evicted)
    pending_pod(operator, "web-1", owner)
    operator.play("roll-a", DrainPhase.COMPLETED, evictedOwners=evicted)
    for _ in range(6):
        operator.clock.advance(HOUR)
        operator.settle()
        assert operator.drains() == ["roll-a"]
        step = operator.replacement("roll-b").status.step
        assert step is not None
        assert (step.name, step.reason) == (Step.WAITING, "PendingPods")
    operator.client.resource(_PODS).patch(
        "web-1", {"status": {"phase": "Running"}}, "default", subresource="status"
    )
    operator.settle()
    assert operator.drains() == ["roll-a", "roll-b"]


@pytest.mark.rule("N-13")
@pytest.mark.parametrize("when", ["before its turn", "in the middle of its drain"])
def test_a_new_node_with_the_same_name_is_not_replaced_again(operator: Operator, when: str) -> None:
    for name in "abc":
        operator.add_node(name)
    operator.add_rollout(nodeSelectors=[{"matchAll": True}])
    operator.settle()
    victim = "b" if when == "before its turn" else "a"
    operator.remove_node(victim)
    operator.add_node(victim)
    if victim == "a":
        gone = {"completionTimestamp": None, "reason": "NodeGone"}
        operator.play("roll-a", DrainPhase.COMPLETED, **gone)
    else:
        operator.play("roll-a", DrainPhase.COMPLETED)
    while waiting := set(operator.drains()) - set(ended(operator)):
        operator.play(waiting.pop(), DrainPhase.COMPLETED)
    replaced = operator.replacement(f"roll-{victim}").status.step
    assert replaced is not None
    assert (replaced.name, replaced.reason) == (Step.DONE, "NodeGone")
    assert operator.rollout().status.phase is RolloutPhase.COMPLETED
    assert operator.rollout().status.replacements_completed == ("a", "b", "c")
    assert victim == "a" or "roll-b" not in operator.drains(), "the new node was not changed"
    fresh = operator.node(victim)
    assert not fresh.spec.unschedulable
    assert not fresh.metadata.labels


def ended(operator: Operator) -> list[str]:
    return [d for d in operator.drains() if operator.drain(d).status.phase is DrainPhase.COMPLETED]


_PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
