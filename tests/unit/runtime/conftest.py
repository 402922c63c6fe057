"""Kinds, a reconciler that follows a script, and threads that end with their test."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest
import structlog

from navarchos.client import ClientConfig, Resource
from navarchos.meta import Object, ObjectMeta, OwnerReference, ResourceVersion
from navarchos.runtime import DONE, Reconciler, Request, Result
from navarchos.runtime.sources import RequestQueue
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource
from navarchos.threads import ThreadGroup

T = TypeVar("T", bound=Object)


class ThingSpec(msgspec.Struct, frozen=True, rename="camel"):
    size: int = 0


class Thing(Object, frozen=True):
    spec: ThingSpec = ThingSpec()


THINGS = Resource("example.org", "v1", "things", "Thing", namespaced=True, type=Thing)
PARTS = Resource("example.org", "v1", "parts", "Part", namespaced=True, type=Thing)


def make_thing(name: str, *, size: int = 0, version: str = "1", **metadata: Any) -> Thing:
    fields: dict[str, Any] = {"namespace": "ns", **metadata}
    meta = ObjectMeta(name=name, resource_version=ResourceVersion(version), **fields)
    return Thing(metadata=meta, spec=ThingSpec(size))


def owner(name: str, *, controller: bool = True, **fields: Any) -> OwnerReference:
    values: dict[str, Any] = {
        "api_version": "example.org/v1",
        "kind": "Thing",
        "uid": f"uid-{name}",
        **fields,
    }
    return OwnerReference(name=name, controller=controller, **values)


@dataclass
class Script(Reconciler):
    """Returns the answers of the script in order; then DONE."""

    answers: list[object] = field(default_factory=list)
    calls: list[Request] = field(default_factory=list)
    log_context: list[dict[str, object]] = field(default_factory=list)
    before: Callable[[Request], object] = lambda _: None

    def reconcile(self, request: Request) -> Result:
        self.calls.append(request)
        self.log_context.append(structlog.contextvars.get_contextvars())
        self.before(request)
        answer = self.answers.pop(0) if self.answers else DONE
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value]  # some tests answer nonsense


class Feed:
    """A source that a test feeds by hand."""

    def __init__(self, *, synced: bool = True, name: str = "feed") -> None:
        self.name = name
        self.synced = StopToken()
        if synced:
            self.synced.stop()
        self.starts = 0
        self.stops = 0
        self.requests: RequestQueue | None = None

    def start(self, requests: RequestQueue) -> None:
        self.starts += 1
        self.requests = requests

    def wait_for_sync(self, timeout: float | None, stop: StopToken) -> bool:
        either = stop.child()
        self.synced.on_stop(lambda: either.stop("synced"))
        either.wait(timeout)
        return self.synced.is_set()

    def stop(self) -> None:
        self.stops += 1

    def send(self, *names: str, priority: int = 0) -> None:
        assert self.requests is not None
        for name in names:
            self.requests.add(Request("ns", name), priority=priority)


class Running:
    """Runs a function on a thread until it is stopped."""

    def __init__(self, run: Callable[[StopToken], object], clock: FakeClock) -> None:
        self.stop = StopToken(clock=clock)
        self.error: BaseException | None = None
        self._run = run
        self._threads = ThreadGroup("test", stop=StopToken())
        self._threads.start("run", self._main)

    def _main(self) -> None:
        try:
            self._run(self.stop)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error

    def join(self) -> "Running":
        """Wait for the end."""
        assert self._threads.join(20), self._threads.running()
        self._threads.raise_failure()
        return self

    def end(self) -> BaseException | None:
        """Stop it, wait, and return its exception."""
        self.stop.stop("the test is over")
        return self.join().error


@pytest.fixture
def run(fake_clock: FakeClock) -> Iterator[Callable[[Callable[[StopToken], object]], Running]]:
    """Run something on a thread; it is stopped when the test ends."""
    made: list[Running] = []

    def start(target: Callable[[StopToken], object]) -> Running:
        made.append(Running(target, fake_clock))
        return made[-1]

    yield start
    for each in made:
        each.end()


class FakeClient:
    """Stands for a client: a scripted source for each kind, all of them served."""

    def __init__(self, clock: FakeClock) -> None:
        self.config = ClientConfig("http://127.0.0.1:1")
        self.missing: set[str] = set()
        self.discovery_fails: BaseException | None = None
        self._clock = clock
        self._sources: dict[str, FakeSource[Any]] = {}

    def source(self, resource: Resource[T]) -> FakeSource[T]:
        """The kind as the server has it."""
        key = str(resource)
        if key not in self._sources:
            self._sources[key] = FakeSource(resource, clock=self._clock)
        return self._sources[key]

    resource = source

    def has_kind(self, resource: Resource[Any]) -> bool:
        if self.discovery_fails is not None:
            raise self.discovery_fails
        return str(resource) not in self.missing


@pytest.fixture
def client(fake_clock: FakeClock) -> FakeClient:
    return FakeClient(fake_clock)


def config_maps(type_: type[T]) -> Resource[T]:
    """The kind for tests against a real server."""
    return Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=type_)
