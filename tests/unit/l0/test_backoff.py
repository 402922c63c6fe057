import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.backoff import Backoff, BackoffTimer
from navarchos.errors import ConfigError
from navarchos.testing import FakeClock

REFLECTOR = Backoff(base=0.8, factor=2.0, cap=30.0, jitter=1.0, reset_after=120.0)


@pytest.mark.rule("RF-02")
def test_delays_double_up_to_the_cap() -> None:
    delays = [REFLECTOR.delay(n, rand=lambda: 0.0) for n in range(7)]
    assert delays == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


@pytest.mark.rule("RF-02")
@given(st.integers(min_value=0, max_value=10**9), st.floats(0, 1, exclude_max=True))
def test_jitter_at_most_doubles_a_delay(attempt: int, share: float) -> None:
    plain = REFLECTOR.delay(attempt, rand=lambda: 0.0)
    assert plain <= REFLECTOR.delay(attempt, rand=lambda: share) <= 2 * plain <= 60.0


@pytest.mark.rule("RF-02")
def test_the_count_starts_over_two_minutes_after_the_last_reset(fake_clock: FakeClock) -> None:
    timer = BackoffTimer(REFLECTOR, clock=fake_clock, rand=lambda: 0.0)
    assert [timer.next(), timer.next()] == [0.8, 1.6]
    fake_clock.advance(119)
    assert timer.next() == 3.2
    fake_clock.advance(2)
    assert timer.next() == 0.8


@pytest.mark.parametrize(
    "bad", [{"base": 0.0}, {"base": 1, "factor": 0.5}, {"base": 1, "jitter": -1}]
)
def test_a_policy_that_cannot_work_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Backoff(**bad)
