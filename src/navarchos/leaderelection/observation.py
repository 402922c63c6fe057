"""What we know of the lease, and since when."""

import threading

from navarchos.clock import Clock
from navarchos.leaderelection.record import LeaseRecord

__all__ = ["Observation"]


class Observation:
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
