"""Writes that may be late, and the pause between scans over many objects."""

import pytest

from navarchos.operator.throttle import DeferredWrites, ScanThrottle
from navarchos.testing import FakeClock


def test_the_deadline_of_a_deferred_write_counts_from_the_first_change(
    fake_clock: FakeClock,
) -> None:
    writes = DeferredWrites(5.0, fake_clock)
    assert writes.remaining("a") is None
    assert writes.due_in("a") == 5.0
    fake_clock.advance(2.0)
    assert writes.due_in("a") == 3.0, "a further change does not move the deadline"
    assert writes.remaining("a") == 3.0
    assert writes.remaining("b") is None, "each object has a separate deadline"
    fake_clock.advance(3.0)
    assert writes.due_in("a") == 0.0


def test_an_overdue_write_is_requeued_soon_and_never_lost(fake_clock: FakeClock) -> None:
    writes = DeferredWrites(5.0, fake_clock)
    writes.due_in("a")
    fake_clock.advance(60.0)
    remaining = writes.remaining("a")
    assert remaining is not None
    assert 0 < remaining < 0.1, "a controller takes 0 for never"


def test_the_next_change_after_a_write_gets_a_new_deadline(fake_clock: FakeClock) -> None:
    writes = DeferredWrites(5.0, fake_clock)
    writes.due_in("a")
    fake_clock.advance(4.0)
    writes.clear("a")
    assert writes.remaining("a") is None
    assert writes.due_in("a") == 5.0


def test_a_scan_over_few_objects_is_never_delayed(fake_clock: FakeClock) -> None:
    throttle = ScanThrottle(fake_clock)
    assert throttle.wait("a") is None
    throttle.record("a", 200)
    assert throttle.wait("a") is None


def test_a_scan_over_a_thousand_objects_runs_twice_a_second(fake_clock: FakeClock) -> None:
    throttle = ScanThrottle(fake_clock)
    throttle.record("a", 1_000)
    assert throttle.wait("a") == pytest.approx(0.48)
    assert throttle.wait("b") is None, "each set has a separate pause"
    fake_clock.advance(0.4)
    assert throttle.wait("a") == pytest.approx(0.08), "asking does not extend the pause"
    fake_clock.advance(0.08)
    assert throttle.wait("a") is None


def test_an_urgent_change_is_not_delayed(fake_clock: FakeClock) -> None:
    throttle = ScanThrottle(fake_clock)
    throttle.record("a", 1_000, urgent=1)
    assert throttle.wait("a", urgent=1) is not None
    assert throttle.wait("a", urgent=2) is None


def test_a_deleted_set_has_no_pause(fake_clock: FakeClock) -> None:
    throttle = ScanThrottle(fake_clock)
    throttle.record("a", 1_000)
    throttle.forget("a")
    assert throttle.wait("a") is None
