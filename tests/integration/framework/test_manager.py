"""The manager as it runs in production: real sockets, real time, a real election."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.integration.framework.kinds import CONFIG_MAPS, LEASES, ConfigMap
from tests.integration.framework.waiting import LIMIT, until
from tests.replicas import LEASE, Replica
from tests.servers import Served

from navarchos.client import Client, ResourceClient
from navarchos.errors import ConfigError
from navarchos.events import EventType
from navarchos.leaderelection import Coordination, LeaseLost, NotLeading
from navarchos.runtime import (
    DONE,
    Builder,
    Controller,
    ControllerOptions,
    LeaderElectionOptions,
    ManagerOptions,
    Reconciler,
    Request,
    Result,
)
from navarchos.runtime.httpserver import HttpResponse
from navarchos.stopping import StopToken
from navarchos.testing.faultproxy import FaultProxy, WireFault, WireFaultKind
from navarchos.testing.managers import running_manager

MakeReplica = Callable[..., Replica]


@pytest.fixture
def replica(served: Served, namespace: str) -> Iterator[MakeReplica]:
    made: list[Replica] = []

    def make(name: str, *, host: str = "", **options: Any) -> Replica:
        config = replace(served.config, host=host or served.config.host)
        made.append(Replica(config, namespace, name, **{"election": False, **options}))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def maps(client: Client) -> ResourceClient[ConfigMap]:
    return client.resource(CONFIG_MAPS)


@pytest.fixture
def create(maps: ResourceClient[ConfigMap], namespace: str) -> Callable[[str], ConfigMap]:
    return lambda name: maps.create({"metadata": {"name": name}}, namespace)


@pytest.fixture
def data(maps: ResourceClient[ConfigMap], namespace: str) -> Callable[[str], Mapping[str, str]]:
    return lambda name: maps.get(name, namespace).data


def test_a_controller_does_its_work_and_shows_it(
    create: Callable[[str], ConfigMap], data: Callable[[str], object], replica: MakeReplica
) -> None:
    create("before")
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
    assert data("before") == {"by": "one"}


class Collect(Reconciler):
    """Collects the names of the objects that it reconciles."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def reconcile(self, request: Request) -> Result:
        self.names.add(request.name)
        return DONE


def follower(
    replica: MakeReplica, options: ControllerOptions, given_to: str
) -> tuple[Replica, Controller, Collect]:
    """A replica that does not lead, and a controller whose options come from one of two places."""
    first = replica("first", election=True).start()
    assert first.manager.elected.wait(LIMIT)
    inherited = options if given_to == "manager" else ControllerOptions()
    second = replica("second", election=True, controllers=inherited)
    collect = Collect()
    own = options if given_to == "builder" else None
    controller = Builder(second.manager, "own", options=own).for_(CONFIG_MAPS).build(collect)
    return second.start(), controller, collect


@pytest.mark.rule("CT-02")
@pytest.mark.parametrize("given_to", ["manager", "builder"])
def test_a_controller_without_leader_election_reconciles_in_a_follower(
    create: Callable[[str], ConfigMap], replica: MakeReplica, given_to: str
) -> None:
    create("map")
    options = ControllerOptions(needs_leader_election=False)
    second, _, collect = follower(replica, options, given_to)
    until(lambda: "map" in collect.names)
    assert not second.manager.elected.is_set()


@pytest.mark.rule("CT-02", "CT-08")
@pytest.mark.parametrize("given_to", ["manager", "builder"])
def test_a_controller_with_warm_up_has_a_full_queue_in_a_follower(
    create: Callable[[str], ConfigMap], replica: MakeReplica, given_to: str
) -> None:
    create("map")
    second, controller, collect = follower(replica, ControllerOptions(warm_up=True), given_to)
    until(lambda: len(controller.queue) > 0)
    assert not second.manager.elected.is_set()
    assert collect.names == set()


@pytest.mark.rule("OP-63")
def test_another_replica_acts_when_the_leader_ends(
    create: Callable[[str], ConfigMap], data: Callable[[str], object], replica: MakeReplica
) -> None:
    first, second = replica("first", election=True), replica("second", election=True)
    first.start()
    assert first.manager.elected.wait(LIMIT)
    second.start()
    create("a")
    assert first.copier.marked.wait(LIMIT)
    assert not second.manager.elected.is_set()
    assert second.get("/healthz/leaderElection", health=True) == (200, "ok")
    first.end()
    assert first.error is None
    assert second.manager.elected.wait(LIMIT)
    create("b")
    assert second.copier.marked.wait(LIMIT)
    assert (data("a"), data("b")) == ({"by": "first"}, {"by": "second"})


