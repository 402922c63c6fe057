"""Passes over many objects, and how soon they come one after the other."""

import pytest

from navarchos.operator.pace import Pace
from navarchos.testing import FakeClock


def test_a_pass_over_few_is_never_put_off(fake_clock: FakeClock) -> None:
    pace = Pace(fake_clock)
    assert pace.left("a") is None
    pace.passed("a", 200)
    assert pace.left("a") is None


def test_a_pass_over_a_thousand_comes_twice_a_second(fake_clock: FakeClock) -> None:
    pace = Pace(fake_clock)
    pace.passed("a", 1_000)
    assert pace.left("a") == pytest.approx(0.48)
    assert pace.left("b") is None, "each has its own"
    fake_clock.advance(0.4)
    assert pace.left("a") == pytest.approx(0.08), "to ask does not put it off"
    fake_clock.advance(0.1)
    assert pace.left("a") is None


def test_what_is_urgent_does_not_wait(fake_clock: FakeClock) -> None:
    pace = Pace(fake_clock)
    pace.passed("a", 1_000, urgent=1)
    assert pace.left("a", urgent=1) is not None
    assert pace.left("a", urgent=2) is None


def test_what_is_gone_is_forgotten(fake_clock: FakeClock) -> None:
    pace = Pace(fake_clock)
    pace.passed("a", 1_000)
    pace.forget("a")
    assert pace.left("a") is None
