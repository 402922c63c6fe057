"""Decoding of objects and lists."""

import gc
import json
import sys
from collections.abc import Iterator, Mapping

import msgspec
import pytest

from navarchos.client import DecodeError, Resource, ResourceList, WatchEvent
from navarchos.client.decoding import Codec, gc_paused
from navarchos.client.watching import LineSplitter
from navarchos.meta import Object, ResourceVersion, Unstructured


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""
    volumes: tuple[str, ...] = ()


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()


PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)


def page(*items: object, **metadata: object) -> bytes:
    return json.dumps({"kind": "PodList", "metadata": metadata, "items": items}).encode()


def pod(name: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "web", "uid": f"u-{name}"}, "spec": spec}


def test_a_page_becomes_objects_of_the_declared_type() -> None:
    found = Codec(PODS).decode_list(
        page(
            pod("a", nodeName="n1", unknown={"x": [1]}),
            pod("b"),
            resourceVersion="12",
            remainingItemCount=7,
            **{"continue": "token"},
        )
    )
    assert [(p.metadata.name, p.spec.node_name) for p in found.items] == [("a", "n1"), ("b", "")]
    assert (found.resource_version, found.continue_token, found.remaining) == ("12", "token", 7)
    assert found.failures == []


def test_a_second_client_of_a_resource_creates_no_new_types() -> None:
    first = Codec(PODS)
    known = len(msgspec.Struct.__subclasses__())
    again = Codec(PODS)
    assert len(msgspec.Struct.__subclasses__()) == known
    assert again.decode_list(page(pod("web-1"))) == first.decode_list(page(pod("web-1")))


@pytest.mark.parametrize("body", [b'{"items":null}', b'{"metadata":null,"items":[]}', b"{}"])
def test_an_empty_list_may_be_written_in_any_way(body: bytes) -> None:
    found = Codec(PODS).decode_list(body)
    assert found.items == []
    assert found.resource_version == ""


def test_null_counts_as_absent() -> None:
    found = Codec(PODS).decode_list(
        page(
            {"metadata": {"name": "a", "labels": None, "creationTimestamp": None}, "spec": None},
            {"metadata": {"name": "b"}, "spec": {"nodeName": None, "volumes": None}},
        )
    )
    assert found.items == [
        Codec(PODS).decode(b'{"metadata":{"name":"a"}}'),
        Codec(PODS).decode(b'{"metadata":{"name":"b"}}'),
    ]


def test_one_bad_object_is_reported_and_does_not_stop_the_others() -> None:
    found = Codec(PODS).decode_list(page(pod("a"), pod("bad", nodeName=3), pod("c")))
    assert [p.metadata.name for p in found.items] == ["a", "c"]
    (failure,) = found.failures
    assert (failure.verb, failure.resource, failure.key) == ("list", "pods", "web/bad")
    assert (failure.namespace, failure.name, failure.uid) == ("web", "bad", "u-bad")
    assert "nodeName" in failure.why


def test_values_of_a_wrong_type_are_not_converted() -> None:
    """Only nulls are ignored; a number is not a string."""
    with pytest.raises(DecodeError):
        Codec(PODS).decode(b'{"metadata":{"name":"a"},"spec":{"nodeName":1}}')


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"items":{}}', b'{"items":[', b""])
def test_a_response_that_is_not_a_list_is_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        Codec(PODS).decode_list(body)
    assert caught.value.__cause__ is not None


def test_an_object_without_metadata_fails_without_a_key() -> None:
    with pytest.raises(DecodeError) as caught:
        Codec(PODS).decode(b'{"spec":{"nodeName":1}}')
    assert caught.value.key == ""


@pytest.mark.parametrize("kind", [dict, dict[str, object], Mapping[str, object], Unstructured])
@pytest.mark.rule("IF-06", "IF-12")
def test_untyped_objects_get_their_kind_and_lose_managed_fields(kind: type[object]) -> None:
    resource = Resource("", "v1", "pods", "Pod", namespaced=True, type=kind)
    body = page({"metadata": {"name": "a", "managedFields": [{"manager": "x"}]}, "spec": {"n": 1}})
    (found,) = Codec(resource).decode_list(body).items
    expected = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"n": 1}}
    assert found == expected
    (kept,) = Codec(resource, keep_managed_fields=True).decode_list(body).items
    assert msgspec.to_builtins(kept)["metadata"]["managedFields"] == [{"manager": "x"}]


