"""Electors over a lease in memory, in virtual time."""

import threading
from collections.abc import Callable

import msgspec
import pytest
import structlog
from tests.unit.leaderelection.conftest import Candidate, Lease

from navarchos.client import ConnectFailed
from navarchos.errors import AlreadyStarted, ThreadCrashed
from navarchos.leaderelection import HEALTH_CHECK, LeaseLost, LeaseNotRenewed
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock

Make = Callable[..., Candidate]


def unreachable(verb: str) -> None:
    raise ConnectFailed("no route to host")


def taken_by_b(lease: Lease) -> None:
    lease.write(msgspec.structs.replace(lease.record, holder_identity="b"))


def test_a_candidate_leads_and_keeps_the_lease(candidate: Make, fake_clock: FakeClock) -> None:
    a = candidate()
    a.start()
    assert a.leads
    assert a.elector.is_leader()
    fake_clock.advance(60)
    assert a.leads
    assert a.lock.calls == ["get", "create"] + ["update"] * 30


@pytest.mark.rule("LE-11")
@pytest.mark.rule("PF-25")
def test_a_candidate_tries_at_once_and_then_with_jitter(
    candidate: Make, fake_clock: FakeClock
) -> None:
    """The random number is 0.5, so each pause is 2 + 0.5 * 1.2 * 2 seconds."""
    candidate("a").start()
    b = candidate("b")
    b.start()
    assert b.lock.calls == ["get"]
    fake_clock.advance(3.1)
    assert b.lock.calls == ["get"]
    fake_clock.advance(0.2)
    assert b.lock.calls == ["get", "get"]
    assert not b.leads


@pytest.mark.rule("LE-14")
@pytest.mark.rule("LE-17")
@pytest.mark.rule("PF-20")
def test_after_a_stop_the_work_ends_the_lease_is_free_and_another_leads(
    candidate: Make, fake_clock: FakeClock, lease: Lease
) -> None:
    a, b = candidate("a"), candidate("b")
    a.start()
    b.start()
    a.halt()
    assert a.log == ["started", "worked", "stopped", "ended"]
    assert a.outcome is None
    assert lease.record.holder_identity == ""
    fake_clock.advance(3.3)
    fake_clock.settle()
    assert b.leads
    assert lease.record.lease_transitions == 1


@pytest.mark.rule("LE-17")
def test_without_release_the_lease_is_left_to_expire(
    candidate: Make, fake_clock: FakeClock, lease: Lease
) -> None:
    a, b = candidate("a", release=False), candidate("b")
    a.start()
    b.start()
    a.halt()
    assert lease.record.holder_identity == "a"
    fake_clock.advance(10)
    assert not b.leads
    fake_clock.advance(15)
    assert b.leads


@pytest.mark.rule("LE-17")
def test_the_lease_is_renewed_while_the_work_winds_down(
    candidate: Make, fake_clock: FakeClock, lease: Lease
) -> None:
    slow = StopToken(clock=fake_clock)
    a, b = candidate("a", work=lambda _stop: slow.wait()), candidate("b")
    a.start()
    b.start()
    a.halt()
    fake_clock.advance(25)
    assert not b.leads
    assert lease.record.holder_identity == "a"
    slow.stop()
    fake_clock.settle()
    assert lease.record.holder_identity == ""
    assert a.log == ["started", "worked", "stopped", "ended"]


@pytest.mark.rule("LE-17")
def test_a_lease_is_not_given_back_under_work_that_does_not_end(
    candidate: Make, fake_clock: FakeClock, lease: Lease
) -> None:
    slow = StopToken(clock=fake_clock)
    a = candidate("a", work=lambda _stop: slow.wait(), work_timeout=5.0)
    a.start()
    a.halt()
    fake_clock.advance(6)
    fake_clock.settle()
    assert a.log == ["started", "stopped", "ended"]
    assert lease.record.holder_identity == "a"
    assert not a.elector.is_leader()
    assert not a.elector.join(0)
    slow.stop()
    assert a.elector.join(30)


@pytest.mark.rule("LE-12")
@pytest.mark.rule("LE-13")
def test_a_leader_that_cannot_renew_stops_before_another_may_begin(
    candidate: Make, fake_clock: FakeClock
) -> None:
    a = candidate()
    a.start()
    a.lock.before = unreachable
    fake_clock.advance(11.9)
    assert a.leads
    fake_clock.advance(0.1)
    fake_clock.settle()
    assert isinstance(a.outcome, LeaseLost)
    assert a.token is not None
    assert a.token.is_set()
    assert "could not be renewed" in str(a.outcome)


@pytest.mark.rule("LE-13")
@pytest.mark.rule("PF-24")
@pytest.mark.rule("RT-21")
def test_a_request_that_hangs_does_not_outlive_the_lease(
    candidate: Make, fake_clock: FakeClock
) -> None:
    a = candidate()
    a.start()
    a.lock.hangs = True
    fake_clock.advance(12)
    fake_clock.settle()
    assert not a.leads
    assert isinstance(a.outcome, LeaseLost)


