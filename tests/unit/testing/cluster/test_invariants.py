"""The checker reports violated invariants, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from navarchos.testing import FakeClock
from navarchos.testing.apiserver import BucketId, Change, Origin
from navarchos.testing.cluster.invariants import InvariantChecker
from navarchos.testing.cluster.options import Agent

RawPod = Callable[..., dict[str, Any]]

OPERATOR = "navarchos-manager/1.0"


class Feed:
    """Plays the server: converts states to changes."""

    def __init__(self, checker: InvariantChecker) -> None:
        self._checker = checker
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._version = 0

    def put(
        self, plural: str, obj: dict[str, Any], by: str | None = None, verb: str = "delete"
    ) -> None:
        key = (plural, obj["metadata"]["name"])
        previous = self._objects.get(key)
        self._objects[key] = obj
        origin = None if by is None else Origin(verb, by)
        self._tell("ADDED" if previous is None else "MODIFIED", plural, obj, previous, origin)

    def remove(self, plural: str, name: str, by: str | None = None, verb: str = "delete") -> None:
        obj = self._objects.pop((plural, name))
        origin = None if by is None else Origin(verb, by)
        self._tell("DELETED", plural, obj, obj, origin)

    def _tell(self, kind: Any, plural: str, obj: Any, previous: Any, origin: Origin | None) -> None:
        self._version += 1
        change = Change(kind, BucketId(plural, ""), obj, previous, self._version, origin)
        self._checker.observe(change)


@pytest.fixture
def checker(fake_clock: FakeClock) -> InvariantChecker:
    return InvariantChecker(late_binding_tolerance=5.0, clock=fake_clock)


@pytest.fixture
def feed(checker: InvariantChecker, raw_pod: RawPod) -> Feed:
    """Return a feed of a Deployment with three healthy pods."""
    feed = Feed(checker)
    feed.put("deployments", {"metadata": {"uid": "uid-d", "name": "d"}, "spec": {"replicas": 3}})
    owner = {"kind": "Deployment", "uid": "uid-d", "name": "d", "controller": True}
    metadata = {"uid": "uid-web", "name": "web", "ownerReferences": [owner]}
    feed.put("replicasets", {"metadata": metadata, "spec": {"replicas": 3}})
    for name in ("web-1", "web-2", "web-3"):
        feed.put("pods", raw_pod(name))
    return feed


def budget(selector: dict[str, Any] | None = None, **rule: int | str) -> dict[str, Any]:
    labels = {"matchLabels": {"app": "web"}} if selector is None else selector
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {**rule, "selector": labels},
        "status": {"disruptionsAllowed": 99},
    }


def whats(checker: InvariantChecker) -> list[str]:
    return [violation.what for violation in checker.violations]


@pytest.mark.parametrize(
    "rule", [{"maxUnavailable": 1}, {"minAvailable": 2}, {"minAvailable": "60%"}]
)
def test_one_disruption_too_many_is_found_whatever_the_status_says(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod, rule: dict[str, Any]
) -> None:
    feed.put("poddisruptionbudgets", budget(**rule))
    feed.put("pods", raw_pod("web-1", terminating=True), OPERATOR)
    assert checker.violations == []
    feed.put("pods", raw_pod("web-2", terminating=True), OPERATOR)
    (violation,) = checker.violations
    assert (violation.what, violation.object) == ("BudgetViolated", "shop/web-2")
    assert "shop/web" in violation.detail
    assert OPERATOR in violation.detail


def test_a_replacement_that_is_ready_makes_room_again(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod
) -> None:
    feed.put("poddisruptionbudgets", budget(maxUnavailable=1))
    feed.put("pods", raw_pod("web-1", terminating=True), OPERATOR)
    feed.put("pods", raw_pod("web-4", ready=False, node=""))
    feed.put("pods", raw_pod("web-4", ready=True))
    feed.remove("pods", "web-1", Agent.KUBELET)
    feed.put("pods", raw_pod("web-2", terminating=True), OPERATOR)
    assert checker.violations == []


def test_a_pod_that_is_not_healthy_can_go(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod
) -> None:
    feed.put("poddisruptionbudgets", budget(maxUnavailable=0))
    feed.put("pods", raw_pod("web-1", ready=False), Agent.KUBELET)
    feed.put("pods", raw_pod("web-1", ready=False, terminating=True), OPERATOR)
    assert checker.violations == []


def test_a_plain_delete_without_grace_is_a_disruption_too(
    checker: InvariantChecker, feed: Feed
) -> None:
    feed.put("poddisruptionbudgets", budget(maxUnavailable=0))
    feed.remove("pods", "web-1", "kubectl/v1.34")
    assert whats(checker) == ["BudgetViolated"]


@pytest.mark.parametrize("by", [Agent.KUBELET, Agent.CLOUD, Agent.CONTROLLERS, None])
def test_what_the_cluster_does_itself_is_not_voluntary(
    checker: InvariantChecker, feed: Feed, by: str | None
) -> None:
    feed.put("poddisruptionbudgets", budget(maxUnavailable=0))
    feed.remove("pods", "web-1", by)
    assert checker.violations == []


def test_a_budget_that_comes_later_counts_the_pods_that_are_there(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod
) -> None:
    feed.put("poddisruptionbudgets", budget(maxUnavailable=1))
    feed.remove("poddisruptionbudgets", "web")
    for name in ("web-1", "web-2"):
        feed.put("pods", raw_pod(name, terminating=True), OPERATOR)
    assert checker.violations == []
    feed.put("poddisruptionbudgets", budget(maxUnavailable=1))
    feed.put("pods", raw_pod("web-3", terminating=True), OPERATOR)
    assert whats(checker) == ["BudgetViolated"]


def test_a_changed_rule_counts_from_then_on(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod
) -> None:
    feed.put("poddisruptionbudgets", budget(maxUnavailable=0))
    feed.put("poddisruptionbudgets", budget(maxUnavailable=1))
    feed.put("pods", raw_pod("web-1", terminating=True), OPERATOR)
    assert checker.violations == []


def test_an_empty_selector_matches_all_and_none_matches_nothing(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod
) -> None:
    nothing = budget(maxUnavailable=0)
    del nothing["spec"]["selector"]
    feed.put("poddisruptionbudgets", nothing)
    feed.put("pods", raw_pod("web-1", terminating=True), OPERATOR)
    assert checker.violations == []
    feed.put("poddisruptionbudgets", budget({}, maxUnavailable=0))
    feed.put("pods", raw_pod("web-2", terminating=True), OPERATOR)
    assert whats(checker) == ["BudgetViolated"]


def test_labels_that_change_move_a_pod_out_of_its_budget(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod
) -> None:
    feed.put("poddisruptionbudgets", budget(maxUnavailable=0))
    feed.put("pods", raw_pod("web-1", labels={"app": "other"}), OPERATOR)
    feed.put("pods", raw_pod("web-1", labels={"app": "other"}, terminating=True), OPERATOR)
    assert checker.violations == []


def cordoned(value: bool) -> dict[str, Any]:
    return {"metadata": {"name": "node-1"}, "spec": {"unschedulable": value}}


def test_a_pod_bound_long_after_the_cordon_is_found(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod, fake_clock: FakeClock
) -> None:
    feed.put("pods", raw_pod("early", node="", ready=False))
    feed.put("pods", raw_pod("late", node="", ready=False))
    feed.put("nodes", cordoned(value=True))
    fake_clock.advance(4.0)
    feed.put("pods", raw_pod("early", ready=False), Agent.SCHEDULER)
    assert checker.violations == []
    fake_clock.advance(2.0)
    feed.put("pods", raw_pod("late", ready=False), Agent.SCHEDULER)
    assert whats(checker) == ["BoundToCordonedNode"]
    assert checker.count("scheduled") == 2


def test_daemons_may_come_to_a_cordoned_node_and_anybody_once_it_is_open(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod, fake_clock: FakeClock
) -> None:
    feed.put("nodes", cordoned(value=True))
    fake_clock.advance(60.0)
    feed.put("pods", raw_pod("daemon", owner=("DaemonSet", "agent")))
    feed.put("nodes", cordoned(value=False))
    feed.put("pods", raw_pod("web-9"))
    assert checker.violations == []


@pytest.mark.parametrize(
    "options",
    [
        {"owner": ("DaemonSet", "agent")},
        {"owner": None, "annotations": {"kubernetes.io/config.mirror": "x"}},
    ],
)
def test_an_eviction_of_a_pod_that_no_drain_can_move_is_found(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod, options: dict[str, Any]
) -> None:
    feed.put("pods", raw_pod("fixed", **options))
    feed.put("pods", raw_pod("fixed", **options, terminating=True), OPERATOR, "evict")
    assert whats(checker) == ["FixtureEvicted"]


def test_a_daemon_that_a_person_deletes_is_no_matter(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod
) -> None:
    feed.put("pods", raw_pod("daemon", owner=("DaemonSet", "agent")))
    feed.remove("pods", "daemon", "kubectl/v1.34")
    assert checker.violations == []


def test_evictions_are_counted_once_and_also_where_no_budget_was_asked(
    checker: InvariantChecker, feed: Feed, raw_pod: RawPod
) -> None:
    feed.put("pods", raw_pod("web-1", terminating=True), OPERATOR, "evict")
    feed.put("pods", raw_pod("web-1", terminating=True, grace=5), OPERATOR, "evict")
    feed.put("pods", raw_pod("pending", node="", ready=False, phase="Pending"))
    feed.remove("pods", "pending", OPERATOR, "evict")
    feed.remove("pods", "web-1", Agent.KUBELET)
    assert checker.count("evicted") == 2
    assert checker.violations == []
