"""Where reads go."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.unit.runtime.conftest import config_maps

from navarchos.client import Client, ClientConfig, NotFound, Resource, Selector
from navarchos.informers import FactoryOptions, InformerFactory, KindNotCached
from navarchos.meta import Object
from navarchos.runtime import Manager, ManagerOptions, ObjectReader, ReaderFactory
from navarchos.testing.apiserver import ApiServer


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


MAPS = config_maps(ConfigMap)
UNTYPED: Resource[dict[str, Any]] = MAPS.projected(dict)
AGENT = "readers"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        for name in ("a", "b"):
            metadata = {"name": name, "namespace": "default", "labels": {"name": name}}
            server.install({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(server.url, user_agent=AGENT)) as client:
        yield client


@pytest.fixture
def informers(client: Client) -> Iterator[InformerFactory]:
    factory = InformerFactory(client, FactoryOptions(freeze=False))
    factory.informer(MAPS)
    factory.informer(UNTYPED)
    factory.start()
    factory.wait_for_sync(20)
    yield factory
    assert factory.shutdown(20)


def asks_the_server(server: ApiServer, reader: ObjectReader[Any]) -> bool:
    """Read in every way; return whether the server got all of the reads, or none."""
    before = sum(server.requests_by(AGENT).values())
    reader.get("a", "default")
    found = reader.list(Selector.parse("name=b"), "default")
    assert len(found) == 1
    assert len(reader.list()) == 2
    assert reader.list(Selector.nothing()) == []
    with pytest.raises(NotFound):
        reader.get("none", "default")
    asked = sum(server.requests_by(AGENT).values()) - before
    assert asked in {0, 5}
    return asked == 5


@pytest.mark.rule("CL-12")
def test_typed_reads_come_out_of_the_cache(
    server: ApiServer, client: Client, informers: InformerFactory
) -> None:
    assert not asks_the_server(server, ReaderFactory(client, informers).reader(MAPS))


@pytest.mark.rule("CL-12")
def test_untyped_reads_go_to_the_server_unless_enabled(
    server: ApiServer, client: Client, informers: InformerFactory
) -> None:
    assert asks_the_server(server, ReaderFactory(client, informers).reader(UNTYPED))
    enabled = ReaderFactory(client, informers, cache_untyped=True)
    assert not asks_the_server(server, enabled.reader(UNTYPED))


@pytest.mark.rule("CL-12")
def test_kinds_that_are_named_are_read_from_the_server_in_any_projection(
    server: ApiServer, client: Client, informers: InformerFactory
) -> None:
    named = ReaderFactory(client, informers, uncached=[MAPS.projected(Object)], cache_untyped=True)
    assert asks_the_server(server, named.reader(MAPS))
    assert asks_the_server(server, named.reader(UNTYPED))


@pytest.mark.rule("CL-12")
def test_a_kind_without_an_informer_is_refused_and_not_cached(
    server: ApiServer, client: Client
) -> None:
    before = sum(server.requests_by(AGENT).values())
    reader = ReaderFactory(client, InformerFactory(client)).reader(MAPS)
    for _ in range(2):
        with pytest.raises(KindNotCached):
            reader.get("a", "default")
        with pytest.raises(KindNotCached):
            reader.list()
    assert sum(server.requests_by(AGENT).values()) == before


@pytest.mark.rule("CL-12")
def test_a_managers_uncached_reads_and_writes_go_to_the_server(
    server: ApiServer, client: Client
) -> None:
    manager = Manager(client, options=ManagerOptions(uncached=(MAPS,)))
    assert asks_the_server(server, manager.reader(MAPS))
    with pytest.raises(KindNotCached):
        Manager(client).reader(MAPS).get("a", "default")
    manager.client.resource(MAPS).patch("a", {"data": {"x": "1"}}, "default")
    assert manager.reader(MAPS).get("a", "default").data == {"x": "1"}
