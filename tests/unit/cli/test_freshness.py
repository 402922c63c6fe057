"""A watch says when what it shows may be out of date (A6)."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from navarchos.cli.progress.following import following
from navarchos.cli.progress.freshness import EVERY, Freshness, Notice, why_not_current
from navarchos.cli.progress.summary import Summary
from navarchos.cli.progress.text import summary_lines
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
    assert why_not_current(client) == ""
    lease(server, renewed_ago=5)
    assert why_not_current(client) == ""


@pytest.mark.parametrize(("ago", "holder"), [(600, "navarchos-1"), (5, "")])
def test_a_lease_that_has_ended_or_was_given_up_is_told(
    server: ApiServer, client: Client, ago: float, holder: str
) -> None:
    lease(server, ago, holder)
    said = why_not_current(client)
    assert "no manager seems to be at work" in said
    assert "kube-system/navarchos-leader-election" in said


def test_a_caller_who_may_not_read_the_lease_is_told_nothing(
    server: ApiServer, client: Client
) -> None:
    lease(server, 600)
    server.faults.add(Fault(verb="get", resource="leases", status=403, times=None))
    assert why_not_current(client) == ""


def test_a_lost_watch_is_told_with_the_time_since_when_and_taken_back(client: Client) -> None:
    clock, watched = FakeClock(), Watched()
    freshness = Freshness(client, watched, clock=clock)
    assert freshness.why_stale() == ""
    watched.is_stale = True
    said = freshness.why_stale()
    assert said.startswith(f"{client.config.host} has not been heard of since ")
    clock.advance(60)
    assert freshness.why_stale() == said, "the same fact has the same text"
    watched.is_stale = False
    assert freshness.why_stale() == ""


def test_a_server_that_goes_away_makes_a_watch_stale(server: ApiServer, client: Client) -> None:
    with following(client) as follower:
        freshness = Freshness(client, follower)
        assert freshness.why_stale() == ""
        server.stop()
        assert "has not been heard of" in wait_for(freshness.why_stale)


def test_what_is_stale_is_said_below_what_is_shown() -> None:
    lines = summary_lines(Summary(rollouts=(), drains=(), stale="why"), datetime.now(UTC))
    assert lines[-1] == "this may be out of date: why"


def test_whoever_waits_is_told_once_that_nobody_is_at_work_and_once_that_somebody_is_again(
    server: ApiServer, client: Client, fake_clock: FakeClock
) -> None:
    said: list[str] = []
    notice = Notice(Freshness(client, Watched(), clock=fake_clock), said.append)
    notice.look()
    assert said == []
    lease(server, 600)
    for _ in range(2):
        fake_clock.advance(EVERY)
        notice.look()
    assert len(said) == 1
    assert said[0].startswith("this may be out of date: no manager seems to be at work")
    client.resource(LEASES).delete("navarchos-leader-election", "kube-system")
    fake_clock.advance(EVERY)
    notice.look()
    assert said[1:] == ["up to date again"]
