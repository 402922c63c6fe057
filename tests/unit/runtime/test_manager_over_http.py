"""The manager as it runs in production: real sockets, real time, a real election."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping

import pytest
from tests.unit.runtime.conftest import config_maps

from navarchos.client import Client, ClientConfig
from navarchos.leaderelection import LeaseLost
from navarchos.meta import Object
from navarchos.runtime import (
    DONE,
    Builder,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    Reconciler,
    Request,
    Result,
)
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.threads import ThreadGroup

LIMIT = 30.0


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


MAPS = config_maps(ConfigMap)


def manifest(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
    }


class Copier(Reconciler):
    """Marks each object, once, through the cache."""

    def __init__(self, manager: Manager, mark: str) -> None:
        self._maps = manager.writer(MAPS)
        self._mark = mark
        self.marked = threading.Event()

    def reconcile(self, request: Request) -> Result:
        found = self._maps.lister.find(request.name, request.namespace)
        if found is not None and "by" not in found.data:
            self._maps.patch(request.name, {"data": {"by": self._mark}}, request.namespace)
            self.marked.set()
        return DONE


class Replica:
    """One process of an operator, in a thread."""

    def __init__(
        self, server: ApiServer, name: str, *, election: bool, renew_deadline: float = 10.0
    ) -> None:
        self.client = Client(ClientConfig(server.url, user_agent=name))
        lease = LeaderElectionOptions(
            name="copier",
            namespace="kube-system",
            identity=name,
            lease_duration=1.5 * renew_deadline,
            renew_deadline=renew_deadline,
            retry_period=0.1,
        )
        options = ManagerOptions(
            metrics_address="127.0.0.1:0",
            health_address="127.0.0.1:0",
            leader_election=lease if election else None,
        )
        self.manager = Manager(self.client, options=options)
        self.copier = Copier(self.manager, name)
        Builder(self.manager, "copier").for_(MAPS).with_catch_up().build(self.copier)
        self.stop = StopToken()
        self.error: BaseException | None = None
        self._threads = ThreadGroup(f"replica-{name}", stop=StopToken())

    def start(self) -> "Replica":
        self._threads.start("", self._run)
        return self

    def join(self) -> "Replica":
        assert self._threads.join(LIMIT), self._threads.running()
        return self

    def end(self) -> None:
        self.stop.stop("the test is over")
        self.join()
        self.client.close()

    def get(self, path: str, *, health: bool = False) -> tuple[int, str]:
        port = self.manager.health_port if health else self.manager.metrics_port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def _run(self) -> None:
        try:
            self.manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(bookmark_interval=0.2) as server:
        yield server


@pytest.fixture
def replica(server: ApiServer) -> Iterator[Callable[..., Replica]]:
    made: list[Replica] = []

    def make(name: str, *, election: bool = False, renew_deadline: float = 10.0) -> Replica:
        made.append(Replica(server, name, election=election, renew_deadline=renew_deadline))
        return made[-1]

    yield make
    for each in made:
        each.end()


def data(server: ApiServer, name: str) -> object:
    return server.get("configmaps", name, "default").get("data")


def test_a_controller_does_its_work_and_shows_it(
    server: ApiServer, replica: Callable[..., Replica]
) -> None:
    server.install(manifest("before"))
    one = replica("one").start()
    assert one.manager.elected.wait(LIMIT)
    assert one.copier.marked.wait(LIMIT)
    assert one.get("/readyz", health=True) == (200, "ok")
    assert one.get("/healthz?verbose", health=True) == (
        200,
        "[+]ping ok\nhealthz check passed\n",
    )
    status, metrics = one.get("/metrics")
    assert status == 200
    assert one.get("/other")[0] == 404
    for line in (
        'controller_runtime_reconcile_total{controller="copier",result="error"} 0.0',
        'controller_runtime_max_concurrent_reconciles{controller="copier"} 1.0',
        'workqueue_depth{controller="copier",name="copier",priority="0"} 0.0',
        "process_cpu_seconds_total",
        "python_info",
        "navarchos_informer_objects",
    ):
        assert line in metrics, line
    one.end()
    assert one.error is None
    assert data(server, "before") == {"by": "one"}


@pytest.mark.rule("OP-63")
def test_another_replica_acts_when_the_leader_ends(
    server: ApiServer, replica: Callable[..., Replica]
) -> None:
    first, second = replica("first", election=True), replica("second", election=True)
    first.start()
    assert first.manager.elected.wait(LIMIT)
    second.start()
    server.install(manifest("a"))
    assert first.copier.marked.wait(LIMIT)
    assert not second.manager.elected.is_set()
    assert second.get("/healthz/leaderElection", health=True) == (200, "ok")
    first.end()
    assert first.error is None
    assert second.manager.elected.wait(LIMIT)
    server.install(manifest("b"))
    assert second.copier.marked.wait(LIMIT)
    assert (data(server, "a"), data(server, "b")) == ({"by": "first"}, {"by": "second"})


@pytest.mark.rule("MG-10")
def test_a_lost_lease_is_raised_without_a_grace_period(
    server: ApiServer, replica: Callable[..., Replica]
) -> None:
    one = replica("one", election=True, renew_deadline=1.0)
    gate = threading.Event()

    class Stubborn:
        def run(self, stop: StopToken) -> None:
            gate.wait(LIMIT)

    one.manager.add(Stubborn())
    one.start()
    assert one.manager.elected.wait(LIMIT)
    server.faults.add(Fault(resource="leases", status=500, times=None))
    one.join()
    assert isinstance(one.error, LeaseLost)
    gate.set()
    sample = one.manager.instruments.registry.get_sample_value
    assert sample("leader_election_master_status", {"name": "copier"}) == 0


@pytest.mark.rule("MG-12")
def test_the_lease_is_held_until_the_guarded_work_has_ended(
    server: ApiServer, replica: Callable[..., Replica]
) -> None:
    one = replica("one", election=True)
    told, gate = threading.Event(), threading.Event()

    class Slow:
        def run(self, stop: StopToken) -> None:
            stop.wait()
            told.set()
            gate.wait(LIMIT)

    one.manager.add(Slow())
    one.start()
    assert one.manager.elected.wait(LIMIT)
    one.stop.stop("asked to")
    assert told.wait(LIMIT)
    renewed = server.get("leases", "copier", "kube-system", "coordination.k8s.io")["spec"]
    assert renewed["holderIdentity"] == "one"
    changed = threading.Event()
    undo = server.subscribe(lambda change: changed.set())
    assert changed.wait(LIMIT), "the lease is no longer renewed"
    undo()
    gate.set()
    one.join()
    assert one.error is None
    released = server.get("leases", "copier", "kube-system", "coordination.k8s.io")["spec"]
    assert not released.get("holderIdentity")


@pytest.mark.rule("MG-11")
def test_a_manager_that_was_never_elected_starts_nothing_when_it_ends(
    server: ApiServer, replica: Callable[..., Replica]
) -> None:
    first = replica("first", election=True).start()
    assert first.manager.elected.wait(LIMIT)
    second = replica("second", election=True)
    ran = threading.Event()

    class Leading:
        def run(self, stop: StopToken) -> None:
            ran.set()

    second.manager.add(Leading())
    synced = threading.Event()

    class Plain:
        def run(self, stop: StopToken) -> None:
            synced.set()

    second.manager.add(Plain(), needs_leader=False)
    second.start()
    assert synced.wait(LIMIT)
    second.end()
    assert second.error is None
    assert not ran.is_set()
    assert not second.manager.elected.is_set()