@pytest.mark.rule("LE-12")
def test_a_leader_that_recovers_in_time_keeps_leading(
    candidate: Make, fake_clock: FakeClock
) -> None:
    a = candidate()
    a.start()
    for _ in range(5):
        a.lock.before = unreachable
        fake_clock.advance(7)
        a.lock.before = None
        fake_clock.advance(6)
    assert a.leads


@pytest.mark.rule("LE-12")
def test_a_leader_that_sees_another_holder_gives_up_at_once(
    candidate: Make, fake_clock: FakeClock, lease: Lease
) -> None:
    a = candidate()
    a.start()
    taken_by_b(lease)
    fake_clock.advance(2)
    fake_clock.settle()
    assert not a.leads
    assert isinstance(a.outcome, LeaseLost)
    assert (a.outcome.lease, a.outcome.identity, a.outcome.holder) == ("ns/lease", "a", "b")
    assert lease.record.holder_identity == "b"


@pytest.mark.rule("RT-20")
@pytest.mark.rule("LE-15")
def test_when_the_lease_is_lost_the_work_is_stopped_first(
    candidate: Make, fake_clock: FakeClock, lease: Lease
) -> None:
    a = candidate()
    a.start()
    taken_by_b(lease)
    fake_clock.advance(2)
    fake_clock.settle()
    assert sorted(a.log) == ["ended", "started", "stopped", "worked"]
    assert a.token is not None
    assert a.token.reason == "no longer leading"


@pytest.mark.rule("LE-15")
def test_the_end_is_reported_once_even_if_the_process_never_led(
    candidate: Make, fake_clock: FakeClock
) -> None:
    candidate("a").start()
    b = candidate("b")
    b.start()
    b.halt()
    assert b.log == ["stopped", "ended"]


def test_a_candidate_that_is_stopped_before_it_begins_asks_for_nothing(candidate: Make) -> None:
    a = candidate()
    a.stop.stop()
    a.start()
    assert a.lock.calls == []
    assert a.log == ["stopped", "ended"]


@pytest.mark.rule("RT-29")
def test_a_lease_acquired_while_stopping_starts_no_work(candidate: Make, lease: Lease) -> None:
    a = candidate()
    a.lock.before = lambda verb: a.stop.stop() if verb == "create" else None
    a.start()
    assert a.log == ["stopped", "ended"]
    assert lease.record.holder_identity == ""


@pytest.mark.rule("LE-15")
@pytest.mark.rule("PF-22")
def test_an_error_of_any_kind_still_stops_the_work(candidate: Make, fake_clock: FakeClock) -> None:
    def broken(verb: str) -> None:
        raise RuntimeError("a fault in the lock")

    a = candidate()
    a.start()
    a.lock.before = broken
    fake_clock.advance(2)
    fake_clock.settle()
    assert isinstance(a.outcome, RuntimeError)
    assert not a.leads
    assert a.log.count("stopped") == 1
    assert a.metric("leader_election_master_status") == 0


@pytest.mark.rule("LE-14")
def test_work_that_fails_ends_leadership_in_order(candidate: Make, lease: Lease) -> None:
    def fail(_stop: StopToken) -> None:
        raise ValueError("no")

    a = candidate(work=fail)
    a.start()
    assert isinstance(a.outcome, ThreadCrashed)
    assert isinstance(a.outcome.__cause__, ValueError)
    assert lease.record.holder_identity == ""


@pytest.mark.rule("LE-14")
def test_work_that_returns_leaves_us_leading(candidate: Make, fake_clock: FakeClock) -> None:
    a = candidate(work=lambda _stop: None)
    a.start()
    fake_clock.advance(30)
    assert a.elector.is_leader()
    a.halt()
    assert a.log == ["started", "worked", "stopped", "ended"]


@pytest.mark.rule("LE-16")
def test_new_leaders_are_reported_once_each_and_in_order(
    candidate: Make, fake_clock: FakeClock
) -> None:
    a, b = candidate("a"), candidate("b")
    a.start()
    b.start()
    fake_clock.advance(20)
    a.halt()
    fake_clock.advance(10)
    fake_clock.settle()
    assert a.leaders == ["a"]
    assert b.leaders == ["a", "b"]


@pytest.mark.rule("LE-16")
def test_a_listener_that_waits_or_fails_does_not_hold_up_the_election(
    candidate: Make, fake_clock: FakeClock
) -> None:
    def fail(_holder: str) -> None:
        raise ValueError("no")

    a = candidate("a", on_new_leader=fail)
    a.start()
    fake_clock.advance(30)
    assert a.leads


