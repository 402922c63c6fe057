"""A server that goes away and comes back, under everything that talks to it.

These tests use a separate server, because they restart it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest
from tests.integration.framework.kinds import CONFIG_MAPS, ConfigMap
from tests.integration.framework.waiting import LIMIT, Seen
from tests.servers import IN_PROCESS, Served, serve

from navarchos.client import Client, ResourceClient, WatchExpired
from navarchos.client.options import ListOptions, WatchOptions
from navarchos.informers import SharedInformer
from navarchos.testing.faultproxy import FaultProxy, WireFault, WireFaultKind

Create = Callable[..., ConfigMap]
MakeInformer = Callable[..., "SharedInformer[Any]"]


def _as_long(fixture_name: str, config: pytest.Config) -> Literal["function", "module"]:
    """Return how long a server is used: a server in this process starts threads on a restart."""
    return "function" if config.getoption("--server") == IN_PROCESS else "module"


@pytest.fixture(scope=_as_long)
def served(pytestconfig: pytest.Config) -> Iterator[Served]:
    """A server that is stopped in every test, so that other tests do not use it."""
    with serve(pytestconfig.getoption("--server")) as server:
        yield server


def test_a_server_that_comes_back_is_followed_again(
    our_server: Served, create: Create, informer_of: MakeInformer
) -> None:
    create("a")
    informer = informer_of()
    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    seen.wait(("initial", "a"))
    our_server.restart()
    create("b")
    seen.wait(("add", "b"))
    assert ("gone", "a") not in seen.calls
    assert seen.names("initial") == ["a"], "no event is delivered twice"


def test_a_client_works_again_after_the_server_restarts(
    our_server: Served, maps: ResourceClient[ConfigMap], namespace: str, create: Create
) -> None:
    """The kept connections are broken, and no request has noticed that yet."""
    created = create("a")
    our_server.restart()
    assert maps.get("a", namespace).metadata.uid == created.metadata.uid
    start = maps.list(namespace).resource_version
    with maps.watch(namespace, WatchOptions(resource_version=start)) as events:
        create("b")
        event = next(event for event in events if event.object is not None)
    assert event.object is not None
    assert event.object.metadata.name == "b"


def test_a_server_that_comes_back_has_forgotten_its_events_and_knows_its_pages(
    our_server: Served, maps: ResourceClient[ConfigMap], namespace: str, create: Create
) -> None:
    """Events were in its memory; objects as they were are in etcd."""
    for name in ("a", "b", "c"):
        create(name)
    chosen = ListOptions(label_selector="test=yes", limit=2)
    first = maps.list_page(namespace, chosen)
    create("d")
    our_server.restart()
    with (
        maps.watch(namespace, WatchOptions(resource_version=first.resource_version)) as events,
        pytest.raises(WatchExpired),
    ):
        next(iter(events))
    following = ListOptions(label_selector="test=yes", limit=2, continue_token=first.continue_token)
    second = maps.list_page(namespace, following)
    assert [each.metadata.name for each in (*first.items, *second.items)] == ["a", "b", "c"]


def test_objects_deleted_during_an_outage_are_reported_once(
    our_server: Served,
    maps: ResourceClient[ConfigMap],
    namespace: str,
    create: Create,
    informer_of: MakeInformer,
    network: FaultProxy,
) -> None:
    """The informer misses the end, and resumes from a version that the server does not know."""
    for name in ("a", "b"):
        create(name)
    with Client(replace(our_server.config, host=network.url)) as client:
        informer = informer_of(client=client.resource(CONFIG_MAPS))
        seen = Seen()
        informer.add_handler(seen)
        informer.start()
        seen.wait(("initial", "a"), ("initial", "b"))
        network.refuse()
        network.strike(WireFault(WireFaultKind.CUT))
        assert network.wait_for_strikes(1, timeout=LIMIT)
        maps.delete("a", namespace)
        our_server.restart()
        create("c")
        network.heal()
        seen.wait(("gone", f"{namespace}/a"), ("add", "c"))
        assert seen.names("gone") == [f"{namespace}/a"]
        assert seen.names("delete") == []
        informer.stop()
        assert informer.join(LIMIT)
