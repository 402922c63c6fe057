"""The record in a Lease, and the three durations of an election."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from navarchos.errors import ConfigError
from navarchos.meta import format_micro_time
from navarchos.structs import prepare_decoding

__all__ = [
    "JITTER",
    "LeaseRecord",
    "LeaseTiming",
    "coordinated_record",
    "read_record",
    "released_record",
    "renewed_record",
]

JITTER: Final = 1.2
"""Random share of the retry period that candidates add to it (LE-11)."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long a lease lasts, and how hard its holder tries to keep it (LE-01).

    Attributes:
        lease_duration: Seconds for which other candidates leave a lease alone after they
            saw it renewed.
        renew_deadline: Seconds of failed renewals after which a leader steps down.
        retry_period: Seconds between two tries.

    Raises:
        ConfigError: With these durations two processes could lead at the same time, or a
            leader would step down before its second try.
    """

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        for name in ("lease_duration", "renew_deadline", "retry_period"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "it must be above 0 seconds")
        if self.lease_duration <= self.renew_deadline:
            raise ConfigError(
                "lease_duration",
                self.lease_duration,
                f"it must be longer than renew_deadline ({self.renew_deadline:g}), so that a "
                "leader steps down before another one starts",
            )
        if self.renew_deadline <= JITTER * self.retry_period:
            raise ConfigError(
                "renew_deadline",
                self.renew_deadline,
                f"it must be longer than {JITTER} times retry_period ({self.retry_period:g})",
            )

    @property
    def request_timeout(self) -> float:
        """Seconds for one request, so that a hanging one leaves time for another (LE-06)."""
        return max(1.0, self.renew_deadline / 2)

    @property
    def valid_for(self) -> float:
        """Seconds from sending a renewal until the work must have stopped without another.

        Another candidate may start one lease duration after it noticed our renewal, which is
        after we sent it. The sum of retry period and renew deadline is all that a healthy
        leader needs (LE-13).
        """
        return min(self.lease_duration, self.retry_period + self.renew_deadline)


@prepare_decoding
class LeaseRecord(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The spec of a Lease (LE-02).

    Attributes:
        holder_identity: The leader; empty without a leader.
        lease_duration_seconds: For how long the holder claims the lease; 0 if unknown.
        acquire_time: When the holder became leader, by the holder's clock.
        renew_time: When the holder renewed, by the holder's clock.
        lease_transitions: How often the holder changed.
        strategy: Coordinated election: how the server chooses the holder.
        preferred_holder: Coordinated election: the candidate that should follow the holder.
    """

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0
    strategy: str = ""
    preferred_holder: str = ""

    def body(self) -> dict[str, object]:
        """Return the record as JSON, without empty fields.

        The server refuses an empty holder, a duration of 0, and times without exactly six
        digits of a second (LE-03, RT-23).
        """
        times = {"acquireTime": self.acquire_time, "renewTime": self.renew_time}
        fields: dict[str, object] = {
            "holderIdentity": self.holder_identity,
            "leaseDurationSeconds": self.lease_duration_seconds,
            **{name: format_micro_time(at) if at else None for name, at in times.items()},
            "strategy": self.strategy,
            "preferredHolder": self.preferred_holder,
        }
        kept = {name: value for name, value in fields.items() if value}
        return kept | {"leaseTransitions": self.lease_transitions}


def read_record(spec: object) -> LeaseRecord:
    """Return the record of a Lease's spec; null fields count as absent.

    Raises:
        msgspec.ValidationError: A field has another type.
    """
    fields = dict(spec) if isinstance(spec, Mapping) else {}
    present = {name: value for name, value in fields.items() if value is not None}
    return msgspec.convert(present, LeaseRecord)


def renewed_record(
    identity: str, duration: float, now: datetime, before: LeaseRecord | None
) -> LeaseRecord:
    """Return the record that renews a lease, or takes it over (LE-09).

    Args:
        identity: Of this candidate.
        duration: Seconds of its claim; rounded up, because other candidates wait for it.
        now: The wall-clock time; only informative, no candidate decides by it.
        before: The record in the lease; `None` if the lease does not exist.
    """
    record = LeaseRecord(
        holder_identity=identity,
        lease_duration_seconds=math.ceil(duration),
        acquire_time=now,
        renew_time=now,
    )
    if before is None:
        return record
    if before.holder_identity != identity:
        return msgspec.structs.replace(record, lease_transitions=before.lease_transitions + 1)
    return msgspec.structs.replace(
        record,
        acquire_time=before.acquire_time,
        lease_transitions=before.lease_transitions,
    )


def coordinated_record(record: LeaseRecord, before: LeaseRecord | None) -> LeaseRecord:
    """Return the record that renews a lease which the server gave to this candidate.

    The strategy stays. The server names a holder without an acquire time, and does not count
    transitions.
    """
    return msgspec.structs.replace(
        record,
        strategy=before.strategy if before else "",
        acquire_time=record.acquire_time or record.renew_time,
    )


def released_record(now: datetime, before: LeaseRecord) -> LeaseRecord:
    """Return the record of a lease that any candidate may take at once (LE-17)."""
    return LeaseRecord(
        lease_duration_seconds=1,
        acquire_time=now,
        renew_time=now,
        lease_transitions=before.lease_transitions,
    )
