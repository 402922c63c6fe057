"""Coordinated leader election: candidates of two versions, one lease."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from tests.cases.waiting import wait_for

from navarchos.client import Client
from navarchos.clock import SYSTEM_CLOCK
from navarchos.leaderelection import LEASE_CANDIDATES, LEASES, Coordination, LeaseLost
from navarchos.meta import format_micro_time
from navarchos.runtime import LeaderElectionOptions, Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.testing.controlplane import ControlPlane
from navarchos.threads import ThreadGroup

GATE: Final = (
    "--feature-gates=CoordinatedLeaderElection=true",
    "--runtime-config=coordination.k8s.io/v1beta1=true",
)
LEASE: Final = "coordinated"
NAMESPACE: Final = "default"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(
        controllers=False, scheduler=False, arguments={"kube-apiserver": GATE}
    ) as plane:
        yield plane


class Member:
    """A manager with an emulated version, in a thread; it records when it leads."""

    leading: Final[list[str]] = []

    def __init__(self, plane: ControlPlane, name: str, version: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.stop = StopToken()
        self._client = plane.client(user_agent=name)
        lease = LeaderElectionOptions(
            LEASE, NAMESPACE, identity=name, coordination=Coordination("1.5.0", version)
        )
        self.manager = Manager(self._client, options=ManagerOptions(leader_election=lease))
        self.manager.add(self)
        self._threads = ThreadGroup(name, stop=StopToken())
        self._threads.start("", self._run)

    def run(self, stop: StopToken) -> None:
        """Lead until the stop. Only one member can lead at a time."""
        self.leading.append(self.name)
        assert self.leading == [self.name]
        stop.wait()
        self.leading.remove(self.name)

    def leads(self) -> bool:
        return self.leading == [self.name]

    def end(self) -> None:
        self.stop.stop("the test is over")
        assert self._threads.join(60)
        self._client.close()

    def _run(self) -> None:
        try:
            self.manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error


@pytest.fixture
def member(plane: ControlPlane) -> Iterator[Callable[[str, str], Member]]:
    with ExitStack() as stack:

        def make(name: str, version: str) -> Member:
            made = Member(plane, name, version)
            stack.callback(made.end)
            return made

        yield make


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    with plane.client() as client:
        yield client


def spec(client: Client) -> dict[str, Any]:
    found: Any = client.resource(LEASES).get(LEASE, NAMESPACE)["spec"]
    assert isinstance(found, dict)
    return found


@pytest.mark.rule("LE-22")
@pytest.mark.timeout(300)
def test_the_oldest_version_leads_and_the_next_one_follows(
    member: Callable[[str, str], Member], client: Client
) -> None:
    # A lease of the ordinary election; the server must accept it.
    client.resource(LEASES).create(
        {"metadata": {"name": LEASE}, "spec": {"leaseDurationSeconds": 1}}, NAMESPACE
    )
    new = member("new", "1.5.0")
    wait_for("the only candidate to lead", new.leads)
    assert spec(client)["strategy"] == "OldestEmulationVersion"
    old = member("old", "1.4.0")
    # The server prefers the older version; the holder releases the lease and stops.
    wait_for("the older version to lead", old.leads, timeout=90)
    assert isinstance(new.error, LeaseLost)
    candidates = client.resource(LEASE_CANDIDATES)
    ping = format_micro_time(SYSTEM_CLOCK.now())
    candidates.patch("old", {"spec": {"pingTime": ping}}, NAMESPACE)
    wait_for(
        "an answer to the ping, long before the five minutes of a renewal",
        lambda: candidates.get("old", NAMESPACE)["spec"]["renewTime"] > ping,
    )
    again = member("again", "1.5.0")
    wait_for(
        "the third candidate",
        lambda: (
            {each["metadata"]["name"] for each in candidates.list(NAMESPACE).items}
            == {"old", "again"}
        ),
    )
    old.end()
    assert old.error is None
    wait_for("the next one to lead", again.leads, timeout=90)
    again.end()
    assert again.error is None
    assert candidates.list(NAMESPACE).items == []
    assert spec(client)["leaseDurationSeconds"] == 1
