"""The manager, where a scripted fault of our server makes one of its watches fall silent.

What holds for each API server is in `tests/integration/framework/test_manager.py`.
"""

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.integration.framework.kinds import CONFIG_MAPS
from tests.integration.framework.waiting import LIMIT
from tests.replicas import Replica

from navarchos.runtime import DONE, Controller, ControllerOptions, Reconciler, Request, Result
from navarchos.runtime.sources import RequestQueue
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Fault

MakeReplica = Callable[..., Replica]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(bookmark_interval=0.2) as server:
        yield server


@pytest.fixture
def replica(server: ApiServer) -> Iterator[MakeReplica]:
    made: list[Replica] = []

    def make(name: str, *, election: bool = True) -> Replica:
        made.append(Replica(server.client_config(), "default", name, election=election))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.mark.rule("OP-21")
def test_leader_only_runnables_see_the_last_writes_of_the_former_leader(
    server: ApiServer, replica: MakeReplica
) -> None:
    """The cache of the standby hears nothing; it asks the server once the lease is its own."""
    first = replica("first").start()
    assert first.manager.elected.wait(LIMIT)
    second = replica("second")
    server.faults.add(
        Fault(verb="watch", resource="configmaps", user_agent="second", stall_after=1)
    )
    found: list[object] = []

    class Look:
        def run(self, stop: StopToken) -> None:
            found.append(second.manager.lister(CONFIG_MAPS).find("last-word", "default"))

    second.manager.add(Look())
    ready = threading.Event()

    class Plain:
        def run(self, stop: StopToken) -> None:
            ready.set()

    second.manager.add(Plain(), needs_leader=False)
    second.start()
    assert ready.wait(LIMIT)
    server.install(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "last-word", "namespace": "default"},
        }
    )
    first.end()
    assert second.manager.elected.wait(LIMIT)
    second.end()
    assert found != [None]
    assert len(found) == 1


@pytest.mark.rule("OP-21")
def test_without_election_it_begins_with_what_was_written_while_caches_were_filled(
    server: ApiServer, replica: MakeReplica
) -> None:
    only = replica("only", election=False)
    server.faults.add(Fault(verb="watch", resource="configmaps", user_agent="only", stall_after=1))
    found: list[object] = []

    class LastWord:
        """What is started when all caches have been filled, and waited for."""

        name = "last-word"

        def start(self, requests: RequestQueue) -> None:
            server.install(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": self.name, "namespace": "default"},
                }
            )
            requests.add(Request("default", self.name))

        def wait_for_sync(self, timeout: float | None, stop: StopToken) -> bool:
            return True

        def stop(self) -> None:
            pass

    class Look(Reconciler):
        def reconcile(self, request: Request) -> Result:
            found.append(only.manager.lister(CONFIG_MAPS).find(request.name, request.namespace))
            only.stop.stop("seen")
            return DONE

    controller = Controller("look", Look(), options=ControllerOptions(warm_up=True))
    controller.watch(LastWord())
    only.manager.add_controller(controller)
    only.start().join()
    assert found != [None]
    assert len(found) == 1
