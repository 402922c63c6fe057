"""Features of a manager over HTTP: their kinds are installed while replicas run."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec
import pytest
from tests.integration.framework.waiting import LIMIT, until
from tests.replicas import Replica
from tests.servers import Served

from navarchos.client import Client, Resource
from navarchos.crd import Definition, Version, custom_resource_definition
from navarchos.meta import Object
from navarchos.runtime import DONE, Builder, CachedClient, Reconciler, Request, Result
from navarchos.testing.definitions import install_definitions, uninstall_definitions


class LateSpec(msgspec.Struct, frozen=True, rename="camel"):
    marked_by: str = ""


class Late(Object, frozen=True):
    spec: LateSpec = LateSpec()


LATE: Final = Resource("late.example.org", "v1", "lates", "Late", namespaced=True, type=Late)
LATE_DEFINITION: Final = custom_resource_definition(Definition(versions=(Version(resource=LATE),)))


class Marker(Reconciler):
    """Writes its name into each object that has none."""

    def __init__(self, lates: CachedClient[Late], name: str) -> None:
        self._lates = lates
        self._name = name
        self.seen: set[str] = set()

    def reconcile(self, request: Request) -> Result:
        found = self._lates.find(request.name, request.namespace)
        if found is not None and not found.spec.marked_by:
            self._lates.patch_any_version(found, {"spec": {"markedBy": self._name}})
        self.seen.add(request.name)
        return DONE


class LateReplica(Replica):
    """A replica with a feature."""

    def __init__(self, served: Served, namespace: str, name: str) -> None:
        super().__init__(replace(served.config), namespace, name, election=True)
        self.added = threading.Event()
        self.marker: Marker | None = None
        self.manager.add_feature("lates", [LATE], self._add)

    def _add(self) -> None:
        self.marker = Marker(self.manager.cached_client(LATE), self.client.config.user_agent)
        Builder(self.manager, f"lates-{self.client.config.user_agent}").for_(LATE).build(
            self.marker
        )
        self.added.set()

    def status_of(self, path: str) -> int:
        return self.get(path, health=True)[0]


@pytest.fixture
def definition(client: Client) -> Iterator[Callable[[], object]]:
    """Install the definition; it is removed at the end."""
    yield lambda: install_definitions(client, LATE_DEFINITION)
    uninstall_definitions(client, LATE_DEFINITION)


@pytest.fixture
def replica(served: Served, namespace: str) -> Iterator[Callable[[str], LateReplica]]:
    made: list[LateReplica] = []

    def make(name: str) -> LateReplica:
        made.append(LateReplica(served, namespace, name))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.mark.rule("MG-21")
@pytest.mark.rule("NP-50")
def test_a_feature_starts_in_leader_and_follower_when_its_kind_is_installed(
    client: Client,
    namespace: str,
    definition: Callable[[], object],
    replica: Callable[[str], LateReplica],
) -> None:
    first = replica("first")
    first.start()
    assert first.manager.elected.wait(LIMIT), "the leader waits for its feature"
    second = replica("second")
    second.start()
    until(lambda: second.status_of("/readyz?exclude=lates") == 200)
    for each in (first, second):
        assert each.get("/readyz/lates", health=True) == (
            500,
            "the server does not serve lates.late.example.org\n",
        )
        assert each.status_of("/readyz") == 500
        assert not each.added.is_set()
    definition()
    lates = client.resource(LATE)
    lates.create({"metadata": {"name": "one"}, "spec": {}}, namespace)
    until(lambda: lates.get("one", namespace).spec.marked_by == "first")
    for each in (first, second):
        until(lambda each=each: each.status_of("/readyz") == 200)  # type: ignore[misc]
    assert second.marker is not None
    assert second.marker.seen == set(), "a follower reconciled"
    first.end()
    lates.create({"metadata": {"name": "two"}, "spec": {}}, namespace)
    until(lambda: lates.get("two", namespace).spec.marked_by == "second")
    assert lates.get("one", namespace).spec.marked_by == "first"


@pytest.mark.rule("MG-21")
def test_a_feature_whose_kind_is_installed_starts_with_the_manager(
    client: Client,
    namespace: str,
    definition: Callable[[], object],
    replica: Callable[[str], LateReplica],
) -> None:
    definition()
    lates = client.resource(LATE)
    lates.create({"metadata": {"name": "one"}, "spec": {}}, namespace)
    only = replica("only")
    only.start()
    assert only.manager.elected.wait(LIMIT)
    assert only.added.is_set(), "the leader starts before its feature"
    assert only.status_of("/readyz") == 200
    until(lambda: lates.get("one", namespace).spec.marked_by == "only")
