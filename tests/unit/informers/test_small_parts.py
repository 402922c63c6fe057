"""Tombstones, versions, and what counts as unchanged."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from navarchos.errors import ConfigError
from navarchos.informers import Scope, SyncTimeout, Tombstone, deletion_key
from navarchos.informers.position import is_at_least
from navarchos.informers.processor import is_unchanged
from navarchos.meta import KeyFailed, ResourceVersion

Make = Callable[..., Any]


@pytest.mark.rule("ST-03", "FQ-17")
def test_the_key_of_a_deletion_is_that_of_the_tombstone_or_the_object(thing: Make) -> None:
    assert deletion_key(thing("a")) == "ns/a"
    assert deletion_key(Tombstone("ns/b", thing("a"))) == "ns/b"
    assert deletion_key(Tombstone[Any]("c")) == "c"
    assert deletion_key("ns/d") == "ns/d"
    with pytest.raises(KeyFailed) as caught:
        deletion_key(42)
    assert caught.value.obj == 42


def test_versions_are_compared_as_numbers_or_not_at_all() -> None:
    assert is_at_least("10", "9") is True
    assert is_at_least("9", "10") is False
    assert is_at_least("10", "10") is True
    for odd in ("", "abc", "-1", "1.5", "٣"):
        assert is_at_least(odd, "1") is None
        assert is_at_least("1", odd) is None


def test_an_update_of_the_version_alone_is_no_change(thing: Make) -> None:
    def at(version: str, **fields: Any) -> Any:
        return thing("a", uid="u", resource_version=ResourceVersion(version), **fields)

    assert is_unchanged(at("1"), at("2"))
    assert not is_unchanged(at("1"), at("1")), "a replay is not an update"
    assert not is_unchanged(at("1"), at("2", value=1))
    assert not is_unchanged(at("1"), at("2", labels={"a": "b"}))
    other = thing("a", uid="v", resource_version=ResourceVersion("2"))
    assert not is_unchanged(at("1"), other)


def test_an_update_of_bookkeeping_alone_is_no_change_to_an_untyped_object() -> None:
    def at(version: str, **fields: Any) -> dict[str, Any]:
        metadata = {"name": "a", "uid": "u", "resourceVersion": version, "managedFields": [version]}
        return {"metadata": metadata, **fields}

    assert is_unchanged(at("1"), at("2"))
    assert not is_unchanged(at("1"), at("2", spec={}))


def test_membership_depends_on_namespace_and_on_known_labels(thing: Make) -> None:
    class Nameplate(msgspec.Struct, frozen=True):
        name: str
        namespace: str
        uid: str = ""
        resource_version: str = ""

    class Slim(msgspec.Struct, frozen=True):
        metadata: Nameplate

    is_member = Scope("ns", "role in (web,db)", "spec.nodeName=n").membership()
    assert is_member(thing("a", labels={"role": "web"}))
    assert not is_member(thing("a"))
    assert not is_member(thing("a", namespace="other", labels={"role": "web"}))
    assert is_member(Slim(Nameplate("a", "ns"))), "labels that are not listed exclude nothing"
    assert is_member({"metadata": {"name": "a", "namespace": "ns", "labels": {"role": "db"}}})
    with pytest.raises(ConfigError):
        Scope(label_selector="role in").membership()


def test_a_sync_timeout_names_the_unsynced_caches() -> None:
    error = SyncTimeout(["pods", "nodes handler drains"])
    assert error.unsynced == ("nodes handler drains", "pods")
    assert "nodes handler drains, pods" in str(error)
