import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.backoff import Backoff, BackoffTimer, KeyedBackoff
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
def test_the_count_resets_two_minutes_after_the_last_reset(fake_clock: FakeClock) -> None:
    timer = BackoffTimer(REFLECTOR, clock=fake_clock, rand=lambda: 0.0)
    assert [timer.next(), timer.next()] == [0.8, 1.6]
    fake_clock.advance(119)
    assert timer.next() == 3.2
    fake_clock.advance(2)
    assert timer.next() == 0.8


@pytest.mark.parametrize(
    "bad", [{"base": 0.0}, {"base": 1, "factor": 0.5}, {"base": 1, "jitter": -1}]
)
def test_an_invalid_policy_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Backoff(**bad)


@pytest.mark.rule("WQ-32")
def test_each_key_doubles_its_own_delay_up_to_the_cap(fake_clock: FakeClock) -> None:
    backoff = KeyedBackoff[str](1.0, 5.0, clock=fake_clock)
    assert backoff.get("a") == 0
    assert [backoff.next("a") for _ in range(5)] == [1, 2, 4, 5, 5]
    assert (backoff.next("b"), backoff.get("a")) == (1, 5)
    backoff.reset("a")
    backoff.reset("never seen")
    assert (backoff.get("a"), backoff.next("a")) == (0, 1)


@pytest.mark.rule("WQ-32")
def test_a_key_resets_after_more_than_twice_the_cap(fake_clock: FakeClock) -> None:
    backoff = KeyedBackoff[str](1.0, 5.0, clock=fake_clock)
    backoff.next("a")
    fake_clock.advance(10)
    assert backoff.next("a") == 2
    fake_clock.advance(10.001)
    assert backoff.get("a") == 2
    assert backoff.next("a") == 1


@pytest.mark.rule("WQ-32")
def test_the_random_share_is_relative_to_the_previous_delay(fake_clock: FakeClock) -> None:
    backoff = KeyedBackoff[str](1.0, 100.0, jitter=0.5, clock=fake_clock, rand=lambda: 0.5)
    assert [backoff.next("a") for _ in range(3)] == [1.25, 2.8125, 6.328125]
    capped = KeyedBackoff[str](8.0, 10.0, jitter=1.0, clock=fake_clock, rand=lambda: 0.99)
    assert [capped.next("a"), capped.next("a")] == [8.0 * 1.99, 10.0]


@pytest.mark.rule("WQ-32")
def test_a_key_is_in_backoff_since_an_event_or_its_last_failure(
    fake_clock: FakeClock,
) -> None:
    backoff = KeyedBackoff[str](2.0, 60.0, clock=fake_clock)
    event = fake_clock.monotonic()
    assert not backoff.is_in_backoff_since("a", event)
    assert not backoff.is_in_backoff_since_update("a", event)
    backoff.next("a")
    fake_clock.advance(1.5)
    assert backoff.is_in_backoff_since("a", event)
    assert backoff.is_in_backoff_since_update("a", event + 1.9)
    assert not backoff.is_in_backoff_since_update("a", event + 2.0)
    fake_clock.advance(0.5)
    assert not backoff.is_in_backoff_since("a", event)
    assert backoff.is_in_backoff_since("a", event + 1)
    fake_clock.advance(200)
    now = fake_clock.monotonic()
    assert not backoff.is_in_backoff_since("a", now)
    assert not backoff.is_in_backoff_since_update("a", now)


@pytest.mark.rule("WQ-32")
def test_collect_forgets_only_keys_that_would_reset(fake_clock: FakeClock) -> None:
    backoff = KeyedBackoff[str](1.0, 5.0, clock=fake_clock)
    backoff.next("old")
    fake_clock.advance(6)
    backoff.next("new")
    fake_clock.advance(5)
    backoff.collect()
    assert (backoff.get("old"), backoff.get("new")) == (0, 1)


@pytest.mark.parametrize("bad", [{"initial": 0.0}, {"initial": 1.0, "jitter": -1.0}])
def test_an_invalid_keyed_backoff_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        KeyedBackoff[str](bad["initial"], 5.0, jitter=bad.get("jitter", 0.0))
