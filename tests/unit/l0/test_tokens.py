from collections.abc import Iterator

import pytest

from navarchos.errors import ConfigError, Stopped
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.threads import ThreadGroup
from navarchos.tokens import TokenBucket


@pytest.fixture
def group() -> Iterator[ThreadGroup]:
    group = ThreadGroup("test", stop=StopToken())
    yield group
    assert group.join(10), group.running()
    group.raise_failure()


@pytest.mark.rule("WQ-33")
def test_a_burst_passes_at_once_and_then_a_token_per_period(fake_clock: FakeClock) -> None:
    bucket = TokenBucket(2, 3, clock=fake_clock)
    assert [bucket.try_accept() for _ in range(4)] == [True, True, True, False]
    fake_clock.advance(0.4)
    assert not bucket.try_accept()
    fake_clock.advance(0.1)
    assert [bucket.try_accept(), bucket.try_accept()] == [True, False]
    fake_clock.advance(1_000)
    assert [bucket.try_accept() for _ in range(4)] == [True, True, True, False]


@pytest.mark.rule("WQ-33")
def test_rounding_errors_do_not_lose_a_token(fake_clock: FakeClock) -> None:
    period = 1.031425
    bucket = TokenBucket(1 / period, 1, clock=fake_clock)
    for _ in range(1_000):
        assert bucket.try_accept()
        fake_clock.advance(period)


@pytest.mark.rule("WQ-33")
def test_waiting_takes_as_long_as_the_token(fake_clock: FakeClock, group: ThreadGroup) -> None:
    bucket = TokenBucket(1, 1, clock=fake_clock)
    stop = StopToken(clock=fake_clock)
    assert bucket.accept(stop)
    accepted: list[bool] = []
    group.start("waiter", lambda: accepted.append(bucket.accept(stop)))
    fake_clock.settle(threads=1)
    assert fake_clock.next_deadline() == pytest.approx(1)
    assert accepted == []
    fake_clock.advance(1)
    fake_clock.settle()
    assert accepted == [True]


@pytest.mark.rule("WQ-33")
def test_a_deadline_that_cannot_be_met_fails_at_once_and_takes_no_token(
    fake_clock: FakeClock,
) -> None:
    bucket = TokenBucket(1, 1, clock=fake_clock)
    stop = StopToken(clock=fake_clock)
    assert bucket.accept(stop, timeout=0)
    assert not bucket.accept(stop, timeout=0.9)
    fake_clock.advance(1)
    assert bucket.accept(stop, timeout=0)


@pytest.mark.rule("WQ-33")
def test_a_stop_ends_the_wait_and_returns_the_token(
    fake_clock: FakeClock, group: ThreadGroup
) -> None:
    bucket = TokenBucket(1, 1, clock=fake_clock)
    stop = StopToken(clock=fake_clock)
    bucket.accept(stop)
    raised: list[type] = []

    def wait() -> None:
        try:
            bucket.accept(stop)
        except Stopped as error:
            raised.append(type(error))

    group.start("waiter", wait)
    fake_clock.settle(threads=1)
    stop.stop()
    assert group.join(10)
    assert raised == [Stopped]
    assert bucket.reserve() == pytest.approx(1)
    with pytest.raises(Stopped):
        bucket.accept(stop)


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (float("nan"), 1), (1, 0)])
def test_a_bucket_without_tokens_is_refused(qps: float, burst: int) -> None:
    with pytest.raises(ConfigError):
        TokenBucket(qps, burst)
