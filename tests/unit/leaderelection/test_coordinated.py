"""Attempts on a lease whose holder the API server names."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.leaderelection.conftest import Candidate

from navarchos.client import Conflict, Status
from navarchos.errors import ConfigError
from navarchos.leaderelection import Coordination, LeaseRecord, NotLeading
from navarchos.leaderelection.acquirer import CoordinatedLeaseAcquirer, LeaseAttempt
from navarchos.leaderelection.candidacy import candidate_identity
from navarchos.testing import FakeClock

THEN = datetime(2020, 1, 1, tzinfo=UTC)


def named(holder: str, **more: Any) -> LeaseRecord:
    """Return what the server writes when it names a leader: it leaves out since when."""
    return LeaseRecord(
        holder_identity=holder,
        lease_duration_seconds=5,
        renew_time=THEN,
        strategy="OldestEmulationVersion",
        **more,
    )


class Desk:
    """A coordinated claim of candidate `a`, its lock and its lease."""

    def __init__(self, candidate: Candidate, clock: FakeClock) -> None:
        elector = self.elector = candidate.elector
        self.lock = candidate.lock
        self.lease = candidate.lock.lease
        self.withdrawn: list[int] = []
        self.claim = CoordinatedLeaseAcquirer(
            lambda: self.withdrawn.append(len(self.lock.calls)),
            *(self.lock, elector._timing, elector._observed, clock, elector._slowpath),
        )


@pytest.fixture
def desk(candidate: Callable[..., Candidate], fake_clock: FakeClock) -> Desk:
    return Desk(candidate("a"), fake_clock)


@pytest.mark.rule("LE-22")
def test_a_lease_that_does_not_exist_is_not_created(desk: Desk) -> None:
    assert desk.claim.attempt() is LeaseAttempt.FAILED
    assert desk.lock.calls == ["get"]


@pytest.mark.rule("LE-22")
@pytest.mark.parametrize("holder", ["", "b"])
def test_a_lease_that_does_not_name_us_is_never_taken_expired_or_not(
    desk: Desk, fake_clock: FakeClock, holder: str
) -> None:
    desk.lease.write(named(holder))
    for seconds in (0, 60):
        fake_clock.advance(seconds)
        assert desk.claim.attempt() is not LeaseAttempt.HELD
    assert desk.lock.calls == ["get", "get"]


@pytest.mark.rule("LE-22")
def test_the_named_candidate_holds_the_lease_after_its_first_renewal(desk: Desk) -> None:
    desk.lease.write(named("a", lease_transitions=4))
    assert desk.claim.attempt() is LeaseAttempt.HELD
    record = desk.lease.record
    assert (record.holder_identity, record.lease_duration_seconds) == ("a", 15)
    assert (record.strategy, record.lease_transitions) == ("OldestEmulationVersion", 4)
    assert record.acquire_time is not None
    assert desk.claim.attempt() is LeaseAttempt.HELD
    assert desk.lease.record.acquire_time == record.acquire_time


@pytest.mark.rule("LE-22")
def test_an_expired_lease_is_not_renewed_though_it_names_us(
    desk: Desk, fake_clock: FakeClock
) -> None:
    desk.lease.write(named("a"))

    def fail(verb: str) -> None:
        if verb == "update":
            raise Conflict(Status(code=409))

    desk.lock.before = fail
    assert desk.claim.attempt() is LeaseAttempt.FAILED
    desk.lock.before = None
    fake_clock.advance(5.1)
    assert desk.claim.attempt() is LeaseAttempt.FAILED
    assert desk.lock.calls == ["get", "update", "get"]


@pytest.mark.rule("LE-22")
def test_a_lease_with_another_preferred_holder_is_not_renewed(desk: Desk) -> None:
    desk.lease.write(named("a"))
    assert desk.claim.attempt() is LeaseAttempt.HELD
    desk.lease.write(named("a", preferred_holder="b"))
    assert desk.claim.attempt() is LeaseAttempt.TAKEN
    assert desk.lock.calls == ["get", "update", "get"]


@pytest.mark.rule("LE-22")
def test_the_candidacy_is_withdrawn_before_the_lease_is_released(desk: Desk) -> None:
    desk.lease.write(named("a"))
    assert desk.claim.attempt() is LeaseAttempt.HELD
    calls = len(desk.lock.calls)
    assert desk.claim.release()
    assert desk.withdrawn == [calls]
    # A lease without a holder makes the API server of Kubernetes 1.36 panic.
    assert desk.lease.record.holder_identity == "a"
    assert desk.lease.record.lease_duration_seconds == 1
    with pytest.raises(NotLeading):
        desk.elector.fence()


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "latest"])
def test_a_version_that_the_server_would_refuse_is_refused_here(version: str) -> None:
    with pytest.raises(ConfigError, match="semantic version"):
        Coordination(version)
    if version:
        with pytest.raises(ConfigError, match="emulation_version"):
            Coordination("1.2.3", version)


def test_an_identity_is_a_name_that_an_object_may_have() -> None:
    name = candidate_identity()
    assert name == name.lower()
    assert "_" not in name
    assert name != candidate_identity()
