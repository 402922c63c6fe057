from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.meta import (
    KeyFailed,
    Object,
    ObjectKey,
    ObjectMeta,
    OwnerReference,
    controller_of,
    format_micro_time,
    format_time,
    key_of,
    parse_time,
    split_key,
)

names = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)


@pytest.mark.rule("ST-01")
def test_a_key_is_the_name_with_its_namespace_if_it_has_one() -> None:
    assert key_of(Object(metadata=ObjectMeta(name="web", namespace="shop"))) == "shop/web"
    assert key_of({"metadata": {"name": "node-1"}}) == "node-1"


@pytest.mark.rule("ST-01")
@pytest.mark.parametrize("bad", [{}, {"metadata": None}, {"metadata": {"name": 3}}, 7, Object()])
def test_an_object_without_metadata_comes_back_in_the_error(bad: object) -> None:
    with pytest.raises(KeyFailed) as caught:
        key_of(bad)
    assert caught.value.obj is bad


@pytest.mark.rule("ST-02")
@given(st.one_of(st.just(""), names), names)
def test_splitting_undoes_what_key_of_did(namespace: str, name: str) -> None:
    key = key_of(Object(metadata=ObjectMeta(name=name, namespace=namespace)))
    assert split_key(key) == ObjectKey(namespace, name)


@pytest.mark.rule("ST-02")
def test_a_key_with_two_slashes_is_refused() -> None:
    with pytest.raises(ValueError, match="a/b/c"):
        split_key("a/b/c")


@pytest.mark.rule("LE-03")
@given(st.datetimes(timezones=st.just(UTC)))
def test_a_micro_time_always_has_six_digits(at: datetime) -> None:
    if at.year < 1000:
        return
    text = format_micro_time(at)
    assert len(text.rpartition(".")[2]) == len("000000Z")
    assert parse_time(text) == at


@pytest.mark.rule("RT-23")
def test_a_micro_time_at_microsecond_zero_keeps_its_fraction() -> None:
    assert format_micro_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)).endswith("05.000000Z")


def test_times_are_written_in_utc_with_whole_seconds() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 999, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(at) == "2026-01-02T01:04:05Z"


def test_metadata_uses_the_names_of_the_api() -> None:
    meta = ObjectMeta(
        name="n",
        owner_references=(
            OwnerReference(
                api_version="apps/v1", kind="ReplicaSet", name="r", uid="u", controller=True
            ),
        ),
    )
    wire = msgspec.to_builtins(meta)
    assert set(wire) == {"name", "ownerReferences"}
    assert msgspec.convert(wire, ObjectMeta) == meta


def test_a_cached_object_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Object().metadata = ObjectMeta(name="x")  # type: ignore[misc]  # that is the point


def test_the_controller_is_the_owner_with_that_flag() -> None:
    plain = OwnerReference(api_version="v1", kind="Node", name="n", uid="1")
    manager = OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name="r", uid="2", controller=True
    )
    assert controller_of(ObjectMeta(owner_references=(plain, manager))) == manager
    assert controller_of(ObjectMeta(owner_references=(plain,))) is None
    assert (plain.group, manager.group) == ("", "apps")
