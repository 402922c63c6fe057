"""Two electors and one Lease on a server, over HTTP and in real time."""

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from navarchos.client import Client, ClientConfig
from navarchos.leaderelection import LeaderElector, LeaseLock, LeaseLost
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.threads import ThreadGroup

_LONG = 30.0


class Member:
    """An elector with a client of its own, named in its user agent."""

    def __init__(self, server: ApiServer, identity: str) -> None:
        self.identity = identity
        self.stop = StopToken()
        self.token: StopToken | None = None
        self.leads = threading.Event()
        self.outcome: BaseException | None = None
        self.client = Client(ClientConfig(server.url, user_agent=identity))
        lock = LeaseLock(self.client, "kube-system", "test", identity, {"app": "test"})
        self.elector = LeaderElector(
            lock,
            lease_duration=2.0,
            renew_deadline=0.8,
            retry_period=0.1,
            on_started_leading=self._work,
            on_stopped_leading=lambda: None,
        )
        self._threads = ThreadGroup(f"member-{identity}", stop=StopToken())

    def start(self) -> None:
        self._threads.start("", self._run)

    def join(self) -> bool:
        return self._threads.join(_LONG) and self.elector.join(_LONG)

    def end(self) -> None:
        self.stop.stop("test over")
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


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def member(server: ApiServer) -> Iterator[Callable[[str], Member]]:
    made: list[Member] = []

    def make(identity: str) -> Member:
        made.append(Member(server, identity))
        return made[-1]

    yield make
    for each in made:
        each.end()


def lease_of(server: ApiServer) -> Any:
    return server.get("leases", "test", "kube-system", "coordination.k8s.io")


@pytest.mark.rule("LE-17")
@pytest.mark.rule("OP-63")
def test_leadership_is_handed_over_on_a_stop(
    server: ApiServer, member: Callable[[str], Member]
) -> None:
    one, two = member("one"), member("two")
    one.start()
    assert one.leads.wait(_LONG)
    two.start()
    one.stop.stop("rolled")
    assert one.join()
    assert one.outcome is None
    assert two.leads.wait(_LONG)
    lease = lease_of(server)
    assert lease["spec"]["holderIdentity"] == "two"
    assert lease["spec"]["leaseTransitions"] == 1
    assert lease["metadata"]["labels"] == {"app": "test"}


@pytest.mark.rule("LE-03")
@pytest.mark.rule("LE-17")
def test_a_released_lease_is_one_that_the_server_accepts(
    server: ApiServer, member: Callable[[str], Member]
) -> None:
    one = member("one")
    one.start()
    assert one.leads.wait(_LONG)
    one.stop.stop()
    assert one.join()
    spec = lease_of(server)["spec"]
    assert "holderIdentity" not in spec
    assert spec["leaseDurationSeconds"] == 1
    assert re.fullmatch(r".{19}\.\d{6}Z", spec["renewTime"])


@pytest.mark.rule("LE-12")
@pytest.mark.rule("OP-63")
def test_a_leader_that_is_cut_off_stops_before_the_other_begins(
    server: ApiServer, member: Callable[[str], Member]
) -> None:
    one, two = member("one"), member("two")
    one.start()
    assert one.leads.wait(_LONG)
    two.start()
    server.faults.add(Fault(user_agent="one", reset=True, times=None))
    assert two.leads.wait(_LONG)
    assert one.token is not None
    assert one.token.is_set()
    assert one.join()
    assert isinstance(one.outcome, LeaseLost)
    assert not one.elector.is_leader()
    assert lease_of(server)["spec"]["leaseTransitions"] == 1
