"""A watch says when what it shows may be out of date (A6)."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from navarchos.cli.follower import (
    CHECK_INTERVAL,
    Freshness,
    FreshnessNotifier,
    leader_warning,
    open_follower,
)
from navarchos.cli.summary import Summary, summary_lines
from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK
from navarchos.leaderelection import LEASES
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.apiserver import ApiServer, Fault

PATIENCE = 30.0


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=manifests()) as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(host=server.url)) as client:
        yield client


class Watched:
    is_stale = False


def lease(server: ApiServer, renewed_ago: float, holder: str = "navarchos-1") -> None:
    renewed = datetime.now(UTC) - timedelta(seconds=renewed_ago)
    spec = {"leaseDurationSeconds": 15, "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}"}
    if holder:
        spec["holderIdentity"] = holder
    metadata = {"name": "navarchos-leader-election", "namespace": "kube-system"}
    server.install(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }
    )


def wait_for(what: Callable[[], str]) -> str:
    limit, waiting = SYSTEM_CLOCK.monotonic() + PATIENCE, StopToken()
    while not (said := what()):
        assert SYSTEM_CLOCK.monotonic() < limit
        waiting.wait(0.02)
    return said


def test_a_manager_that_renews_its_lease_or_has_none_is_not_doubted(
    server: ApiServer, client: Client
) -> None:
    assert leader_warning(client) == ""
    lease(server, renewed_ago=5)
    assert leader_warning(client) == ""


@pytest.mark.parametrize(("ago", "holder"), [(600, "navarchos-1"), (5, "")])
def test_a_lease_that_has_ended_or_was_given_up_is_told(
    server: ApiServer, client: Client, ago: float, holder: str
) -> None:
    lease(server, ago, holder)
    said = leader_warning(client)
    assert "no manager seems to be at work" in said
    assert "kube-system/navarchos-leader-election" in said


def test_a_caller_who_may_not_read_the_lease_is_told_nothing(
    server: ApiServer, client: Client
) -> None:
    lease(server, 600)
    server.faults.add(Fault(verb="get", resource="leases", status=403, times=None))
    assert leader_warning(client) == ""


def test_a_lost_watch_is_told_with_the_time_since_when_and_taken_back(client: Client) -> None:
    clock, watched = FakeClock(), Watched()
    freshness = Freshness(client, watched, clock=clock)
    assert freshness.out_of_date_because() == ""
    watched.is_stale = True
    said = freshness.out_of_date_because()
    assert said.startswith(f"{client.config.host} has not been heard of since ")
    clock.advance(60)
    assert freshness.out_of_date_because() == said, "the same fact has the same text"
    watched.is_stale = False
    assert freshness.out_of_date_because() == ""


def test_a_server_that_goes_away_makes_a_watch_stale(server: ApiServer, client: Client) -> None:
    with open_follower(client) as follower:
        freshness = Freshness(client, follower)
        assert freshness.out_of_date_because() == ""
        server.stop()
        assert "has not been heard of" in wait_for(freshness.out_of_date_because)


def test_what_is_stale_is_said_below_what_is_shown() -> None:
    lines = summary_lines(
        Summary(rollouts=(), drains=(), out_of_date_because="why"), datetime.now(UTC)
    )
    assert lines[-1] == "this may be out of date: why"


def test_whoever_waits_is_told_once_that_nobody_is_at_work_and_once_that_somebody_is_again(
    server: ApiServer, client: Client, fake_clock: FakeClock
) -> None:
    said: list[str] = []
    notice = FreshnessNotifier(Freshness(client, Watched(), clock=fake_clock), said.append)
    notice.poll()
    assert said == []
    lease(server, 600)
    for _ in range(2):
        fake_clock.advance(CHECK_INTERVAL)
        notice.poll()
    assert len(said) == 1
    assert said[0].startswith("this may be out of date: no manager seems to be at work")
    client.resource(LEASES).delete("navarchos-leader-election", "kube-system")
    fake_clock.advance(CHECK_INTERVAL)
    notice.poll()
    assert said[1:] == ["up to date again"]