@pytest.mark.rule("LE-16")
def test_without_a_callback_for_new_leaders_no_thread_waits_for_them(
    candidate: Make, fake_clock: FakeClock
) -> None:
    a = candidate("a", reports=False)
    with structlog.testing.capture_logs() as logs:
        a.start()
        fake_clock.advance(30)
    assert a.leads
    assert "thread_crashed" not in [line["event"] for line in logs]
    assert not [t.name for t in threading.enumerate() if "leader-changes" in t.name]


@pytest.mark.rule("LE-20")
def test_every_candidate_knows_the_leader(candidate: Make) -> None:
    a, b = candidate("a"), candidate("b")
    assert (a.elector.is_leader(), a.elector.get_leader()) == (False, "")
    a.start()
    b.start()
    assert (a.elector.is_leader(), a.elector.get_leader()) == (True, "a")
    assert (b.elector.is_leader(), b.elector.get_leader()) == (False, "a")


@pytest.mark.rule("LE-20")
def test_no_candidate_leads_after_its_end(candidate: Make, fake_clock: FakeClock) -> None:
    a = candidate(release=False)
    a.start()
    a.halt()
    assert not a.elector.is_leader()


@pytest.mark.rule("LE-19")
def test_a_leader_with_an_expired_lease_is_unhealthy(
    candidate: Make, fake_clock: FakeClock
) -> None:
    a = candidate()
    a.elector.check()
    a.elector._acquirer.attempt()
    a.elector.check()
    fake_clock.advance(15)
    a.elector.check()
    fake_clock.advance(1)
    with pytest.raises(LeaseNotRenewed, match="16 s"):
        a.elector.check()
    a.elector.check(tolerance=1.0)
    assert HEALTH_CHECK == "leaderElection"


@pytest.mark.rule("LE-19")
def test_a_candidate_that_does_not_lead_is_healthy(candidate: Make, fake_clock: FakeClock) -> None:
    candidate("a").start()
    b = candidate("b")
    b.start()
    fake_clock.advance(100)
    b.elector.check()


@pytest.mark.rule("MT-06")
@pytest.mark.rule("RT-19")
def test_the_gauge_is_one_only_while_leading(
    candidate: Make, fake_clock: FakeClock, lease: Lease
) -> None:
    gauge = "leader_election_master_status"
    a, b = candidate("a"), candidate("b")
    assert a.metric(gauge) == 0
    a.start()
    b.start()
    assert (a.metric(gauge), b.metric(gauge)) == (1, 0)
    a.halt()
    assert a.metric(gauge) == 0
    fake_clock.advance(5)
    assert b.metric(gauge) == 1
    taken_by_b(lease)
    lease.write(msgspec.structs.replace(lease.record, holder_identity="c"))
    fake_clock.advance(5)
    fake_clock.settle()
    assert b.metric(gauge) == 0
    assert b.metric("leader_election_slowpath_total") == 1


@pytest.mark.rule("LE-21")
def test_events_are_recorded_when_leadership_starts_and_ends(candidate: Make) -> None:
    a = candidate("a")
    a.start()
    a.halt()
    assert a.lock.events == ["a became leader", "a stopped leading"]


def test_an_elector_runs_once(candidate: Make) -> None:
    a = candidate()
    a.start()
    with pytest.raises(AlreadyStarted):
        a.elector.run(StopToken())


@pytest.mark.rule("LE-07")
def test_never_two_leaders_when_any_candidate_is_cut_off(
    candidate: Make, fake_clock: FakeClock
) -> None:
    """Contract 5: nothing acts as leader after its lease could be another's."""
    candidates = [candidate(name) for name in ("a", "b", "c")]
    for each in candidates:
        each.start()
    for second in range(120):
        for number, each in enumerate(candidates):
            cut_off = (second // 13) % 3 == number
            each.lock.before = unreachable if cut_off else None
        fake_clock.advance(1)
        fake_clock.settle()
        assert sum(each.leads for each in candidates) <= 1
    # Each was cut off for longer than the renew deadline, and raised LeaseLost.
    assert any(isinstance(each.outcome, LeaseLost) for each in candidates)


@pytest.mark.rule("OP-63")
def test_a_candidate_tries_a_released_lease_at_once(candidate: Make, fake_clock: FakeClock) -> None:
    a, b = candidate("a"), candidate("b")
    a.start()
    b.start()
    b.elector.try_now()
    fake_clock.settle()
    assert a.leads
    assert not b.leads
    a.halt()
    assert not b.leads
    b.elector.try_now()
    fake_clock.settle()
    assert b.leads


def test_notifier_of_a_free_lease_means_nothing_to_its_holder(
    candidate: Make, fake_clock: FakeClock
) -> None:
    a = candidate("a")
    a.start()
    calls = len(a.lock.calls)
    a.elector.try_now()
    fake_clock.settle()
    assert len(a.lock.calls) == calls
