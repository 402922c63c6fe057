"""Single attempts on the lease, without loops and threads."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest
from tests.unit.leaderelection.conftest import Candidate

from navarchos.client import Conflict, ConnectFailed, ServerError, Status
from navarchos.leaderelection import LeaseRecord
from navarchos.leaderelection.acquirer import LeaseAcquirer, LeaseAttempt
from navarchos.testing import FakeClock

Make = Callable[..., Candidate]
THEN = datetime(2020, 1, 1, tzinfo=UTC)
OTHERS = LeaseRecord(
    holder_identity="b",
    lease_duration_seconds=15,
    acquire_time=THEN,
    renew_time=THEN,
    lease_transitions=3,
)


class Desk:
    """A claim of candidate `a`, its lock and its lease."""

    def __init__(self, candidate: Candidate, clock: FakeClock) -> None:
        self.claim: LeaseAcquirer = candidate.elector._acquirer
        self.elector = candidate.elector
        self.lock = candidate.lock
        self.lease = candidate.lock.lease
        self.clock = clock
        self.candidate = candidate

    def attempt(self, *, deadline: float | None = None) -> LeaseAttempt:
        return self.claim.attempt(deadline=deadline)

    def fail_once(self, verb: str, error: Exception) -> None:
        def fail(called: str) -> None:
            if called == verb:
                self.lock.before = None
                raise error

        self.lock.before = fail


@pytest.fixture
def desk(candidate: Make, fake_clock: FakeClock) -> Desk:
    return Desk(candidate("a"), fake_clock)


@pytest.mark.rule("LE-08")
def test_a_lease_that_does_not_exist_is_created(desk: Desk) -> None:
    assert desk.attempt() is LeaseAttempt.HELD
    assert desk.lock.calls == ["get", "create"]
    assert desk.lease.record.holder_identity == "a"
    assert desk.lease.record.lease_transitions == 0


@pytest.mark.rule("LE-08")
def test_losing_the_race_to_create_is_a_failure(desk: Desk) -> None:
    desk.lock.before = lambda verb: desk.lease.write(OTHERS) if verb == "create" else None
    assert desk.attempt() is LeaseAttempt.FAILED
    assert not desk.elector.is_leader()


@pytest.mark.rule("LE-08")
@pytest.mark.parametrize("error", [ServerError(Status(code=500)), ConnectFailed("no route")])
def test_an_error_is_a_failure_and_never_raised(desk: Desk, error: Exception) -> None:
    desk.fail_once("get", error)
    assert desk.attempt() is LeaseAttempt.FAILED


@pytest.mark.rule("LE-07")
@pytest.mark.rule("PF-23")
def test_a_lease_counts_from_when_we_saw_it_change_however_old_its_times(desk: Desk) -> None:
    desk.lease.write(OTHERS)
    assert desk.attempt() is LeaseAttempt.TAKEN
    desk.clock.advance(14.9)
    assert desk.attempt() is LeaseAttempt.TAKEN
    desk.clock.advance(0.1)
    assert desk.attempt() is LeaseAttempt.HELD
    assert desk.lease.record.lease_transitions == 4


@pytest.mark.rule("LE-07")
def test_each_renewal_of_another_candidate_restarts_the_wait(desk: Desk) -> None:
    for second in range(3):
        renewed = msgspec.structs.replace(OTHERS, renew_time=THEN.replace(second=second))
        desk.lease.write(renewed)
        assert desk.attempt() is LeaseAttempt.TAKEN
        desk.clock.advance(14)
    desk.clock.advance(1)
    assert desk.attempt() is LeaseAttempt.HELD


@pytest.mark.rule("LE-07")
def test_the_holders_duration_counts_and_not_ours(desk: Desk) -> None:
    desk.lease.write(msgspec.structs.replace(OTHERS, lease_duration_seconds=60))
    desk.attempt()
    desk.clock.advance(59)
    assert desk.attempt() is LeaseAttempt.TAKEN
    desk.clock.advance(1)
    assert desk.attempt() is LeaseAttempt.HELD


@pytest.mark.rule("PF-28")
def test_a_lease_that_names_a_holder_and_nothing_else_is_not_stolen(desk: Desk) -> None:
    desk.lease.write(LeaseRecord(holder_identity="b"))
    assert desk.attempt() is LeaseAttempt.TAKEN
    desk.clock.advance(15)
    assert desk.attempt() is LeaseAttempt.HELD


@pytest.mark.rule("LE-08")
def test_a_lease_without_holder_may_be_taken_at_once(desk: Desk) -> None:
    desk.lease.write(msgspec.structs.replace(OTHERS, holder_identity=""))
    assert desk.attempt() is LeaseAttempt.HELD
    assert desk.lease.record.lease_transitions == 4


@pytest.mark.rule("LE-09")
def test_our_own_lease_of_a_former_life_is_renewed(desk: Desk) -> None:
    desk.lease.write(msgspec.structs.replace(OTHERS, holder_identity="a"))
    assert desk.attempt() is LeaseAttempt.HELD
    assert desk.lease.record.acquire_time == THEN
    assert desk.lease.record.lease_transitions == 3


@pytest.mark.rule("LE-10")
@pytest.mark.rule("PF-26")
def test_a_leader_renews_without_reading(desk: Desk) -> None:
    for _ in range(3):
        assert desk.attempt() is LeaseAttempt.HELD
    assert desk.lock.calls == ["get", "create", "update", "update"]
    assert desk.candidate.metric("leader_election_slowpath_total") == 0


@pytest.mark.rule("LE-10")
def test_a_renewal_that_fails_reads_and_tries_again_at_once(desk: Desk) -> None:
    desk.attempt()
    desk.attempt()
    desk.fail_once("update", Conflict(Status(code=409)))
    assert desk.attempt() is LeaseAttempt.HELD
    assert desk.attempt() is LeaseAttempt.HELD
    assert desk.lock.calls == ["get", "create", "update", "update", "get", "update", "update"]
    assert desk.candidate.metric("leader_election_slowpath_total") == 1


@pytest.mark.rule("LE-10")
def test_a_leader_whose_lease_has_run_out_reads_first(desk: Desk) -> None:
    desk.attempt()
    desk.clock.advance(15)
    desk.attempt()
    assert desk.lock.calls == ["get", "create", "get", "update"]


@pytest.mark.rule("LE-12")
def test_a_leader_sees_that_another_has_taken_over(desk: Desk) -> None:
    desk.attempt()
    desk.lease.write(OTHERS)
    assert desk.attempt() is LeaseAttempt.TAKEN
    assert not desk.elector.is_leader()
    assert desk.elector.get_leader() == "b"


@pytest.mark.rule("LE-13")
@pytest.mark.rule("LE-06")
def test_a_request_ends_before_the_deadline_does(desk: Desk) -> None:
    now = desk.clock.monotonic()
    desk.attempt()
    desk.attempt(deadline=now + 100)
    desk.attempt(deadline=now + 3)
    assert desk.lock.timeouts == [5, 5, 5, 3]


@pytest.mark.rule("LE-13")
def test_a_renewal_counts_from_the_moment_it_was_sent(desk: Desk) -> None:
    desk.attempt()
    sent_at = desk.clock.monotonic()
    desk.lock.before = lambda _verb: desk.clock.advance(4)
    desk.attempt()
    assert desk.elector._observed.at == sent_at


@pytest.mark.rule("LE-17")
def test_a_released_lease_is_free_at_once(desk: Desk) -> None:
    desk.attempt()
    transitions = desk.lease.record.lease_transitions
    assert desk.claim.release()
    assert desk.lease.record.holder_identity == ""
    assert desk.lease.record.lease_duration_seconds == 1
    assert desk.lease.record.lease_transitions == transitions
    assert not desk.elector.is_leader()


@pytest.mark.rule("LE-17")
def test_a_release_reads_before_it_writes_and_repeats_on_conflict(desk: Desk) -> None:
    desk.attempt()
    desk.lock.calls.clear()
    desk.fail_once("update", Conflict(Status(code=409)))
    assert desk.claim.release()
    assert desk.lock.calls == ["get", "update", "get", "update"]


@pytest.mark.rule("LE-18")
@pytest.mark.rule("RT-18")
def test_a_release_never_blanks_the_lease_of_a_successor(desk: Desk) -> None:
    """The observed record still names this process; the one on the server does not."""
    desk.attempt()
    desk.lease.write(OTHERS)
    assert desk.elector.is_leader()
    assert not desk.claim.release()
    assert desk.lease.record == OTHERS


@pytest.mark.rule("LE-17")
def test_a_lease_that_is_gone_cannot_be_released(desk: Desk) -> None:
    desk.attempt()
    desk.lease.stored = None
    assert not desk.claim.release()


@pytest.mark.rule("LE-17")
def test_a_release_that_fails_is_not_raised(desk: Desk) -> None:
    desk.attempt()
    desk.fail_once("update", ConnectFailed("no route"))
    assert not desk.claim.release()


@pytest.mark.rule("LE-17")
def test_a_release_that_always_conflicts_ends(desk: Desk) -> None:
    desk.attempt()
    desk.lock.before = lambda verb: (
        desk.lease.write(desk.lease.record) if verb == "update" else None
    )
    assert not desk.claim.release()