def test_the_kind_that_the_server_states_is_kept() -> None:
    resource = PODS.projected(dict)
    found = Codec(resource).decode(b'{"apiVersion":"v2","kind":"Other","metadata":{}}')
    assert (found["apiVersion"], found["kind"]) == ("v2", "Other")


def test_a_type_without_metadata_still_decodes() -> None:
    class Slim(msgspec.Struct, frozen=True):
        spec: PodSpec = PodSpec()

    found = Codec(PODS.projected(Slim)).decode_list(page(pod("a", nodeName="n1")))
    assert found.items == [Slim(spec=PodSpec(node_name="n1"))]


@pytest.fixture
def _collector_as_it_was() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    gc.enable() if enabled else gc.disable()


@pytest.mark.usefixtures("_collector_as_it_was")
def test_the_collector_is_paused_until_the_last_pause_ends() -> None:
    gc.enable()

    def fail_inside() -> None:
        with gc_paused():
            with gc_paused():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_inside()
    assert gc.isenabled()


@pytest.mark.usefixtures("_collector_as_it_was")
def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


@pytest.mark.usefixtures("_collector_as_it_was")
def test_a_page_that_cannot_be_decoded_leaves_the_collector_enabled() -> None:
    gc.enable()
    with pytest.raises(DecodeError):
        Codec(PODS).decode_list(b"<html>")
    assert gc.isenabled()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_the_stream_is_split(size: int) -> None:
    stream = b'{"a":1}\n\n{"b":"' + b"x" * 50 + b'"}\r\n{"c":3}\nrest'
    splitter = LineSplitter()
    lines = []
    for start in range(0, len(stream), size):
        lines.extend(splitter.feed(stream[start : start + size]))
    assert lines == [b'{"a":1}', b'{"b":"' + b"x" * 50 + b'"}', b'{"c":3}']
    assert splitter.rest() == b"rest"
    assert splitter.rest() == b""


def test_events_and_lists_can_be_made_of_a_named_type() -> None:
    """`typing` sets an attribute on such an instance; a frozen class with slots refuses it."""
    version = ResourceVersion("7")
    assert WatchEvent[dict[str, str]]("ADDED", {"a": "b"}, version).object == {"a": "b"}
    assert ResourceList[dict[str, str]]([{"a": "b"}], version).items == [{"a": "b"}]


class Lenient(msgspec.Struct, frozen=True):
    """Refuses null, so that a null needs the slow path."""

    metadata: dict[str, object]
    spec: dict[str, str] = {}


@pytest.mark.rule("RF-12")
@pytest.mark.parametrize("type_", [Pod, dict, Lenient])
def test_no_object_keeps_the_bytes_of_its_page_alive(type_: type[object]) -> None:
    resource: Resource[object] = Resource("", "v1", "pods", "Pod", namespaced=True, type=type_)
    slow = {**pod("b"), "spec": None} if type_ is Lenient else pod("b", nodeName="n")
    data = page(pod("a", nodeName="n"), slow)
    before = sys.getrefcount(data)
    items = Codec(resource).decode_list(data).items
    assert len(items) == 2
    assert sys.getrefcount(data) == before


TABLE = {
    "kind": "Table",
    "metadata": {"resourceVersion": "9"},
    "columnDefinitions": [],
    "rows": [{"object": {"metadata": {"name": "a"}}}],
}


@pytest.mark.rule("RF-13")
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("type_", [Pod, dict, Lenient])
def test_a_table_is_not_decoded_as_an_empty_list(version: str, type_: type[object]) -> None:
    resource: Resource[object] = Resource("", "v1", "pods", "Pod", namespaced=True, type=type_)
    table = {"apiVersion": f"meta.k8s.io/{version}", **TABLE}
    for body in (table, {**table, "items": [{"metadata": 3}]}):
        with pytest.raises(DecodeError, match="Table"):
            Codec(resource).decode_list(json.dumps(body).encode())


def test_a_kind_that_is_called_table_is_listed_like_any_other() -> None:
    tables = Resource("shop.example", "v1", "tables", "Table", namespaced=True, type=Pod)
    body = {"apiVersion": "shop.example/v1", "kind": "Table", "items": [pod("a")]}
    assert len(Codec(tables).decode_list(json.dumps(body).encode()).items) == 1
