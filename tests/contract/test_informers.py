"""Informers against a server of either kind, over HTTP, in real time."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.servers import Served

from navarchos.backoff import Backoff
from navarchos.client import Client, Resource, ResourceClient
from navarchos.informers import InformerFactory, SharedInformer, Tombstone
from navarchos.meta import Object

pytestmark = pytest.mark.unrecorded("other cases ask for the same over HTTP")

LIMIT = 30.0


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)

Maps = ResourceClient[ConfigMap]
MakeInformer = Callable[..., "SharedInformer[ConfigMap]"]


class Seen:
    """A handler, and a way to wait until it has heard of something."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.calls: list[tuple[str, str]] = []

    def on_add(self, obj: ConfigMap, is_in_initial_list: bool) -> None:
        self._note("initial" if is_in_initial_list else "add", obj.metadata.name)

    def on_update(self, old: ConfigMap, new: ConfigMap) -> None:
        self._note("update", new.metadata.name)

    def on_delete(self, obj: ConfigMap | Tombstone[ConfigMap]) -> None:
        name = obj.key if isinstance(obj, Tombstone) else obj.metadata.name
        self._note("gone" if isinstance(obj, Tombstone) else "delete", name)

    def _note(self, what: str, name: str) -> None:
        with self._changed:
            self.calls.append((what, name))
            self._changed.notify_all()

    def wait(self, *calls: tuple[str, str]) -> None:
        with self._changed:
            there = self._changed.wait_for(lambda: set(calls) <= set(self.calls), LIMIT)
        assert there, f"missing {set(calls) - set(self.calls)} of {self.calls}"


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.config) as client:
        yield client


@pytest.fixture
def maps(client: Client) -> Maps:
    return client.resource(CONFIG_MAPS)


@pytest.fixture(params=[True, False], ids=["streaming", "listing"])
def informer_of(
    request: pytest.FixtureRequest, maps: Maps, namespace: str
) -> Iterator[MakeInformer]:
    made: list[SharedInformer[ConfigMap]] = []

    def make(**options: Any) -> SharedInformer[ConfigMap]:
        options = {
            "namespace": namespace,
            "streaming": request.param,
            # Clusters put a map of their own into every namespace.
            "label_selector": "test=yes",
            "backoff": Backoff(base=0.02, cap=0.2),
            **options,
        }
        made.append(SharedInformer(maps, **options))
        return made[-1]

    yield make
    for informer in made:
        informer.stop("the test is over")
        assert informer.join(LIMIT)


@pytest.fixture
def create(maps: Maps, namespace: str) -> Callable[..., ConfigMap]:
    def make(name: str, **data: str) -> ConfigMap:
        metadata = {"name": name, "labels": {"test": "yes"}}
        return maps.create({"metadata": metadata, "data": data}, namespace)

    return make


Create = Callable[..., ConfigMap]


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


def test_what_leaves_the_selection_is_deleted(
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
    factory = InformerFactory(client, freeze=False)
    informer = factory.informer(CONFIG_MAPS)
    factory.start()
    factory.wait_for_sync(LIMIT)
    assert f"{namespace}/a" in informer.store
    assert factory.shutdown(LIMIT)
