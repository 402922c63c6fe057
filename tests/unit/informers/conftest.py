"""A kind of object, a scripted source of it, and informers that end with their test."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.informers import make_informer

from navarchos.client import Resource
from navarchos.informers import CacheMutated, SharedInformer, Tombstone
from navarchos.meta import Object, ObjectMeta
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource


class Thing(Object, frozen=True):
    value: int = 0


THINGS = Resource("", "v1", "things", "Thing", namespaced=True, type=Thing)


class Recorder:
    """A handler that records its calls as short tuples."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_add(self, obj: Thing, is_in_initial_list: bool) -> None:
        self.calls.append(("add", obj.metadata.name, obj.value, is_in_initial_list))

    def on_update(self, old: Thing, new: Thing) -> None:
        self.calls.append(("update", new.metadata.name, old.value, new.value))

    def on_delete(self, obj: Thing | Tombstone[Thing]) -> None:
        if isinstance(obj, Tombstone):
            self.calls.append(("gone", obj.key))
        else:
            self.calls.append(("delete", obj.metadata.name, obj.value))

    def take(self) -> list[tuple[Any, ...]]:
        """Return the calls since the last time."""
        taken, self.calls = self.calls, []
        return taken


def make_thing(name: str, value: int = 0, *, namespace: str = "ns", **metadata: Any) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace=namespace, **metadata), value=value)


class SettlingClock(FakeClock):
    """Advances only when every thread waits for a later time."""

    def advance(self, seconds: float) -> None:
        self.settle()
        super().advance(seconds)
        self.settle()


@pytest.fixture
def fake_clock() -> FakeClock:
    return SettlingClock()


@pytest.fixture
def thing() -> Callable[..., Thing]:
    return make_thing


@pytest.fixture
def things() -> "Resource[Thing]":
    return THINGS


@pytest.fixture
def source(fake_clock: FakeClock) -> "FakeSource[Thing]":
    return FakeSource(THINGS, clock=fake_clock)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def informer_of(fake_clock: FakeClock) -> Iterator[Callable[..., "SharedInformer[Thing]"]]:
    """Make informers on virtual time, without jitter; stop them when the test ends."""
    made: list[SharedInformer[Thing]] = []

    def make(source: "FakeSource[Thing]", **options: Any) -> "SharedInformer[Thing]":
        options = {"clock": fake_clock, "rand": lambda: 0.0, **options}
        made.append(make_informer(source, **options))
        return made[-1]

    yield make
    for informer in made:
        informer.stop("the test is over")
        assert informer.join()
        assert not isinstance(informer.failure, CacheMutated)


@pytest.fixture
def in_thread() -> Iterator[Callable[[Callable[[], Any]], Callable[[], Any]]]:
    """Call a function on another thread; the returned function waits for the result."""
    started: list[threading.Thread] = []

    def start(call: Callable[[], Any]) -> Callable[[], Any]:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(call()))
        thread.start()
        started.append(thread)

        def result() -> Any:
            thread.join(20)
            (only,) = results
            return only

        return result

    yield start
    for thread in started:
        thread.join(20)
