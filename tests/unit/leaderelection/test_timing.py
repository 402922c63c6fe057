"""Durations that can and cannot work together."""

from typing import Any

import pytest

from navarchos.errors import ConfigError
from navarchos.leaderelection import LeaseTiming


@pytest.mark.rule("LE-01")
def test_the_defaults_are_those_of_client_go() -> None:
    assert LeaseTiming() == LeaseTiming(lease_duration=15, renew_deadline=10, retry_period=2)


@pytest.mark.rule("LE-01")
@pytest.mark.rule("PF-30")
@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"lease_duration": 10}, "lease_duration"),
        ({"renew_deadline": 2.4}, "renew_deadline"),
        ({"lease_duration": 0}, "lease_duration"),
        ({"renew_deadline": 0}, "renew_deadline"),
        ({"retry_period": 0}, "retry_period"),
        ({"retry_period": -1}, "retry_period"),
    ],
)
def test_durations_that_break_the_argument_are_refused(given: Any, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LeaseTiming(**given)
    assert caught.value.name == name
    assert isinstance(caught.value, ValueError)


@pytest.mark.rule("LE-06")
@pytest.mark.parametrize(("renew_deadline", "timeout"), [(10, 5), (1.5, 1)])
def test_a_request_may_take_half_the_deadline_and_a_second_at_least(
    renew_deadline: float, timeout: float
) -> None:
    timing = LeaseTiming(renew_deadline=renew_deadline, retry_period=1)
    assert timing.request_timeout == timeout


@pytest.mark.rule("LE-13")
@pytest.mark.parametrize(("timing", "seconds"), [(LeaseTiming(), 12), (LeaseTiming(11, 10, 2), 11)])
def test_a_renewal_holds_until_others_could_begin_at_the_latest(
    timing: LeaseTiming, seconds: float
) -> None:
    assert timing.valid_for == seconds
