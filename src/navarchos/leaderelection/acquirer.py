"""Attempts on a lease: acquire it, renew it, release it; and the lease as last observed."""

import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from msgspec.structs import replace
from prometheus_client import Counter

from navarchos.client import ClientError, Conflict, NotFound
from navarchos.clock import Clock
from navarchos.leaderelection import lease
from navarchos.leaderelection.lock import Lock
from navarchos.logs import get_logger

__all__ = ["CoordinatedLeaseAcquirer", "LeaseAcquirer", "LeaseAttempt", "ObservedLease"]

_RELEASE_TRIES: Final = 10

_log = get_logger(__name__)


class ObservedLease:
    """The last observed record and the local moment at which it changed (LE-07).

    Threads: safe from any thread; one thread writes, others read.
    """

    def __init__(self, identity: str, lease_duration: float, clock: Clock) -> None:
        self._identity = identity
        self._lease_duration = lease_duration
        self._clock = clock
        self._record_lock = threading.Lock()
        self._record: lease.LeaseRecord | None = None  # guarded by _record_lock
        self._at = clock.monotonic()  # guarded by _record_lock
        self._renewed_at: float | None = None  # guarded by _record_lock; by this process
        self._given_up = False  # guarded by _record_lock; stays set with any later record

    @property
    def record(self) -> lease.LeaseRecord | None:
        """The last observed record; `None` before the first."""
        with self._record_lock:
            return self._record

    @property
    def holder(self) -> str:
        """The last observed holder; empty without a holder."""
        record = self.record
        return record.holder_identity if record is not None else ""

    @property
    def at(self) -> float:
        """The monotonic instant from which the record's duration counts."""
        with self._record_lock:
            return self._at

    @property
    def is_ours(self) -> bool:
        """Whether the last observed holder is this process, which has not given up (LE-20)."""
        with self._record_lock:
            record, given_up = self._record, self._given_up
        return record is not None and record.holder_identity == self._identity and not given_up

    @property
    def renewed_at(self) -> float | None:
        """The instant at which this process sent its last successful renewal, or `None`.

        Reading our own identity in the Lease does not count as a renewal: the record may come
        from a request whose answer was lost, and other candidates may have seen it long before.
        """
        with self._record_lock:
            return None if self._given_up else self._renewed_at

    def saw(self, record: lease.LeaseRecord) -> None:
        """Store a record that was read. The same record again changes nothing."""
        now = self._clock.monotonic()
        with self._record_lock:
            if record != self._record:
                self._record = record
                self._at = now
            if record.holder_identity != self._identity:
                self._renewed_at = None

    def wrote(self, record: lease.LeaseRecord, *, sent_at: float) -> None:
        """Store a record that was written; it counts from the moment it was sent (LE-13)."""
        with self._record_lock:
            self._record = record
            self._at = sent_at
            self._renewed_at = sent_at if record.holder_identity == self._identity else None

    def give_up(self) -> None:
        """Stop leading for good, although the record may still name this process."""
        with self._record_lock:
            self._given_up = True

    def is_valid(self) -> bool:
        """Tell whether the lease has not expired, by the duration in its record.

        For a record with a holder and without a duration, the configured duration is used: a
        lease that another program wrote that way must not be taken at once (PF-28).
        """
        with self._record_lock:
            if self._record is None:
                return False
            duration = self._record.lease_duration_seconds or self._lease_duration
            return self._clock.monotonic() < self._at + duration


class LeaseAttempt(Enum):
    """The result of an attempt."""

    HELD = auto()  # this process holds the lease and has just renewed it
    TAKEN = auto()  # another candidate holds a valid lease
    FAILED = auto()  # a request failed, or another candidate wrote first