@pytest.mark.rule("OP-63")
def test_a_follower_notices_a_released_lease(
    create: Callable[[str], ConfigMap], data: Callable[[str], object], replica: MakeReplica
) -> None:
    """Its next try would come long after this test's patience; a rolling update waits for none."""
    slow = {"election": True, "renew_deadline": 300.0, "retry_period": 200.0}
    replicas = [replica(name, **slow) for name in ("first", "second", "third")]
    replicas[0].start()
    assert replicas[0].manager.elected.wait(LIMIT)
    for leader, standby in pairwise(replicas):
        standby.start()
        until(lambda: standby.get("/readyz", health=True)[0] == 200)  # noqa: B023 - called at once
        leader.end()
        assert leader.error is None
        assert standby.manager.elected.wait(LIMIT)
    create("a")
    assert replicas[-1].copier.marked.wait(LIMIT)
    assert data("a") == {"by": "third"}


@pytest.mark.rule("IF-08")
def test_a_standbys_caches_are_filled_and_followed(
    namespace: str, create: Callable[[str], ConfigMap], replica: MakeReplica
) -> None:
    leader, standby = (replica(name, election=True) for name in ("leader", "standby"))
    leader.start()
    assert leader.manager.elected.wait(LIMIT)
    create("before")
    standby.start()
    until(lambda: standby.get("/readyz", health=True)[0] == 200)
    lister = standby.manager.lister(CONFIG_MAPS)
    until(lambda: lister.find("before", namespace) is not None)
    create("after")
    until(lambda: lister.find("after", namespace) is not None)
    assert not standby.manager.elected.is_set()
    assert not standby.copier.marked.is_set()


@pytest.mark.rule("MG-10")
def test_a_lost_lease_is_raised_without_a_grace_period(
    network: FaultProxy, replica: MakeReplica
) -> None:
    one = replica("one", host=network.url, election=True, renew_deadline=1.5)
    gate = threading.Event()

    class Stubborn:
        def run(self, stop: StopToken) -> None:
            gate.wait(LIMIT)

    one.manager.add(Stubborn())
    one.start()
    assert one.manager.elected.wait(LIMIT)
    network.refuse()
    network.strike(WireFault(WireFaultKind.RESET))
    one.join()
    assert isinstance(one.error, LeaseLost)
    gate.set()
    sample = one.manager.instruments.registry.get_sample_value
    assert sample("leader_election_master_status", {"name": "copier"}) == 0


@pytest.mark.rule("MG-12")
def test_the_lease_is_held_until_the_guarded_work_has_ended(
    client: Client, namespace: str, replica: MakeReplica
) -> None:
    leases = client.resource(LEASES)
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
    renewed = leases.get(LEASE, namespace)
    assert renewed["spec"]["holderIdentity"] == "one"
    until(lambda: leases.get(LEASE, namespace)["spec"]["renewTime"] > renewed["spec"]["renewTime"])
    gate.set()
    one.join()
    assert one.error is None
    assert not leases.get(LEASE, namespace)["spec"].get("holderIdentity")


