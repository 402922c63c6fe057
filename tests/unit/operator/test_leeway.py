"""Writes that may wait, and for how long."""

from navarchos.operator.leeway import Leeway
from navarchos.testing import FakeClock


def test_the_time_of_what_may_wait_begins_when_there_first_is_something(
    fake_clock: FakeClock,
) -> None:
    leeway = Leeway(5.0, fake_clock)
    assert leeway.left("a") is None
    assert leeway.take("a") == 5.0
    fake_clock.advance(2.0)
    assert leeway.take("a") == 3.0, "more that is new does not put it off"
    assert leeway.left("a") == 3.0
    assert leeway.left("b") is None, "each has its own"
    fake_clock.advance(3.0)
    assert leeway.take("a") == 0.0


def test_what_is_due_is_asked_for_again_and_never_lost(fake_clock: FakeClock) -> None:
    leeway = Leeway(5.0, fake_clock)
    leeway.take("a")
    fake_clock.advance(60.0)
    left = leeway.left("a")
    assert left is not None
    assert 0 < left < 0.1, "a controller takes 0 for never"


def test_what_was_written_begins_anew(fake_clock: FakeClock) -> None:
    leeway = Leeway(5.0, fake_clock)
    leeway.take("a")
    fake_clock.advance(4.0)
    leeway.end("a")
    assert leeway.left("a") is None
    assert leeway.take("a") == 5.0
