"""The arithmetic of disruption budgets."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from navarchos.testing.cluster.budgets import (
    RequiredHealth,
    disrupted_pods,
    healthy_pods,
    required_health,
    resolve,
    status_of,
)
from navarchos.testing.cluster.kinds import Pod

MakePod = Callable[..., Pod]


def required(*, pods: int = 5, scale: int = 5, **rule: int | str | None) -> RequiredHealth:
    return required_health(
        min_available=rule.get("min_available"),
        max_unavailable=rule.get("max_unavailable"),
        pods=pods,
        scale=lambda: scale,
    )


@pytest.mark.parametrize(
    ("value", "total", "expected"),
    [(2, 10, 2), ("50%", 10, 5), ("50%", 7, 4), ("1%", 7, 1), ("0%", 7, 0), ("100%", 7, 7)],
)
def test_a_percentage_is_rounded_up(value: int | str, total: int, expected: int) -> None:
    assert resolve(value, total) == expected


def test_text_without_a_percent_sign_is_no_rule() -> None:
    with pytest.raises(ValueError, match="percentage"):
        resolve("half", 4)


def test_a_plain_minimum_counts_the_pods_that_exist() -> None:
    assert required(min_available=3, pods=2, scale=9) == RequiredHealth(expected=2, desired=3)


def test_a_relative_minimum_is_of_what_the_controllers_want() -> None:
    assert required(min_available="50%", pods=1, scale=5) == RequiredHealth(expected=5, desired=3)


@pytest.mark.parametrize(("rule", "desired"), [(1, 4), ("25%", 3), ("100%", 0), (9, 0)])
def test_a_maximum_is_taken_off_what_the_controllers_want(rule: int | str, desired: int) -> None:
    assert required(max_unavailable=rule) == RequiredHealth(expected=5, desired=desired)


def test_a_budget_without_a_rule_asks_for_nothing() -> None:
    assert required() == RequiredHealth(expected=5, desired=0)


def test_terminating_disrupted_and_unready_pods_are_not_healthy(
    make_pod: MakePod, now: datetime
) -> None:
    pods = [
        make_pod("a"),
        make_pod("b", ready=False),
        make_pod("c", terminating=True),
        make_pod("d"),
    ]
    assert healthy_pods(pods, {"d": now}) == 1


def test_what_is_spare_may_be_disrupted(now: datetime) -> None:
    status = status_of(RequiredHealth(expected=5, desired=3), 5, {"x": now}, 7)
    assert (status.disruptions_allowed, status.current_healthy, status.desired_healthy) == (2, 5, 3)
    assert (status.expected_pods, status.observed_generation) == (5, 7)
    assert status.disrupted_pods == {"x": now}


@pytest.mark.parametrize(("expected", "desired", "healthy"), [(5, 4, 4), (5, 4, 3), (0, 0, 1)])
def test_nothing_may_be_disrupted_without_a_surplus_or_without_expected_pods(
    expected: int, desired: int, healthy: int
) -> None:
    assert status_of(RequiredHealth(expected, desired), healthy, {}, 1).disruptions_allowed == 0


def test_an_eviction_is_remembered_until_its_pod_terminates_or_time_is_up(
    make_pod: MakePod, now: datetime
) -> None:
    pods = [make_pod("fresh"), make_pod("going", terminating=True), make_pod("late")]
    recorded = {
        "fresh": now - timedelta(seconds=5),
        "going": now,
        "late": now - timedelta(seconds=121),
        "gone": now,
    }
    assert disrupted_pods(pods, recorded, now).keys() == {"fresh"}
    assert disrupted_pods(pods, recorded, now, timeout=3.0) == {}
