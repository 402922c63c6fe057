import pytest

from navarchos.errors import ConfigError
from navarchos.testing import FakeClock
from navarchos.workqueue import (
    ItemExponential,
    ItemFastSlow,
    MaxOf,
    TokenBucketLimiter,
    WithMaxWait,
    controller_limiter,
    default_limiter,
)


@pytest.mark.rule("WQ-15")
def test_the_delay_of_a_key_doubles_up_to_the_cap() -> None:
    limiter = ItemExponential[str](0.001, 1.0)
    delays = [limiter.when("a") for _ in range(12)]
    assert delays[:5] == [0.001, 0.002, 0.004, 0.008, 0.016]
    assert delays[-1] == 1.0
    assert limiter.when("b") == 0.001


@pytest.mark.rule("WQ-15")
def test_forget_starts_a_key_over() -> None:
    limiter = ItemExponential[str](0.001, 1.0)
    limiter.when("a")
    limiter.when("a")
    limiter.when("b")
    assert (limiter.num_requeues("a"), limiter.num_requeues("b")) == (2, 1)
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0
    assert limiter.when("a") == 0.001
    assert limiter.num_requeues("b") == 1


@pytest.mark.rule("WQ-15")
def test_any_number_of_failures_stays_at_the_cap() -> None:
    limiter = ItemExponential[str](0.001, 1000.0)
    assert [limiter.when("a") for _ in range(3_000)][-1] == 1000.0


@pytest.mark.rule("WQ-16")
def test_the_first_failures_are_retried_fast() -> None:
    limiter = ItemFastSlow[str](0.005, 10.0, fast_attempts=3)
    assert [limiter.when("a") for _ in range(5)] == [0.005, 0.005, 0.005, 10.0, 10.0]
    limiter.forget("a")
    assert limiter.when("a") == 0.005


@pytest.mark.rule("WQ-17")
def test_an_empty_bucket_answers_with_the_time_until_the_reserved_token(
    fake_clock: FakeClock,
) -> None:
    limiter = TokenBucketLimiter[str](10, 2, clock=fake_clock)
    assert [limiter.when("a") for _ in range(4)] == pytest.approx([0, 0, 0.1, 0.2])
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0
    fake_clock.advance(0.1)
    assert limiter.when("b") == pytest.approx(0.2)
    fake_clock.advance(60)
    assert [limiter.when("c") for _ in range(3)] == pytest.approx([0, 0, 0.1])


@pytest.mark.rule("WQ-18")
def test_the_longest_delay_counts_and_every_member_advances() -> None:
    slow, fast = ItemExponential[str](1.0, 3.0), ItemExponential[str](0.5, 1000.0)
    limiter = MaxOf[str](slow, fast)
    assert [limiter.when("a") for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    assert limiter.num_requeues("a") == 4
    limiter.forget("a")
    assert (slow.num_requeues("a"), fast.num_requeues("a")) == (0, 0)


@pytest.mark.rule("WQ-19")
def test_a_longest_wait_caps_any_limiter() -> None:
    limiter = WithMaxWait[str](ItemExponential(1.0, 1000.0), 3.0)
    assert [limiter.when("a") for _ in range(4)] == [1.0, 2.0, 3.0, 3.0]
    assert limiter.num_requeues("a") == 4
    limiter.forget("a")
    assert limiter.when("a") == 1.0


@pytest.mark.rule("WQ-18")
def test_the_default_limits_all_keys_together(fake_clock: FakeClock) -> None:
    limiter = default_limiter(fake_clock)
    delays = [limiter.when(number) for number in range(200)]
    assert delays[0] == 0.005
    assert delays[-1] == pytest.approx(10.0)


@pytest.mark.rule("WQ-15")
def test_controllers_limit_single_keys_only() -> None:
    limiter = controller_limiter()
    assert {limiter.when(number) for number in range(200)} == {0.005}
    assert [limiter.when("a") for _ in range(30)][-1] == 1000.0


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="base=0:"):
        ItemExponential(0)
    with pytest.raises(ConfigError, match="qps=0:"):
        TokenBucketLimiter(0)
    with pytest.raises(ConfigError, match="burst=0:"):
        TokenBucketLimiter(1, 0)
    with pytest.raises(ConfigError, match="limiters"):
        MaxOf()


@pytest.mark.rule("WQ-09")
def test_an_unhashable_key_is_refused() -> None:
    with pytest.raises(TypeError, match="must be hashable"):
        ItemExponential().when([])  # type: ignore[arg-type]  # the point of the test
