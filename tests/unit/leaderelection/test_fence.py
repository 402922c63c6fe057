"""The fence: no write leaves while another process could hold the lease."""

from collections.abc import Callable

import pytest
from tests.unit.leaderelection.conftest import Candidate, Lease

from navarchos.client import RequestTimeout
from navarchos.errors import Stopped
from navarchos.leaderelection import LeaseLost, LeaseRecord, NotLeading
from navarchos.leaderelection.acquirer import ObservedLease
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock

Make = Callable[..., Candidate]


def is_shut(member: Candidate) -> bool:
    try:
        member.elector.fence()
    except NotLeading:
        return True
    return False


def unreachable(_verb: str) -> None:
    raise RequestTimeout("no answer", sent=True)


def test_it_is_open_for_as_long_as_a_leader_can_be_sure(
    candidate: Make, fake_clock: FakeClock
) -> None:
    a = candidate()
    assert is_shut(a)
    a.start()
    assert a.elector.fence() == 12.0
    fake_clock.advance(1.5)
    assert a.elector.fence() == 10.5
    fake_clock.advance(0.5)
    assert a.elector.fence() == 12.0


def test_not_leading_names_the_lease_and_is_a_stop(candidate: Make) -> None:
    with pytest.raises(NotLeading, match="another process may hold lease ns/lease") as caught:
        candidate().elector.fence()
    assert caught.value.lease == "ns/lease"
    assert isinstance(caught.value, Stopped)


def test_it_is_shut_for_a_candidate_that_does_not_lead(candidate: Make) -> None:
    a, b = candidate("a"), candidate("b")
    a.start()
    b.start()
    assert is_shut(b)


@pytest.mark.rule("RT-20")
@pytest.mark.rule("RT-22")
def test_it_shuts_while_the_elector_itself_does_not_run(
    candidate: Make, fake_clock: FakeClock
) -> None:
    """As after SIGSTOP: time has passed, and the elector's thread has not had its turn."""
    frozen = StopToken(clock=fake_clock)
    a = candidate()
    a.start()
    a.lock.before = lambda _verb: frozen.wait() and None
    fake_clock.advance(11.9)
    assert not is_shut(a)
    fake_clock.advance(0.1)
    assert a.leads, "the elector has noticed; this test is about when it cannot"
    assert is_shut(a)
    fake_clock.advance(2)  # the renewal that hangs was sent 2 s after the first
    a.lock.before = None
    frozen.stop()
    fake_clock.settle()
    assert isinstance(a.outcome, LeaseLost)
    assert a.token is not None
    assert a.token.is_set()
    assert is_shut(a)


@pytest.mark.rule("LE-13")
def test_a_renewal_counts_from_when_it_was_sent(candidate: Make, fake_clock: FakeClock) -> None:
    answer = StopToken(clock=fake_clock)
    a = candidate()
    a.start()
    a.lock.before = lambda _verb: answer.wait() and None
    fake_clock.advance(5)  # 2 s until the renewal, 3 s without an answer
    answer.stop()
    fake_clock.settle()
    assert a.elector.fence() == 9.0


def test_an_answer_that_was_lost_does_not_count_when_it_is_read_later(
    candidate: Make, fake_clock: FakeClock
) -> None:
    """Others may have seen our renewal long before we read that it arrived."""
    a = candidate()
    a.start()
    a.lock.after = unreachable
    fake_clock.advance(11)
    assert a.lock.lease.record.holder_identity == "a"
    assert a.elector.fence() == 1.0


def test_reading_our_own_identity_is_not_a_renewal(
    candidate: Make, fake_clock: FakeClock, lease: Lease
) -> None:
    """A process that was started again under its old name does not know the lease's age."""
    lease.write(LeaseRecord(holder_identity="a", lease_duration_seconds=15))
    a = candidate("a")
    a.lock.before = lambda verb: unreachable(verb) if verb == "update" else None
    a.start()
    assert a.elector.is_leader()
    assert is_shut(a)
    a.lock.before = None
    fake_clock.advance(5)
    assert a.leads
    assert not is_shut(a)


def test_a_lease_whose_confirmation_comes_after_its_time_is_not_led_on(
    candidate: Make, fake_clock: FakeClock
) -> None:
    answer, late = StopToken(clock=fake_clock), StopToken(clock=fake_clock)
    a = candidate()
    a.lock.before = lambda _verb: answer.wait() and None
    a.start()
    a.lock.before = lambda verb: late.wait() and None if verb == "create" else None
    answer.stop()
    fake_clock.settle()
    fake_clock.advance(13)
    late.stop()
    fake_clock.settle()
    assert a.log == []
    assert is_shut(a)
    fake_clock.advance(5)
    assert a.log == ["started"]
    assert not is_shut(a)


@pytest.mark.rule("RT-22")
def test_a_renewal_that_is_confirmed_after_the_lease_s_time_ends_the_work_at_once(
    candidate: Make, fake_clock: FakeClock
) -> None:
    answer = StopToken(clock=fake_clock)
    a = candidate()
    a.start()
    a.lock.before = lambda _verb: answer.wait() and None
    fake_clock.advance(20)
    answer.stop()
    fake_clock.settle()
    assert not a.leads
    assert isinstance(a.outcome, LeaseLost)


def test_work_that_winds_down_may_write_until_the_lease_is_given_back(
    candidate: Make, fake_clock: FakeClock
) -> None:
    last_words = StopToken(clock=fake_clock)
    a = candidate(work=lambda _stop: last_words.wait())
    a.start()
    a.halt()
    fake_clock.advance(20)
    assert not is_shut(a)
    last_words.stop()
    fake_clock.settle()
    assert a.log[-1] == "ended"
    assert is_shut(a)


def test_work_that_exceeds_its_grace_period_cannot_write(
    candidate: Make, fake_clock: FakeClock
) -> None:
    """The lease is left to expire, and is not ours to act on while it does."""
    slow = StopToken(clock=fake_clock)
    a = candidate(work=lambda _stop: slow.wait(), work_timeout=5.0)
    a.start()
    a.halt()
    fake_clock.advance(5)
    fake_clock.settle()
    shut, holder = is_shut(a), a.lock.lease.record.holder_identity
    slow.stop()
    assert (shut, holder) == (True, "a")


def test_a_renewal_does_not_count_after_another_holder_was_seen_or_written(
    fake_clock: FakeClock,
) -> None:
    ours = LeaseRecord(holder_identity="a", lease_duration_seconds=15)

    def renewed_at(lease: ObservedLease) -> float | None:
        return lease.renewed_at

    observed = ObservedLease("a", 15.0, fake_clock)
    observed.wrote(ours, sent_at=1.0)
    observed.saw(ours)
    assert renewed_at(observed) == 1.0
    observed.saw(LeaseRecord(holder_identity="b"))
    assert renewed_at(observed) is None
    observed.wrote(ours, sent_at=2.0)
    observed.wrote(LeaseRecord(), sent_at=3.0)
    assert renewed_at(observed) is None
