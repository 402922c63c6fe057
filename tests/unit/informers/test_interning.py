"""Equal parts of cached objects are kept once."""

import string
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import runs

from navarchos.drain.pods import Pod, PodCondition, PodSpec, PodStatus, Volume
from navarchos.informers.interning import Interner
from navarchos.meta import Object, ObjectMeta, OwnerReference
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]


class Labels(dict[str, str]):
    """A mapping whose end can be seen."""

    __slots__ = ("__weakref__",)


class Inner(msgspec.Struct, frozen=True):
    """Has equal values of different types, and values that are not hashable."""

    number: bool | int = 0
    texts: tuple[str, ...] = ()
    anything: Mapping[str, object] = {}


class Outer(Object, frozen=True):
    """Contains itself, besides."""

    inner: Inner = Inner()
    flags: tuple[bool | int, ...] = ()
    again: "Outer | None" = None


def pod(number: int, **metadata: Any) -> Pod:
    """Return a pod that has nothing but its identity for itself."""
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="r", uid="u-r")
    return Pod(
        metadata=ObjectMeta(
            name=f"pod-{number}",
            namespace=f"ns-{number // 100}",
            uid=f"uid-{number}",
            labels={"app": f"a-{number // 100}"},
            owner_references=(owner,),
            creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC),
            **metadata,
        ),
        spec=PodSpec(node_name=f"node-{number}", volumes=(Volume(),)),
        status=PodStatus(conditions=(PodCondition(type="Ready", status="True"),)),
    )


def test_equal_parts_are_one_at_any_depth() -> None:
    sharing, one, other = Interner(Pod), pod(1), pod(2)
    for each in (one, other):
        sharing.intern(each)
    assert other.metadata.namespace is one.metadata.namespace
    assert other.metadata.labels is one.metadata.labels
    assert other.metadata.owner_references is one.metadata.owner_references
    assert other.status is one.status
    assert other.spec.volumes is one.spec.volumes
    assert (one, other) == (pod(1), pod(2))


def test_equal_values_of_different_types_stay_separate() -> None:
    sharing = Interner(Outer)
    objects = [Outer(inner=Inner(number=n), flags=(n,)) for n in (1, True, 1, False, 0)]
    for each in objects:
        sharing.intern(each)
    assert [type(each.inner.number) for each in objects] == [int, bool, int, bool, int]
    assert [type(each.flags[0]) for each in objects] == [int, bool, int, bool, int]


def test_a_mapping_that_was_changed_in_place_is_not_shared_further() -> None:
    sharing, spoilt = Interner(Pod), pod(1)
    sharing.intern(spoilt)
    labels: Any = spoilt.metadata.labels
    labels["app"] = "changed"
    for number in (2, 3):
        later = pod(number)
        sharing.intern(later)
        assert later.metadata.labels == {"app": "a-0"}


@pytest.mark.parametrize("type_", [dict, Mapping[str, object], int])
def test_a_type_that_is_not_a_struct_is_left_alone(type_: Any) -> None:
    obj = {"metadata": {"name": "a", "labels": {"app": "a"}}}
    Interner(type_).intern(obj)
    assert obj == {"metadata": {"name": "a", "labels": {"app": "a"}}}


def test_a_value_of_another_type_than_declared_is_left_alone() -> None:
    owners: Any = []
    labels: Any = ["app"]
    obj = Pod(metadata=ObjectMeta(name="a", owner_references=owners, labels=labels))
    Interner(Pod).intern(obj)
    assert obj.metadata.owner_references is owners
    assert obj.metadata.labels is labels


def test_parts_that_no_object_has_any_more_are_released() -> None:
    sharing, ends = Interner(Pod), []

    def come_and_go(first: int, last: int) -> None:
        for number in range(first, last):
            labels = Labels(app=f"app-{number // 2}")
            ends.append(weakref.ref(labels))
            sharing.intern(Pod(metadata=ObjectMeta(name=f"{number}", labels=labels)))

    come_and_go(0, 2)
    sharing.end_list()
    come_and_go(2, 20_000)
    assert sum(end() is not None for end in ends) < 1_000


def test_parts_of_only_one_object_are_released_at_the_end_of_the_list() -> None:
    sharing, labels = Interner(Pod), Labels(app="only")
    sharing.intern(Pod(metadata=ObjectMeta(name="a", labels=labels)))
    end = weakref.ref(labels)
    sharing.end_list()
    del labels
    assert end() is None


texts = st.text(string.ascii_lowercase[:2], max_size=2)
inners = st.builds(
    Inner,
    number=st.booleans() | st.integers(0, 1),
    texts=st.lists(texts, max_size=2).map(tuple),
    anything=st.dictionaries(texts, st.booleans() | st.integers(0, 1) | texts, max_size=2),
)
metadatas = st.builds(
    ObjectMeta,
    name=texts,
    namespace=texts,
    labels=st.dictionaries(texts, texts, max_size=2),
    finalizers=st.lists(texts, max_size=2).map(tuple),
)
outers = st.builds(
    Outer,
    metadata=metadatas,
    inner=inners,
    flags=st.lists(st.booleans() | st.integers(0, 1), max_size=2).map(tuple),
    again=st.none() | st.builds(Outer, inner=inners),
)


@given(st.lists(outers, max_size=8), st.sets(st.integers(0, 8)))
@settings(max_examples=runs(100))
def test_interning_does_not_change_the_value_of_objects(
    objects: list[Outer], ends: set[int]
) -> None:
    before = [msgspec.json.encode(each) for each in objects]
    sharing = Interner(Outer)
    for number, each in enumerate(objects):
        if number in ends:
            sharing.end_list()
        sharing.intern(each)
    assert [msgspec.json.encode(each) for each in objects] == before


@pytest.mark.parametrize("can_stream", [True, False])
def test_objects_of_a_list_and_of_its_watch_share_what_they_have_in_common(
    source: "FakeSource[Any]", informer_of: Make, fake_clock: Any, thing: Make, can_stream: bool
) -> None:
    source.can_stream = can_stream
    for name in ("a", "b"):
        source.put(thing(name, labels={"app": "x"}))
    informer = informer_of(source)
    informer.start()
    fake_clock.settle()
    source.put(thing("c", labels={"app": "x"}))
    fake_clock.settle()
    a, b, c = (informer.lister.get(f"ns/{name}").metadata.labels for name in "abc")
    assert a is b
    assert b is c
