"""The record on the wire, and what changes when a lease is renewed or taken over."""

import re
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.leaderelection import LeaseRecord
from navarchos.leaderelection.lease import read_record, released_record, renewed_record

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)

_times = st.datetimes(timezones=st.just(UTC)).filter(lambda at: at.year >= 1000)
_records = st.builds(
    LeaseRecord,
    holder_identity=st.text(),
    lease_duration_seconds=st.integers(0, 2**31 - 1),
    acquire_time=st.none() | _times,
    renew_time=st.none() | _times,
    lease_transitions=st.integers(0, 2**31 - 1),
    strategy=st.sampled_from(["", "OldestEmulationVersion"]),
    preferred_holder=st.text(),
)


@pytest.mark.rule("LE-02")
@given(_records)
def test_a_written_record_is_read_back_unchanged(record: LeaseRecord) -> None:
    assert read_record(record.body()) == record


@pytest.mark.rule("LE-03")
@pytest.mark.rule("RT-23")
@pytest.mark.rule("PF-29")
@given(_times)
def test_times_have_exactly_six_digits(at: datetime) -> None:
    text = LeaseRecord(renew_time=at).body()["renewTime"]
    assert re.fullmatch(r"\d+-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(text))


@pytest.mark.rule("LE-02")
def test_empty_fields_are_omitted() -> None:
    assert LeaseRecord().body() == {"leaseTransitions": 0}


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "renewTime": None}, []])
def test_null_counts_as_absent(spec: object) -> None:
    assert read_record(spec) == LeaseRecord()


def test_a_field_of_another_type_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        read_record({"holderIdentity": 7})


HELD = LeaseRecord(
    holder_identity="a",
    lease_duration_seconds=15,
    acquire_time=THEN,
    renew_time=THEN,
    lease_transitions=3,
)


@pytest.mark.rule("LE-09")
def test_a_renewal_keeps_when_it_began_and_how_often_it_changed() -> None:
    renewed = renewed_record("a", 15, NOW, HELD)
    assert renewed == msgspec.structs.replace(HELD, renew_time=NOW)


@pytest.mark.rule("LE-09")
@pytest.mark.rule("PF-27")
@pytest.mark.parametrize("before", [HELD, msgspec.structs.replace(HELD, holder_identity="")])
def test_a_take_over_begins_now_and_counts(before: LeaseRecord) -> None:
    taken = renewed_record("b", 15, NOW, before)
    assert (taken.acquire_time, taken.renew_time) == (NOW, NOW)
    assert (taken.holder_identity, taken.lease_transitions) == ("b", 4)


@pytest.mark.rule("LE-08")
def test_the_first_holder_does_not_count_as_a_transition() -> None:
    assert renewed_record("a", 15, NOW, None).lease_transitions == 0


def test_the_claim_is_rounded_up_to_whole_seconds() -> None:
    assert renewed_record("a", 0.5, NOW, None).lease_duration_seconds == 1


@pytest.mark.rule("LE-17")
def test_a_released_lease_has_no_holder_for_a_second() -> None:
    assert released_record(NOW, HELD) == LeaseRecord(
        lease_duration_seconds=1, acquire_time=NOW, renew_time=NOW, lease_transitions=3
    )
