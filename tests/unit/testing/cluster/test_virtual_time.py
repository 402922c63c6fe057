"""A cluster in virtual time: hours pass only when the test moves the clock."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from navarchos.client import Client, RequestTimeout, WatchBroken
from navarchos.client.options import WatchOptions
from navarchos.informers import SharedInformer
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Change, Fault
from navarchos.testing.clock import FakeClock
from navarchos.testing.cluster import Cluster, ClusterOptions, Span
from navarchos.testing.cluster.kinds import JOBS, NODES, PODS
from navarchos.testing.cluster.pod_lifecycle import RUNS_FOR, TERMINATES_AFTER
from navarchos.threads import ThreadGroup

# The check of cached objects runs every second: six idle hours would be 21,600 deadlines.
pytestmark = pytest.mark.usefixtures("no_detector")

MINUTE, HOUR = 60.0, 3600.0
DONE = "example.com/replace"
SETTINGS: dict[str, Any] = {
    "nodes": 4,
    "pods_per_node": 5,
    "speed": 1.0,
    "terminate_label": DONE,
    "job_pod_run": Span(1e9, 1e9),
    "machine_termination": Span(2 * MINUTE, 2 * MINUTE),
    "machine_boot": Span(5 * MINUTE, 5 * MINUTE),
    "pod_start": Span(3.0, 3.0),
    "pod_termination": Span(10.0, 10.0),
}


class Play:
    """A cluster in virtual time, and a client."""

    def __init__(self, clock: FakeClock, server: ApiServer, cluster: Cluster) -> None:
        self.clock = clock
        self.server = server
        self.cluster = cluster
        self.client: Client = server.client(user_agent="a-person")

    def names(self, plural: str) -> set[str]:
        return {found["metadata"]["name"] for found in self.server.list(plural)}

    def create_pod(self, name: str, *, grace: int, ends_after: str) -> None:
        metadata = {"name": name, "annotations": {TERMINATES_AFTER: ends_after}}
        spec = {
            "containers": [{"name": "c", "image": "c:1"}],
            "terminationGracePeriodSeconds": grace,
        }
        self.client.resource(PODS).create({"metadata": metadata, "spec": spec}, "default")

    def create_job(self, name: str, *, runs_for: str) -> None:
        metadata = {"annotations": {RUNS_FOR: runs_for}}
        pod = {"containers": [{"name": "c", "image": "c:1"}], "restartPolicy": "Never"}
        spec = {"template": {"metadata": metadata, "spec": pod}}
        self.client.resource(JOBS).create({"metadata": {"name": name}, "spec": spec}, "default")


@contextmanager
def playing(**options: Any) -> Iterator[Play]:
    clock = FakeClock()
    server = ApiServer(clock=clock)
    with Cluster(server, options=ClusterOptions(**{**SETTINGS, **options})) as cluster:
        play = Play(clock, server, cluster)
        with play.client:
            cluster.populate()
            cluster.start()
            assert cluster.wait_until_ready()
            yield play
    assert cluster.violations == []


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> ApiServer:
    return ApiServer(clock=clock)


@pytest.fixture
def play() -> Iterator[Play]:
    with playing() as play:
        yield play


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_settled_cluster_begins_at_the_clocks_first_moment(play: Play) -> None:
    assert play.clock.now() == FakeClock().now()
    assert play.server.requests["patch"] == play.server.requests["delete"] == 0


def test_a_pod_ends_when_its_time_is_up_and_not_a_second_before(play: Play) -> None:
    play.create_pod("slow", grace=7200, ends_after="90m")
    assert play.cluster.wait_until_ready(MINUTE)
    told = play.clock.now()
    play.client.resource(PODS).evict("slow", "default")
    play.clock.advance(90 * MINUTE - 1)
    (slow,) = play.server.list("pods", "default")
    assert at(slow["metadata"]["deletionTimestamp"]) == (told + timedelta(hours=2)).replace(
        microsecond=0
    )
    play.clock.advance(1)
    assert play.server.list("pods", "default") == []


def test_no_pod_outlives_its_grace_period(play: Play) -> None:
    play.create_pod("stubborn", grace=1800, ends_after="90m")
    assert play.cluster.wait_until_ready(MINUTE)
    play.client.resource(PODS).evict("stubborn", "default")
    play.clock.advance(1800 - 1)
    assert play.server.list("pods", "default")
    play.clock.advance(1)
    assert play.server.list("pods", "default") == []


def test_a_job_of_an_hour_is_complete_after_an_hour(play: Play) -> None:
    play.create_job("hourly", runs_for="1h")
    play.clock.advance(HOUR)
    hourly = play.server.get("jobs", "hourly", "default", group="batch")
    assert "completionTime" not in hourly["status"]
    assert play.cluster.wait_until_ready(MINUTE)
    play.clock.advance(MINUTE)
    status = play.server.get("jobs", "hourly", "default", group="batch")["status"]
    assert status["succeeded"] == 1
    took = at(status["completionTime"]) - at(status["startTime"])
    assert took == timedelta(hours=1, seconds=SETTINGS["pod_start"].low)


def test_a_machine_goes_and_its_successor_comes_at_the_clouds_pace(play: Play) -> None:
    node = "node-2"
    play.client.resource(NODES).patch(node, {"metadata": {"labels": {DONE: "yes"}}})
    play.clock.advance(2 * MINUTE - 1)
    assert node in play.names("nodes")
    play.clock.advance(1)
    assert node not in play.names("nodes")
    play.clock.advance(5 * MINUTE - 1)
    assert "node-2-r1" not in play.names("nodes")
    play.clock.advance(1)
    assert "node-2-r1" in play.names("nodes")
    assert play.cluster.stats.nodes_replaced == 1


def test_waiting_for_readiness_moves_time_no_further_than_needed(play: Play) -> None:
    play.create_pod("new", grace=30, ends_after="1s")
    began = play.clock.monotonic()
    assert play.cluster.wait_until_ready(HOUR)
    assert play.clock.monotonic() - began <= SETTINGS["pod_start"].low + 1


def test_what_is_not_ready_in_time_took_exactly_that_time(play: Play) -> None:
    spec = {"nodeSelector": {"no": "node"}, "containers": [{"name": "c", "image": "c:1"}]}
    play.client.resource(PODS).create({"metadata": {"name": "lost"}, "spec": spec}, "default")
    began = play.clock.monotonic()
    assert not play.cluster.wait_until_ready(5 * MINUTE)
    assert play.clock.monotonic() - began == 5 * MINUTE


def test_hours_of_rest_write_nothing(play: Play) -> None:
    play.clock.advance(6 * HOUR)
    requests = play.server.requests
    assert {verb for verb, count in requests.items() if count} == {"list", "watch"}
    assert requests["list"] == 8, "watches are opened again where they ended"
    assert play.cluster.wait_until_ready()


def history() -> Counter[tuple[float, str, str, str]]:
    """Return the changes of nodes and pods in an hour with many events, with their times."""
    seen: Counter[tuple[float, str, str, str]] = Counter()
    with playing() as play:

        def note(change: Change) -> None:
            if change.resource.plural in {"nodes", "pods"}:
                labels = change.object["metadata"].get("labels", {})
                who = labels.get("app") or labels.get("kubernetes.io/hostname", "")
                phase = change.object["status"].get("phase", "")
                seen[play.clock.monotonic(), change.type, who, phase] += 1

        play.server.subscribe(note)
        play.create_job("hourly", runs_for="20m")
        play.client.resource(NODES).patch("node-1", {"metadata": {"labels": {DONE: "yes"}}})
        play.client.resource(PODS).evict("ledger-0", "billing")
        play.clock.advance(HOUR)
    return seen


def test_the_same_happens_at_the_same_times_in_every_run() -> None:
    first, again = history(), history()
    assert first == again
    assert len({when for when, *_ in first}) > 5


def test_a_fault_delays_a_request_by_its_time(clock: FakeClock, server: ApiServer) -> None:
    server.faults.add(Fault(resource="nodes", delay=HOUR, times=1))
    with server.client() as client:
        informer = SharedInformer(client.resource(NODES), clock=clock)
        informer.start()
        clock.advance(HOUR - 1)
        assert not informer.has_synced()
        clock.advance(1)
        assert informer.has_synced()
        informer.stop()
        assert informer.join(30)


def test_a_watch_that_falls_silent_is_given_up_when_its_reader_says_so(
    clock: FakeClock, server: ApiServer
) -> None:
    server.faults.add(Fault(verb="watch", stall_after=0, times=1))
    failures: list[Exception] = []
    with server.client() as client:
        stream = client.resource(NODES).watch(
            options=WatchOptions(resource_version="1", timeout_seconds=600)
        )

        def read() -> None:
            with pytest.raises(WatchBroken) as raised:
                next(stream)
            failures.append(raised.value)

        reader = ThreadGroup("reader", stop=StopToken(clock=clock), clock=clock)
        reader.start("", read)
        clock.advance(604)
        assert failures == []
        clock.advance(1)
        assert reader.join(30)
    assert isinstance(failures[0].__cause__, RequestTimeout)
