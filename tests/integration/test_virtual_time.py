"""Whole programs over virtual hours: the operator's manager, and a cluster in real speed."""

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.cases.manifests import API_VERSION

from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.setup import add_operator
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.clock import FakeClock
from navarchos.testing.cluster import Cluster, ClusterOptions, Span
from navarchos.testing.managers import running_manager

CONFIG = Path(__file__).parents[2] / "config"
MINUTE, HOUR = 60.0, 3600.0

SLOW = ClusterOptions(
    nodes=4,
    pods_per_node=5,
    speed=1.0,
    terminate_label=DRAIN_COMPLETED_LABEL,
    pod_start=Span(15 * MINUTE, 15 * MINUTE),
    job_pod_run=Span(1e9, 1e9),
    machine_termination=Span(5 * MINUTE, 5 * MINUTE),
    machine_boot=Span(10 * MINUTE, 10 * MINUTE),
)


@pytest.mark.rule("N-13")
@pytest.mark.usefixtures("no_detector")
def test_a_rollout_whose_pods_take_a_quarter_of_an_hour_completes_over_virtual_hours() -> None:
    clock = FakeClock()
    server = ApiServer(crds=[CONFIG / "crds"], clock=clock)
    with (
        Cluster(server, options=SLOW) as cluster,
        server.client(user_agent="navarchos") as client,
        server.client(user_agent="a-person") as person,
    ):
        cluster.populate()
        cluster.start()
        assert cluster.wait_until_ready()
        before = {node["metadata"]["name"] for node in server.list("nodes")}
        with running_manager(add_operator, client, clock=clock):
            rollout = {
                "apiVersion": API_VERSION,
                "kind": "NodeRollout",
                "metadata": {"name": "all"},
                "spec": {
                    "nodeSelectors": [{"matchAll": True}],
                    "drain": {"timeoutSeconds": 7200},
                    "strategy": {"pendingPodsTimeoutSeconds": 3600},
                },
            }
            person.resource(NODE_ROLLOUTS.projected(dict)).create(rollout)
            # Each node's pods have started on other nodes before the next node starts.
            clock.advance((SLOW.nodes - 1) * 15 * MINUTE)
            assert (
                server.get("noderollouts", "all", group=NODE_ROLLOUTS.group)["status"]["phase"]
                == "InProgress"
            )
            clock.advance(3 * HOUR)
            status = server.get("noderollouts", "all", group=NODE_ROLLOUTS.group)["status"]
    assert status["phase"] == "Completed"
    took = datetime.fromisoformat(status["completionTimestamp"]) - FakeClock().now()
    assert timedelta(minutes=45) < took < timedelta(hours=2)
    assert_each_node_waits_for_the_pods_of_the_one_before(server)
    assert before.isdisjoint(node["metadata"]["name"] for node in server.list("nodes"))
    assert cluster.violations == []


def assert_each_node_waits_for_the_pods_of_the_one_before(server: ApiServer) -> None:
    """A drain takes minutes, and the start of the evicted pods on other nodes takes longer."""
    found = server.list("nodereplacements", group=NODE_ROLLOUTS.group)
    spans = sorted(
        (each["status"]["startTimestamp"], each["status"]["completionTimestamp"]) for each in found
    )
    assert len(spans) == SLOW.nodes
    for (_, drained), (starts, _) in pairwise(spans):
        waited = datetime.fromisoformat(starts) - datetime.fromisoformat(drained)
        assert waited > timedelta(minutes=10), "it started when the drain had ended"
