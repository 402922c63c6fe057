"""Informers against an API server, over HTTP, in real time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.framework.kinds import CONFIG_MAPS, ConfigMap, Gizmo
from tests.integration.framework.sources import GatedWatches
from tests.integration.framework.waiting import LIMIT, Seen
from tests.servers import Served

from navarchos.client import Client, ResourceClient, Selector
from navarchos.client.options import ListOptions
from navarchos.informers import FactoryOptions, InformerFactory, SharedInformer, field_index
from navarchos.testing.faultproxy import FaultProxy, WireFault, WireFaultKind

Create = Callable[..., ConfigMap]
Maps = ResourceClient[ConfigMap]
MakeInformer = Callable[..., "SharedInformer[Any]"]


def test_list_and_watch(
    maps: Maps, namespace: str, create: Create, informer_of: MakeInformer
) -> None:
    create("a", x="1")
    informer = informer_of(indexers={"x": lambda obj: [obj.data.get("x", "")]})
    seen = Seen()
    registration = informer.add_handler(seen)
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    assert registration.wait_for_sync(LIMIT)
    assert informer.lister.get("a", namespace).data == {"x": "1"}
    create("b")
    maps.patch("a", {"data": {"x": "2"}}, namespace)
    seen.wait(("initial", "a"), ("add", "b"), ("update", "a"))
    maps.delete("b", namespace)
    seen.wait(("delete", "b"))
    assert [obj.metadata.name for obj in informer.lister.by_index("x", "2")] == ["a"]


def test_an_object_that_leaves_the_selection_is_deleted(
    maps: Maps, namespace: str, create: Create, informer_of: MakeInformer
) -> None:
    create("a")
    informer = informer_of()
    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    seen.wait(("initial", "a"))
    maps.patch("a", {"metadata": {"labels": {"test": None}}}, namespace)
    seen.wait(("delete", "a"))
    assert len(informer.store) == 0


def test_a_list_in_pages_is_whole(create: Create, informer_of: MakeInformer) -> None:
    names = [f"c{number:02}" for number in range(25)]
    for name in names:
        create(name)
    informer = informer_of(page_size=10)
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    assert sorted(obj.metadata.name for obj in informer.lister.list()) == names


@pytest.mark.rule("RT-24")
def test_a_stop_frees_an_informer_that_is_blocked_in_a_read(informer_of: MakeInformer) -> None:
    informer = informer_of()
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    informer.stop()
    assert informer.join(5)


def test_own_writes_are_read_at_once(
    maps: Maps, namespace: str, create: Create, informer_of: MakeInformer
) -> None:
    informer = informer_of()
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    for number in range(20):
        name = f"w{number}"
        informer.observe_write(create(name))
        assert informer.lister.find(name, namespace) is not None
        changed = maps.patch(name, {"data": {"n": str(number)}}, namespace)
        informer.observe_write(changed)
        assert informer.lister.get(name, namespace).data == {"n": str(number)}
        maps.delete(name, namespace)
        informer.observe_delete(changed)
        assert informer.lister.find(name, namespace) is None
    assert informer.catch_up(LIMIT)
    assert informer.lister.list() == informer.store.values() == []


def test_catching_up_sees_what_was_written_before(
    namespace: str, create: Create, informer_of: MakeInformer
) -> None:
    informer = informer_of()
    informer.start()
    for number in range(10):
        create(f"c{number}")
        assert informer.catch_up(LIMIT)
        assert f"{namespace}/c{number}" in informer.store


def test_a_factory_over_http(client: Client, namespace: str, create: Create) -> None:
    create("a")
    factory = InformerFactory(client, FactoryOptions(freeze=False))
    informer = factory.informer(CONFIG_MAPS)
    factory.start()
    factory.wait_for_sync(LIMIT)
    assert f"{namespace}/a" in informer.store
    assert factory.shutdown(LIMIT)


def test_a_watch_that_the_server_ends_is_resumed_without_a_list(
    maps: Maps, create: Create, informer_of: MakeInformer
) -> None:
    create("a")
    source = GatedWatches(maps, seconds=1)
    informer = informer_of(client=source)
    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    seen.wait(("initial", "a"))
    pages = source.pages
    for number in range(3):
        create(f"c{number}")
        seen.wait(("add", f"c{number}"))
        source.is_waiting.clear()
        source.gate.clear()
        assert source.is_waiting.wait(LIMIT), "the server has not ended the watch"
        source.gate.set()
    create("last")
    seen.wait(("add", "last"))
    assert seen.names("add") == ["c0", "c1", "c2", "last"], "each once"
    assert len(source.watched_from) == 4
    assert source.pages == pages


@pytest.mark.rule("RF-21", "RT-01")
def test_a_forgotten_version_is_made_good_by_a_list_that_finds_what_was_missed(
    our_server: Served, maps: Maps, namespace: str, create: Create, informer_of: MakeInformer
) -> None:
    for name in ("a", "b"):
        create(name)
    source = GatedWatches(maps, seconds=1)
    informer = informer_of(client=source)
    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    seen.wait(("initial", "a"), ("initial", "b"))
    source.gate.clear()
    assert source.is_waiting.wait(LIMIT)
    maps.delete("a", namespace)
    create("c")
    our_server.forget()
    source.gate.set()
    seen.wait(("gone", f"{namespace}/a"), ("add", "c"))
    assert sorted(obj.metadata.name for obj in informer.store.values()) == ["b", "c"]


@pytest.mark.parametrize("kind", [WireFaultKind.CUT, WireFaultKind.RESET, WireFaultKind.HALF_CLOSE])
def test_a_watch_that_breaks_in_the_middle_loses_nothing(
    served: Served,
    network: FaultProxy,
    create: Create,
    informer_of: MakeInformer,
    kind: WireFaultKind,
) -> None:
    with Client(replace(served.config, host=network.url)) as client:
        informer = informer_of(client=client.resource(CONFIG_MAPS))
        seen = Seen()
        informer.add_handler(seen)
        create("first")
        informer.start()
        seen.wait(("initial", "first"))
        names = [f"c{number:02}" for number in range(24)]
        for number, name in enumerate(names):
            if number % 8 == 0:
                network.strike(WireFault(kind, after_bytes=500))
            create(name)
        seen.wait(*(("add", name) for name in names))
        informer.stop()
        assert informer.join(LIMIT)
    assert network.strikes >= 1
    assert seen.names("add") == names, "in order, and each once"


def test_a_lister_follows_an_objects_life(
    maps: Maps, namespace: str, create: Create, informer_of: MakeInformer
) -> None:
    informer = informer_of()
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    created = create("a", x="1")
    assert informer.catch_up(LIMIT)
    assert informer.lister.get("a", namespace) == created
    patched = maps.patch("a", {"data": {"x": "2"}}, namespace)
    assert informer.catch_up(LIMIT)
    assert informer.lister.get("a", namespace) == patched
    maps.delete("a", namespace)
    assert informer.catch_up(LIMIT)
    assert informer.lister.find("a", namespace) is None
    again = create("a", x="3")
    assert informer.catch_up(LIMIT)
    assert informer.lister.get("a", namespace).metadata.uid == again.metadata.uid
    assert again.metadata.uid != created.metadata.uid


def test_a_lister_chooses_what_the_server_chooses(
    maps: Maps, namespace: str, create: Create, informer_of: MakeInformer
) -> None:
    """Label selectors mean the same in the cache and on the server."""
    informer = informer_of()
    informer.start()
    for name, tier in (("a", "web"), ("b", "db"), ("c", "")):
        create(name)
        if tier:
            maps.patch(name, {"metadata": {"labels": {"tier": tier}}}, namespace)
    assert informer.catch_up(LIMIT)
    for text in ("tier", "!tier", "tier=web", "tier!=web", "tier in (web,db)", "tier notin (db)"):
        asked = {
            each.metadata.name
            for each in maps.list(namespace, ListOptions(label_selector=text)).items
        }
        selector = Selector.parse(text)
        found = informer.lister.list(selector, namespace)
        assert asked, "a selector that finds nothing shows nothing"
        assert {each.metadata.name for each in found} == asked, text


def test_one_object_is_watched_by_its_name(
    maps: Maps, create: Create, informer_of: MakeInformer
) -> None:
    create("a")
    informer = informer_of(field_selector="metadata.name=b", label_selector="")
    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    create("c")
    create("b")
    seen.wait(("add", "b"))
    assert [call for call in seen.calls if call[1] != "b"] == []


def test_objects_of_a_custom_kind_are_followed(
    gizmos: ResourceClient[Gizmo], namespace: str, informer_of: MakeInformer
) -> None:
    informer = informer_of(
        client=gizmos,
        label_selector="",
        indexers=field_index("spec.colour", lambda gizmo: [gizmo.spec.colour]),
    )
    seen = Seen()
    informer.add_handler(seen)
    gizmos.create({"metadata": {"name": "a"}, "spec": {"size": 3}}, namespace)
    informer.start()
    seen.wait(("initial", "a"))
    gizmos.create({"metadata": {"name": "b"}, "spec": {"colour": "green"}}, namespace)
    gizmos.patch("a", {"spec": {"size": 4}}, namespace)
    seen.wait(("add", "b"), ("update", "a"))
    chosen = informer.lister.list(namespace=namespace, fields={"spec.colour": "red"})
    assert [(each.metadata.name, each.spec.size) for each in chosen] == [("a", 4)]
    generation = chosen[0].metadata.generation
    status = {"status": {"observedGeneration": generation}}
    informer.observe_write(gizmos.patch("a", status, namespace, subresource="status"))
    after = informer.lister.get("a", namespace)
    assert (after.metadata.generation, after.status.observed_generation) == (2, 2)
    gizmos.delete("b", namespace)
    seen.wait(("delete", "b"))


def test_a_custom_kinds_fields_can_be_selected(
    gizmos: ResourceClient[Gizmo], namespace: str, informer_of: MakeInformer
) -> None:
    """Only what the definition says is selectable."""
    for name, colour in (("a", "red"), ("b", "green")):
        gizmos.create({"metadata": {"name": name}, "spec": {"colour": colour}}, namespace)
    informer = informer_of(client=gizmos, label_selector="", field_selector="spec.colour=green")
    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    seen.wait(("initial", "b"))
    gizmos.patch("a", {"spec": {"colour": "green"}}, namespace)
    seen.wait(("add", "a"))
    gizmos.patch("b", {"spec": {"colour": "red"}}, namespace)
    seen.wait(("delete", "b"))
    assert {each.metadata.name for each in informer.lister.list()} == {"a"}
