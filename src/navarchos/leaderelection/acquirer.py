"""One attempt on the lease: take it, keep it, or give it back."""

import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from msgspec.structs import replace
from prometheus_client import Counter

from navarchos.client import ClientError, Conflict, NotFound
from navarchos.clock import Clock
from navarchos.leaderelection.lease import (
    LeaseRecord,
    LeaseTiming,
    coordinated_record,
    released_record,
    renewed_record,
)
from navarchos.leaderelection.lock import Lock
from navarchos.logs import get_logger

__all__ = ["CoordinatedLeaseAcquirer", "LeaseAcquirer", "LeaseAttempt", "ObservedLease"]

_RELEASE_TRIES: Final = 10

_log = get_logger(__name__)


class ObservedLease:
    """The record seen last and the local moment at which it changed (LE-07).

    Threads: safe from any thread; one writes, many read.
    """

    def __init__(self, identity: str, lease_duration: float, clock: Clock) -> None:
        self._identity = identity
        self._lease_duration = lease_duration
        self._clock = clock
        self._record_lock = threading.Lock()
        self._record: LeaseRecord | None = None  # guarded by _record_lock
        self._at = clock.monotonic()  # guarded by _record_lock
        self._renewed_at: float | None = None  # guarded by _record_lock; by us, in this life
        self._given_up = False  # guarded by _record_lock; we lead no more, whatever it says

    @property
    def record(self) -> LeaseRecord | None:
        """The record seen last; `None` before the first."""
        with self._record_lock:
            return self._record

    @property
    def holder(self) -> str:
        """The holder seen last; empty if there was none."""
        record = self.record
        return record.holder_identity if record is not None else ""

    @property
    def at(self) -> float:
        """The monotonic instant from which the record counts."""
        with self._record_lock:
            return self._at

    @property
    def is_ours(self) -> bool:
        """Whether the holder seen last is us, and we have not given up (LE-20)."""
        with self._record_lock:
            record, given_up = self._record, self._given_up
        return record is not None and record.holder_identity == self._identity and not given_up

    @property
    def renewed_at(self) -> float | None:
        """The instant at which we sent the renewal that counts; `None` if none does.

        Not the instant at which we read our own name: what we wrote in a request
        whose answer was lost may have been seen by others long before.
        """
        with self._record_lock:
            return None if self._given_up else self._renewed_at

    def see(self, record: LeaseRecord) -> None:
        """Take in what was read. The same record again changes nothing."""
        now = self._clock.monotonic()
        with self._record_lock:
            if record != self._record:
                self._record = record
                self._at = now
            if record.holder_identity != self._identity:
                self._renewed_at = None

    def wrote(self, record: LeaseRecord, *, sent_at: float) -> None:
        """Take in what we wrote; it counts from the moment it was sent (LE-13)."""
        with self._record_lock:
            self._record = record
            self._at = sent_at
            self._renewed_at = sent_at if record.holder_identity == self._identity else None

    def give_up(self) -> None:
        """We lead no more, although the record may still name us."""
        with self._record_lock:
            self._given_up = True

    def is_valid(self) -> bool:
        """Tell whether the lease is still its holder's, by the holder's own duration.

        A record that names a holder and no duration gets ours: a lease that
        somebody else's program wrote is not ours to steal (PF-28).
        """
        with self._record_lock:
            if self._record is None:
                return False
            duration = self._record.lease_duration_seconds or self._lease_duration
            return self._clock.monotonic() < self._at + duration


class LeaseAttempt(Enum):
    """How an attempt ended."""

    HELD = auto()  # the lease is ours, renewed just now
    TAKEN = auto()  # somebody else holds it, validly
    FAILED = auto()  # we could not find out, or lost a race