class LeaseAcquirer:
    """Makes single attempts on one lock, without loops, threads or callbacks.

    Threads: for one thread.
    """

    def __init__(
        self,
        lock: Lock,
        timing: lease.LeaseTiming,
        observed: ObservedLease,
        clock: Clock,
        slowpath: Counter,
    ) -> None:
        self._lock = lock
        self._timing = timing
        self._observed = observed
        self._clock = clock
        self._slowpath = slowpath

    def attempt(self, *, deadline: float | None = None) -> LeaseAttempt:
        """Acquire or renew the lease (LE-08).

        Args:
            deadline: Monotonic instant at which no request may be in flight any more. `None`
                for candidates, which risk nothing by a late request.
        """
        before = self._observed.record
        if before is not None and self._observed.is_ours and self._observed.is_valid():
            # No other candidate may have changed it, so the known version is good (LE-10).
            if self._update(before, deadline):
                return LeaseAttempt.HELD
            self._slowpath.inc()
        return self._attempt_after_reading(deadline)

    def release(self) -> bool:
        """Release the lease, so that other candidates need not wait until it expires (LE-17).

        The work of the leader must have ended before.

        Returns:
            Whether this process held the lease and has released it.
        """
        deadline = self._clock.monotonic() + self._timing.renew_deadline
        for _ in range(_RELEASE_TRIES):
            try:
                current = self._lock.get(timeout=self._timeout(deadline))
                if current.holder_identity != self._lock.identity:
                    # The last observed holder does not count: between our last renewal and now
                    # another candidate may have become leader (LE-18, RT-18).
                    self._observed.saw(current)
                    return False
                released = self._released(current)
                sent_at = self._clock.monotonic()
                self._lock.update(released, timeout=self._timeout(deadline))
            except Conflict:
                continue
            except ClientError as error:
                _log.warning("lease_not_released", lease=self._lock.describe(), error=str(error))
                return False
            self._observed.wrote(released, sent_at=sent_at)
            return True
        return False

    def _attempt_after_reading(self, deadline: float | None) -> LeaseAttempt:
        try:
            current = self._lock.get(timeout=self._timeout(deadline))
        except NotFound:
            return LeaseAttempt.HELD if self._create(deadline) else LeaseAttempt.FAILED
        except ClientError as error:
            _log.warning("lease_not_read", lease=self._lock.describe(), error=str(error))
            return LeaseAttempt.FAILED
        self._observed.saw(current)
        holder = current.holder_identity
        if holder and holder != self._lock.identity and self._observed.is_valid():
            return LeaseAttempt.TAKEN
        return LeaseAttempt.HELD if self._update(current, deadline) else LeaseAttempt.FAILED

    def _create(self, deadline: float | None) -> bool:
        return self._write(self._lock.create, None, deadline)

    def _update(self, before: lease.LeaseRecord, deadline: float | None) -> bool:
        return self._write(self._lock.update, before, deadline)

    def _write(
        self, write: Callable[..., None], before: lease.LeaseRecord | None, deadline: float | None
    ) -> bool:
        record = self._record(before)
        sent_at = self._clock.monotonic()
        try:
            write(record, timeout=self._timeout(deadline))
        except ClientError as error:
            _log.warning("lease_not_written", lease=self._lock.describe(), error=str(error))
            return False
        self._observed.wrote(record, sent_at=sent_at)
        return True

    def _record(self, before: lease.LeaseRecord | None) -> lease.LeaseRecord:
        now = self._clock.now()
        return lease.renewed_record(self._lock.identity, self._timing.lease_duration, now, before)

    def _released(self, current: lease.LeaseRecord) -> lease.LeaseRecord:
        return lease.released_record(self._clock.now(), current)

    def _timeout(self, deadline: float | None) -> float:
        # A request in flight cannot be cancelled, so it must not outlast the lease (LE-13).
        limit = self._timing.request_timeout
        if deadline is None:
            return limit
        return max(0.001, min(limit, deadline - self._clock.monotonic()))


class CoordinatedLeaseAcquirer(LeaseAcquirer):
    """Makes attempts on a lock whose holder the API server names (LE-22).

    Never creates a lease and never takes one over: it renews a lease that names this process,
    while that lease is valid and the server does not prefer another candidate.

    Args:
        withdraw: Ends the candidacy. Called before the lease is released, or the server would
            elect this process again.
        rest: See `LeaseAcquirer`.
    """

    def __init__(self, withdraw: Callable[[], None], *rest: Any) -> None:
        super().__init__(*rest)
        self._withdraw = withdraw

    def attempt(self, *, deadline: float | None = None) -> LeaseAttempt:
        """Renew the lease if it names this process."""
        try:
            current = self._lock.get(timeout=self._timeout(deadline))
        except ClientError as error:
            # A lease that does not exist is not worth a warning: no leader was elected yet.
            if not isinstance(error, NotFound):
                _log.warning("lease_not_read", lease=self._lock.describe(), error=str(error))
            return LeaseAttempt.FAILED
        self._observed.saw(current)
        if not self._observed.is_valid():
            return LeaseAttempt.FAILED
        if current.holder_identity != self._lock.identity or current.preferred_holder:
            return LeaseAttempt.TAKEN
        return LeaseAttempt.HELD if self._update(current, deadline) else LeaseAttempt.FAILED

    def release(self) -> bool:
        """Withdraw, then let the lease expire: the server names the next leader in seconds."""
        self._withdraw()
        # The lease still names this process, and the fence must not open again for that.
        self._observed.give_up()
        return super().release()

    def _record(self, before: lease.LeaseRecord | None) -> lease.LeaseRecord:
        return lease.coordinated_record(super()._record(before), before)

    def _released(self, current: lease.LeaseRecord) -> lease.LeaseRecord:
        # The lease keeps its holder: Kubernetes' coordinator dereferences the holder without a
        # check, so the API server panics when a lease has no holder (1.36).
        return replace(self._record(current), lease_duration_seconds=1)
