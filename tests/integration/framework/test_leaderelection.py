"""Electors and one Lease on an API server, over HTTP and in real time."""

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.framework.kinds import LEASES
from tests.integration.framework.waiting import LIMIT
from tests.servers import Served

from navarchos.client import Client, ClientConfig
from navarchos.leaderelection import (
    ElectorOptions,
    LeaderCallbacks,
    LeaderElector,
    LeaseLock,
    LeaseLost,
    LeaseTiming,
)
from navarchos.stopping import StopToken
from navarchos.testing.faultproxy import FaultProxy, WireFault, WireFaultKind
from navarchos.threads import ThreadGroup

LEASE = "elected"


class Member:
    """An elector with a separate client, named in its user agent."""

    def __init__(self, config: ClientConfig, namespace: str, identity: str) -> None:
        self.identity = identity
        self.stop = StopToken()
        self.token: StopToken | None = None
        self.leads = threading.Event()
        self.outcome: BaseException | None = None
        self.client = Client(replace(config, user_agent=identity))
        lock = LeaseLock(self.client, namespace, LEASE, identity, {"app": "test"})
        self.elector = LeaderElector(
            lock,
            LeaderCallbacks(on_started_leading=self._work),
            options=ElectorOptions(timing=LeaseTiming(2.0, 1.5, 0.1)),
        )
        self._threads = ThreadGroup(f"member-{identity}", stop=StopToken())

    def start(self) -> None:
        self._threads.start("", self._run)

    def join(self) -> bool:
        return self._threads.join(LIMIT) and self.elector.join(LIMIT)

    def end(self) -> None:
        self.stop.stop("the test is over")
        self.join()
        self.client.close()

    def _run(self) -> None:
        try:
            self.elector.run(self.stop)
        except LeaseLost as error:
            self.outcome = error

    def _work(self, stop: StopToken) -> None:
        self.token = stop
        self.leads.set()
        stop.wait()


MakeMember = Callable[..., Member]


@pytest.fixture
def member(served: Served, namespace: str) -> Iterator[MakeMember]:
    made: list[Member] = []

    def make(identity: str, host: str = "") -> Member:
        config = replace(served.config, host=host or served.config.host)
        made.append(Member(config, namespace, identity))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def lease(client: Client, namespace: str) -> Callable[[], Any]:
    """Read the lease."""
    return lambda: client.resource(LEASES).get(LEASE, namespace)


@pytest.mark.rule("LE-17")
@pytest.mark.rule("OP-63")
def test_a_stopped_leader_has_a_successor(member: MakeMember, lease: Callable[[], Any]) -> None:
    one, two = member("one"), member("two")
    one.start()
    assert one.leads.wait(LIMIT)
    two.start()
    one.stop.stop("rolled")
    assert one.join()
    assert one.outcome is None
    assert two.leads.wait(LIMIT)
    found = lease()
    assert found["spec"]["holderIdentity"] == "two"
    assert found["spec"]["leaseTransitions"] == 1
    assert found["metadata"]["labels"] == {"app": "test"}


@pytest.mark.rule("LE-03")
@pytest.mark.rule("LE-17")
def test_a_released_lease_is_one_that_the_server_accepts(
    member: MakeMember, lease: Callable[[], Any]
) -> None:
    one = member("one")
    one.start()
    assert one.leads.wait(LIMIT)
    one.stop.stop()
    assert one.join()
    spec = lease()["spec"]
    assert "holderIdentity" not in spec
    assert spec["leaseDurationSeconds"] == 1
    assert re.fullmatch(r".{19}\.\d{6}Z", spec["renewTime"])


@pytest.mark.rule("LE-17")
def test_two_electors_hand_over_to_and_fro(member: MakeMember, lease: Callable[[], Any]) -> None:
    leader = member("m0")
    leader.start()
    assert leader.leads.wait(LIMIT)
    for number in range(1, 4):
        successor = member(f"m{number}")
        successor.start()
        assert not successor.leads.is_set()
        leader.stop.stop("rolled")
        assert leader.join()
        assert successor.leads.wait(LIMIT)
        assert not leader.elector.is_leader()
        leader = successor
    assert lease()["spec"]["holderIdentity"] == "m3"
    assert lease()["spec"]["leaseTransitions"] == 3


def test_the_lease_of_one_that_vanished_is_taken_when_it_is_over(
    client: Client, namespace: str, member: MakeMember, lease: Callable[[], Any]
) -> None:
    """The time since the last renewal counts, not the timestamp in the lease."""
    spec = {
        "holderIdentity": "gone",
        "leaseDurationSeconds": 1,
        "acquireTime": "2099-01-01T00:00:00.000000Z",
        "renewTime": "2099-01-01T00:00:00.000000Z",
        "leaseTransitions": 7,
    }
    client.resource(LEASES).create({"metadata": {"name": LEASE}, "spec": spec}, namespace)
    one = member("one")
    one.start()
    assert one.leads.wait(LIMIT)
    assert lease()["spec"]["holderIdentity"] == "one"
    assert lease()["spec"]["leaseTransitions"] == 8


def test_a_leader_whose_lease_is_taken_stops(
    client: Client, namespace: str, member: MakeMember
) -> None:
    one = member("one")
    one.start()
    assert one.leads.wait(LIMIT)
    taken = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}}
    client.resource(LEASES).patch(LEASE, taken, namespace)
    assert one.join()
    assert isinstance(one.outcome, LeaseLost)
    assert one.token is not None
    assert one.token.is_set()
    assert client.resource(LEASES).get(LEASE, namespace)["spec"]["holderIdentity"] == "thief"


@pytest.mark.rule("LE-12")
@pytest.mark.rule("OP-63")
def test_a_leader_that_is_cut_off_stops_before_the_other_begins(
    network: FaultProxy, member: MakeMember, lease: Callable[[], Any]
) -> None:
    one, two = member("one", network.url), member("two")
    one.start()
    assert one.leads.wait(LIMIT)
    two.start()
    network.refuse()
    network.strike(WireFault(WireFaultKind.RESET))
    assert two.leads.wait(LIMIT)
    assert one.token is not None
    assert one.token.is_set()
    assert one.join()
    assert isinstance(one.outcome, LeaseLost)
    assert not one.elector.is_leader()
    assert lease()["spec"]["leaseTransitions"] == 1