class LeaseAcquirer:
    """Attempts on one lock. Knows no loops, threads or callbacks.

    Threads: owned by one.
    """

    def __init__(
        self,
        lock: Lock,
        timing: LeaseTiming,
        observation: ObservedLease,
        clock: Clock,
        slowpath: Counter,
    ) -> None:
        self._lock = lock
        self._timing = timing
        self._observed = observation
        self._clock = clock
        self._slowpath = slowpath

    def attempt(self, *, deadline: float | None = None) -> LeaseAttempt:
        """Take the lease, or renew it (LE-08).

        Args:
            deadline: Monotonic instant at which no request may be under way any
                more; `None` for candidates, who risk nothing.
        """
        before = self._observed.record
        if before is not None and self._observed.is_ours and self._observed.is_valid():
            # Nobody may have changed it, so the version we know is good (LE-10).
            if self._update(before, deadline):
                return LeaseAttempt.HELD
            self._slowpath.inc()
        return self._attempt_after_reading(deadline)

    def release(self) -> bool:
        """Give the lease back, so that others need not wait for its end (LE-17).

        All guarded work must have ended. Returns whether it was given back.
        """
        deadline = self._clock.monotonic() + self._timing.renew_deadline
        for _ in range(_RELEASE_TRIES):
            try:
                current = self._lock.get(timeout=self._timeout(deadline))
                if current.holder_identity != self._lock.identity:
                    # What we remember does not count: between our last renewal and
                    # now somebody may have begun to lead (LE-18, RT-18).
                    self._observed.see(current)
                    return False
                given_back = self._released(current)
                sent_at = self._clock.monotonic()
                self._lock.update(given_back, timeout=self._timeout(deadline))
            except Conflict:
                continue
            except ClientError as error:
                _log.warning("lease_not_released", lease=self._lock.describe(), error=str(error))
                return False
            self._observed.wrote(given_back, sent_at=sent_at)
            return True
        return False

    def _attempt_after_reading(self, deadline: float | None) -> LeaseAttempt:
        try:
            current = self._lock.get(timeout=self._timeout(deadline))
        except NotFound:
            return LeaseAttempt.HELD if self._create(deadline) else LeaseAttempt.FAILED
        except ClientError as error:
            self._failed("lease_not_read", error)
            return LeaseAttempt.FAILED
        self._observed.see(current)
        holder = current.holder_identity
        if holder and holder != self._lock.identity and self._observed.is_valid():
            return LeaseAttempt.TAKEN
        return LeaseAttempt.HELD if self._update(current, deadline) else LeaseAttempt.FAILED

    def _create(self, deadline: float | None) -> bool:
        return self._write(self._lock.create, None, deadline)

    def _update(self, before: LeaseRecord, deadline: float | None) -> bool:
        return self._write(self._lock.update, before, deadline)

    def _write(
        self, write: Callable[..., None], before: LeaseRecord | None, deadline: float | None
    ) -> bool:
        record = self._record(before)
        sent_at = self._clock.monotonic()
        try:
            write(record, timeout=self._timeout(deadline))
        except ClientError as error:
            self._failed("lease_not_written", error)
            return False
        self._observed.wrote(record, sent_at=sent_at)
        return True

    def _record(self, before: LeaseRecord | None) -> LeaseRecord:
        return renewed_record(
            self._lock.identity, self._timing.lease_duration, self._clock.now(), before
        )

    def _released(self, current: LeaseRecord) -> LeaseRecord:
        return released_record(self._clock.now(), current)

    def _timeout(self, deadline: float | None) -> float:
        """A running request cannot be cancelled, so it must not outlive us (LE-13)."""
        limit = self._timing.request_timeout
        if deadline is None:
            return limit
        return max(0.001, min(limit, deadline - self._clock.monotonic()))

    def _failed(self, event: str, error: ClientError) -> None:
        _log.warning(event, lease=self._lock.describe(), error=str(error))


class CoordinatedLeaseAcquirer(LeaseAcquirer):
    """Attempts on a lock whose holder somebody else names: the API server (LE-22).

    Never creates a lease and never takes one: it keeps what names us, while it is valid
    and nobody is preferred to us.

    Args:
        withdraw: Ends our candidacy. Called before the lease is given back, or we would
            be elected again.
        rest: See `LeaseAcquirer`.
    """

    def __init__(self, withdraw: Callable[[], None], *rest: Any) -> None:
        super().__init__(*rest)
        self._withdraw = withdraw

    def attempt(self, *, deadline: float | None = None) -> LeaseAttempt:
        """Keep the lease if it is ours."""
        try:
            current = self._lock.get(timeout=self._timeout(deadline))
        except ClientError as error:
            # One that does not exist is nothing to tell: nobody was elected yet.
            if not isinstance(error, NotFound):
                self._failed("lease_not_read", error)
            return LeaseAttempt.FAILED
        self._observed.see(current)
        if not self._observed.is_valid():
            return LeaseAttempt.FAILED
        if current.holder_identity != self._lock.identity or current.preferred_holder:
            return LeaseAttempt.TAKEN
        return LeaseAttempt.HELD if self._update(current, deadline) else LeaseAttempt.FAILED

    def release(self) -> bool:
        """Withdraw, then let the lease end: the server names the next one within seconds."""
        self._withdraw()
        # The lease goes on to name us, and the fence must not open again for that.
        self._observed.give_up()
        return super().release()

    def _record(self, before: LeaseRecord | None) -> LeaseRecord:
        return coordinated_record(super()._record(before), before)

    def _released(self, current: LeaseRecord) -> LeaseRecord:
        # It goes on to name us: Kubernetes' coordinator follows the holder of a lease
        # without looking whether there is one, and the API server dies of that (1.36).
        return replace(self._record(current), lease_duration_seconds=1)
