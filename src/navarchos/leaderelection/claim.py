"""One attempt on the lease: take it, keep it, or give it back."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from msgspec.structs import replace
from prometheus_client import Counter

from navarchos.client import ClientError, Conflict, NotFound
from navarchos.clock import Clock
from navarchos.leaderelection.lock import Lock
from navarchos.leaderelection.observation import Observation
from navarchos.leaderelection.record import LeaseRecord, coordinated, ours, released
from navarchos.leaderelection.timing import Timing
from navarchos.logs import get_logger

__all__ = ["Attempt", "Claim", "CoordinatedClaim"]

_RELEASE_TRIES: Final = 10

_log = get_logger(__name__)


class Attempt(Enum):
    """How an attempt ended."""

    HELD = auto()  # the lease is ours, renewed just now
    TAKEN = auto()  # somebody else holds it, validly
    FAILED = auto()  # we could not find out, or lost a race


class Claim:
    """Attempts on one lock. Knows no loops, threads or callbacks.

    Threads: owned by one.
    """

    def __init__(
        self, lock: Lock, timing: Timing, observation: Observation, clock: Clock, slowpath: Counter
    ) -> None:
        self._lock = lock
        self._timing = timing
        self._observation = observation
        self._clock = clock
        self._slowpath = slowpath

    def attempt(self, *, deadline: float | None = None) -> Attempt:
        """Take the lease, or renew it (LE-08).

        Args:
            deadline: Monotonic instant at which no request may be under way any
                more; `None` for candidates, who risk nothing.
        """
        before = self._observation.record
        if before is not None and self._observation.is_ours and self._observation.is_valid():
            # Nobody may have changed it, so the version we know is good (LE-10).
            if self._update(before, deadline):
                return Attempt.HELD
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
                    self._observation.see(current)
                    return False
                given_back = self._released(current)
                sent_at = self._clock.monotonic()
                self._lock.update(given_back, timeout=self._timeout(deadline))
            except Conflict:
                continue
            except ClientError as error:
                _log.warning("lease_not_released", lease=self._lock.describe(), error=str(error))
                return False
            self._observation.wrote(given_back, sent_at=sent_at)
            return True
        return False

    def _attempt_after_reading(self, deadline: float | None) -> Attempt:
        try:
            current = self._lock.get(timeout=self._timeout(deadline))
        except NotFound:
            return Attempt.HELD if self._create(deadline) else Attempt.FAILED
        except ClientError as error:
            self._failed("lease_not_read", error)
            return Attempt.FAILED
        self._observation.see(current)
        holder = current.holder_identity
        if holder and holder != self._lock.identity and self._observation.is_valid():
            return Attempt.TAKEN
        return Attempt.HELD if self._update(current, deadline) else Attempt.FAILED

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
        self._observation.wrote(record, sent_at=sent_at)
        return True

    def _record(self, before: LeaseRecord | None) -> LeaseRecord:
        return ours(self._lock.identity, self._timing.lease_duration, self._clock.now(), before)

    def _released(self, current: LeaseRecord) -> LeaseRecord:
        return released(self._clock.now(), current)

    def _timeout(self, deadline: float | None) -> float:
        """A running request cannot be cancelled, so it must not outlive us (LE-13)."""
        limit = self._timing.request_timeout
        if deadline is None:
            return limit
        return max(0.001, min(limit, deadline - self._clock.monotonic()))

    def _failed(self, event: str, error: ClientError) -> None:
        _log.warning(event, lease=self._lock.describe(), error=str(error))


class CoordinatedClaim(Claim):
    """Attempts on a lock whose holder somebody else names: the API server (LE-22).

    Never creates a lease and never takes one: it keeps what names us, while it is valid
    and nobody is preferred to us.

    Args:
        withdraw: Ends our candidacy. Called before the lease is given back, or we would
            be elected again.
        rest: See `Claim`.
    """

    def __init__(self, withdraw: Callable[[], None], *rest: Any) -> None:
        super().__init__(*rest)
        self._withdraw = withdraw

    def attempt(self, *, deadline: float | None = None) -> Attempt:
        """Keep the lease if it is ours."""
        try:
            current = self._lock.get(timeout=self._timeout(deadline))
        except ClientError as error:
            # One that does not exist is nothing to tell: nobody was elected yet.
            if not isinstance(error, NotFound):
                self._failed("lease_not_read", error)
            return Attempt.FAILED
        self._observation.see(current)
        if not self._observation.is_valid():
            return Attempt.FAILED
        if current.holder_identity != self._lock.identity or current.preferred_holder:
            return Attempt.TAKEN
        return Attempt.HELD if self._update(current, deadline) else Attempt.FAILED

    def release(self) -> bool:
        """Withdraw, then let the lease end: the server names the next one within seconds."""
        self._withdraw()
        # The lease goes on to name us, and the fence must not open again for that.
        self._observation.give_up()
        return super().release()

    def _record(self, before: LeaseRecord | None) -> LeaseRecord:
        return coordinated(super()._record(before), before)

    def _released(self, current: LeaseRecord) -> LeaseRecord:
        # It goes on to name us: Kubernetes' coordinator follows the holder of a lease
        # without looking whether there is one, and the API server dies of that (1.36).
        return replace(self._record(current), lease_duration_seconds=1)