@pytest.mark.rule("MG-02")
@pytest.mark.rule("MG-11")
def test_a_manager_that_was_never_elected_starts_nothing_when_it_ends(
    replica: MakeReplica,
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


@pytest.mark.rule("RT-20")
def test_writes_are_not_sent_once_another_process_may_lead(
    network: FaultProxy,
    maps: ResourceClient[ConfigMap],
    namespace: str,
    replica: MakeReplica,
) -> None:
    """Work may go on after the lease is lost, as no thread can be killed; its writes do not."""
    one = replica("one", host=network.url, election=True, renew_deadline=1.5)
    led, told, gate, done = (threading.Event() for _ in range(4))
    refused: list[BaseException] = []

    class Stubborn:
        def run(self, stop: StopToken) -> None:
            cached, direct = (
                one.manager.cached_client(CONFIG_MAPS),
                one.manager.client.resource(CONFIG_MAPS),
            )
            cached.create(named("while-leading"), namespace)
            led.set()
            stop.wait()
            told.set()
            gate.wait(LIMIT)
            for write in (cached.create, direct.create):
                try:
                    write(named("too-late"), namespace)
                except NotLeading as error:
                    refused.append(error)
            unfenced = one.manager.cached_client(CONFIG_MAPS, needs_leader=False)
            unfenced.create(named("without-a-fence"), namespace)
            done.set()

    one.manager.add(Stubborn())
    one.start()
    # Not when the object is there: its answer may still be on the way, and would be cut off.
    assert led.wait(LIMIT)
    network.refuse()
    network.strike(WireFault(WireFaultKind.RESET))
    assert told.wait(LIMIT)
    one.join()
    assert isinstance(one.error, LeaseLost)
    network.heal()
    gate.set()
    assert done.wait(LIMIT)
    assert len(refused) == 2
    names = {each.metadata.name for each in maps.list(namespace).items}
    assert names >= {"while-leading", "without-a-fence"}
    assert "too-late" not in names


@pytest.mark.rule("MG-16")
def test_added_pages_cannot_replace_the_metrics(
    replica: MakeReplica,
) -> None:
    one = replica("one")
    one.manager.add_metrics_page("/state", lambda _, query: HttpResponse.text(200, query["of"][0]))
    for taken in ("/metrics", "/state"):
        with pytest.raises(ConfigError, match="another page has this path"):
            one.manager.add_metrics_page(taken, lambda *_: HttpResponse.text(200, "mine"))
    with pytest.raises(ConfigError, match="must begin with a slash"):
        one.manager.add_metrics_page("state", lambda *_: HttpResponse.text(200, "mine"))
    one.start()
    assert one.manager.elected.wait(LIMIT)
    assert one.get("/state?of=things") == (200, "things")
    assert "process_cpu_seconds_total" in one.get("/metrics")[1]


@pytest.mark.rule("MG-19")
def test_a_manager_leaves_the_settings_of_its_client_alone(
    replica: MakeReplica, served: Served
) -> None:
    """The election has a separate client, without limits; the given client keeps its limits."""
    one = replica("one", election=True)
    before = one.client.config
    kept = replace(before)
    one.start()
    assert one.manager.elected.wait(LIMIT)
    one.end()
    assert one.client.config is before
    assert before == kept
    assert (before.qps, before.burst) == (served.config.qps, served.config.burst)


@pytest.mark.rule("MG-20")
def test_a_manager_offers_all_that_a_controller_needs(
    client: Client, namespace: str, create: Callable[[str], ConfigMap], replica: MakeReplica
) -> None:
    create("a")
    one = replica("one", election=True)
    manager = one.manager
    informer = manager.informer(CONFIG_MAPS)
    informer.add_indexers({"name": lambda each: (each.metadata.name,)})
    seen: dict[str, object] = {}
    looked = threading.Event()

    class Look:
        def run(self, stop: StopToken) -> None:
            cached = manager.lister(CONFIG_MAPS).get("a", namespace)
            found = informer.lister.by_index("name", "a")
            seen["config"] = manager.client.config.host
            seen["live"] = manager.client.resource(CONFIG_MAPS).get("a", namespace).metadata.uid
            seen["cache"] = cached.metadata.uid
            seen["index"] = [o.metadata.uid for o in found if o.metadata.namespace == namespace]
            seen["kind"] = manager.client.has_kind(CONFIG_MAPS)
            manager.recorder.record(CONFIG_MAPS, cached, EventType.NORMAL, "Seen", "it is there")
            looked.set()

    manager.add(Look())
    one.start()
    assert looked.wait(LIMIT)
    assert manager.elected.wait(LIMIT)
    one.end()
    assert one.error is None
    uid = client.resource(CONFIG_MAPS).get("a", namespace).metadata.uid
    host = client.config.host
    assert seen == {"config": host, "live": uid, "cache": uid, "index": [uid], "kind": True}
    answer = client.raw("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    assert b'"Seen"' in answer.body


def named(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}}


@pytest.mark.rule("LE-22")
def test_candidates_compete_where_the_server_does_not_elect(
    served: Served, namespace: str, client: Client
) -> None:
    coordination = Coordination("1.2.3")
    lease = LeaderElectionOptions("fallback", namespace, coordination=coordination)
    options = ManagerOptions(leader_election=lease)
    with running_manager(lambda _: None, served.config, options=options) as manager:
        assert manager.elected.wait(LIMIT)
        assert client.resource(LEASES).get("fallback", namespace)["spec"]["leaseTransitions"] == 0
    assert not client.resource(LEASES).get("fallback", namespace)["spec"].get("holderIdentity")
