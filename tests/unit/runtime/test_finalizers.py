"""What must be done before an object may go."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.runtime.conftest import Thing, make_thing

from navarchos.errors import ConfigError
from navarchos.runtime import Cleanup, FinalizerRegistry, FinalizersFailed

DELETED: dict[str, Any] = {"deletion_timestamp": datetime(2026, 1, 2, tzinfo=UTC)}


def registry(**finalizers: Any) -> FinalizerRegistry[Thing]:
    made: FinalizerRegistry[Thing] = FinalizerRegistry()
    for name, finalize in finalizers.items():
        made.register(name, finalize)
    return made


def never(_: Thing) -> None:
    raise AssertionError("not this one")


def fails(_: Thing) -> None:
    raise OSError("disk is there")


@pytest.mark.rule("CL-08")
def test_a_name_is_registered_once() -> None:
    with pytest.raises(ConfigError) as caught:
        registry(a=never).register("a", never)
    assert caught.value.value == "a"


@pytest.mark.rule("CL-08")
def test_an_object_that_stays_gets_all_that_it_lacks_and_none_is_run() -> None:
    found = registry(a=never, b=never).finalize(make_thing("t", version="7", finalizers=("b", "x")))
    metadata = {"finalizers": ["b", "x", "a"], "resourceVersion": "7"}
    assert found.patch == {"metadata": metadata}
    assert (found.updated, found.status_updated, found.failures) == (True, False, {})
    again = registry(a=never).finalize(make_thing("t", finalizers=("a",)))
    assert (again.updated, again.status_updated) == (False, False)


@pytest.mark.rule("CL-08")
def test_a_deleted_object_loses_successful_finalizers_and_keeps_failed_ones() -> None:
    ran: list[str] = []

    def works(thing: Thing) -> Cleanup:
        ran.append(thing.metadata.name)
        return Cleanup({"spec": {"size": 0}}, {"status": {"done": True}})

    thing = make_thing("t", version="7", finalizers=("good", "x", "bad", "good"), **DELETED)
    found = registry(good=works, bad=fails, absent=never).finalize(thing)
    assert ran == ["t"]
    metadata = {"finalizers": ["x", "bad"], "resourceVersion": "7"}
    assert found.patch == {"spec": {"size": 0}, "metadata": metadata}
    assert found.status == {"status": {"done": True}}
    assert (found.updated, found.status_updated) == (True, True)
    with pytest.raises(FinalizersFailed, match="bad: disk is there") as caught:
        found.raise_failures()
    assert list(caught.value.failures) == ["bad"]


@pytest.mark.rule("CL-08")
def test_patches_and_failures_of_several_finalizers_are_combined() -> None:
    one = Cleanup({"spec": {"a": 1, "b": 1}}, {"status": {"a": None}})
    two = Cleanup({"spec": {"b": None}})
    thing = make_thing("t", finalizers=("one", "two", "three", "four"), **DELETED)
    found = registry(one=lambda _: one, two=lambda _: two, three=fails, four=fails).finalize(thing)
    assert found.patch["spec"] == {"a": 1, "b": None}
    assert found.status == {"status": {"a": None}}
    with pytest.raises(FinalizersFailed) as caught:
        found.raise_failures()
    assert list(caught.value.failures) == ["three", "four"]


@pytest.mark.rule("CL-08")
def test_the_last_finalizer_is_removed_with_its_list() -> None:
    found = registry(a=lambda _: None).finalize(make_thing("t", finalizers=("a",), **DELETED))
    assert found.patch["metadata"]["finalizers"] is None
    found.raise_failures()


def test_a_finalizer_that_fails_alone_changes_nothing() -> None:
    found = registry(a=fails).finalize(make_thing("t", finalizers=("a",), **DELETED))
    assert (found.updated, found.status_updated) == (False, False)
    assert list(found.failures) == ["a"]
