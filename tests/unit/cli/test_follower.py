"""The commands report when their output may be out of date (A6)."""

from collections.abc import Iterator
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
from navarchos.leaderelection import LEASES
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.testing import FakeClock
from navarchos.testing.apiserver import ApiServer, Fault

LIMIT = 30.0


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=manifests()) as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(host=server.url)) as client:
        yield client


class Watched:
    is_disconnected = False


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


def test_a_renewed_lease_and_a_missing_lease_give_no_warning(
    server: ApiServer, client: Client
) -> None:
    assert leader_warning(client) == ""
    lease(server, renewed_ago=5)
    assert leader_warning(client) == ""


@pytest.mark.parametrize(("ago", "holder"), [(600, "navarchos-1"), (5, "")])
def test_an_expired_or_released_lease_gives_a_warning(
    server: ApiServer, client: Client, ago: float, holder: str
) -> None:
    lease(server, ago, holder)
    warning = leader_warning(client)
    assert "no active manager found" in warning
    assert "kube-system/navarchos-leader-election" in warning


def test_a_user_without_permission_to_read_the_lease_gets_no_warning(
    server: ApiServer, client: Client
) -> None:
    lease(server, 600)
    server.faults.add(Fault(verb="get", resource="leases", status=403, times=None))
    assert leader_warning(client) == ""


def test_a_lost_connection_is_reported_with_its_time_until_it_is_back(client: Client) -> None:
    clock, watched = FakeClock(), Watched()
    freshness = Freshness(client, watched, clock=clock)
    assert freshness.out_of_date_because() == ""
    watched.is_disconnected = True
    because = freshness.out_of_date_because()
    assert because.startswith(f"no response from {client.config.host} since ")
    clock.advance(60)
    assert freshness.out_of_date_because() == because, "the same cause has the same text"
    watched.is_disconnected = False
    assert freshness.out_of_date_because() == ""


def test_a_stopped_server_makes_the_output_out_of_date(server: ApiServer, client: Client) -> None:
    with open_follower(client) as follower:
        freshness = Freshness(client, follower)
        assert freshness.out_of_date_because() == ""
        server.stop()
        assert follower.wait_until(
            lambda: "no response from" in freshness.out_of_date_because(), LIMIT, every=0.05
        )


def test_the_last_line_says_that_the_output_may_be_out_of_date() -> None:
    lines = summary_lines(
        Summary(rollouts=(), drains=(), out_of_date_because="why"), datetime.now(UTC)
    )
    assert lines[-1] == "this may be out of date: why"


def test_a_waiting_command_reports_a_missing_manager_once_and_its_return_once(
    server: ApiServer, client: Client, fake_clock: FakeClock
) -> None:
    reported: list[str] = []
    notifier = FreshnessNotifier(Freshness(client, Watched(), clock=fake_clock), reported.append)
    notifier.poll()
    assert reported == []
    lease(server, 600)
    for _ in range(2):
        fake_clock.advance(CHECK_INTERVAL)
        notifier.poll()
    assert len(reported) == 1
    assert reported[0].startswith("this may be out of date: no active manager found")
    client.resource(LEASES).delete("navarchos-leader-election", "kube-system")
    fake_clock.advance(CHECK_INTERVAL)
    notifier.poll()
    assert reported[1:] == ["up to date again"]
