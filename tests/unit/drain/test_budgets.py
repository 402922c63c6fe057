from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from navarchos.drain import Budget, Pod, budgets_of


def budget(name: str, selector: Any, namespace: str = "default", **status: Any) -> Budget:
    wire = {
        "metadata": {"name": name, "namespace": namespace, "generation": 2},
        "spec": {} if selector is None else {"selector": selector},
        "status": status,
    }
    return msgspec.convert(wire, Budget)


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({}, True),
        (None, False),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In"}]}, False),
    ],
)
def test_a_budget_covers_what_policy_v1_says(
    make_pod: Callable[..., Pod], selector: Any, covers: bool
) -> None:
    pod = make_pod(labels={"app": "web"})
    assert budget("b", selector).covers(pod) is covers
    assert not budget("b", selector, namespace="other").covers(pod)


def test_several_budgets_of_one_pod_are_found_by_name(make_pod: Callable[..., Pod]) -> None:
    found = budgets_of(make_pod(), [budget("b", {}), budget("c", None), budget("a", {})])
    assert [b.metadata.name for b in found] == ["a", "b"]


def test_a_status_of_an_older_generation_allows_nothing() -> None:
    assert budget("b", {}, disruptionsAllowed=1, observedGeneration=2).allows_one
    assert not budget("b", {}, disruptionsAllowed=1, observedGeneration=1).allows_one
    assert not budget("b", {}, disruptionsAllowed=0, observedGeneration=2).allows_one


def test_a_budget_that_requires_every_pod_never_allows_an_eviction() -> None:
    assert budget("b", {}, desiredHealthy=3, expectedPods=3).can_never_allow
    assert not budget("b", {}, desiredHealthy=2, expectedPods=3).can_never_allow
    assert not budget("b", {}).can_never_allow
