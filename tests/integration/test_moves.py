"""The number of moves per pod when many nodes are replaced, in virtual time."""

from pathlib import Path
from typing import Any, Final

import pytest
from tests.cases.manifests import API_VERSION
from tests.seeds import runs

from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NODE_ROLLOUTS
from navarchos.operator.names import DRAIN_COMPLETED_LABEL, TO_BE_REPLACED_TAINT
from navarchos.operator.setup import add_operator
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.clock import FakeClock
from navarchos.testing.cluster import Cluster, ClusterOptions, Span
from navarchos.testing.managers import running_manager

CONFIG: Final = Path(__file__).parents[2] / "config"
SURGE: Final = 3
OLD: Final = runs(6, at_most=30)
"""Nodes that are replaced."""

OPTIONS: Final = ClusterOptions(
    nodes=OLD + SURGE,
    pods_per_node=22,
    speed=1.0,
    terminate_label=DRAIN_COMPLETED_LABEL,
    job_pod_run=Span(1e9, 1e9),
)
_HOUR: Final = 3600.0


class Rolled:
    """The result of replacing all nodes of a cluster with some spare capacity.

    Attributes:
        moved: Evictions per pod that had to move at least once.
        tainted_meanwhile: Nodes with our taint when the first node was drained.
        tainted_in_the_end: Nodes with our taint at the end.
    """

    def __init__(self, *, taint: bool) -> None:
        clock = FakeClock()
        self._server = ApiServer(crds=[CONFIG / "crds"], clock=clock)
        with (
            Cluster(self._server, options=OPTIONS) as cluster,
            self._server.client(user_agent="navarchos") as client,
            self._server.client(user_agent="a-person") as person,
        ):
            cluster.populate()
            cluster.start()
            assert cluster.wait_until_ready()
            nodes = sorted(node["metadata"]["name"] for node in self._server.list("nodes"))
            old = nodes[:OLD]
            pods = sum(_has_to_move(pod, old) for pod in self._server.list("pods"))
            with running_manager(add_operator, client, clock=clock):
                person.resource(NODE_ROLLOUTS.projected(dict)).create(_rollout(old, taint=taint))
                clock.advance(1.0)
                self.tainted_meanwhile = self._tainted()
                clock.advance(_HOUR)
            assert cluster.violations == []
        self.moved = self._evictions() / pods
        self.tainted_in_the_end = self._tainted()

    def _evictions(self) -> int:
        done = self._server.list(NODE_REPLACEMENTS.plural, group=NODE_REPLACEMENTS.group)
        assert {each["status"]["phase"] for each in done} == {"Completed"}
        return sum(each["status"].get("evictedPodsCount", 0) for each in done)

    def _tainted(self) -> set[str]:
        return {
            node["metadata"]["name"]
            for node in self._server.list("nodes")
            for taint in node["spec"].get("taints") or ()
            if taint["key"] == TO_BE_REPLACED_TAINT
        }


def _rollout(nodes: list[str], *, taint: bool) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeRollout",
        "metadata": {"name": "all"},
        "spec": {
            "nodeNames": [{"name": name} for name in nodes],
            "strategy": {
                "maxConcurrent": SURGE,
                # As long as the boot of a machine, so that other nodes can take all pods.
                "settleSeconds": 60,
                "taintWaitingNodes": taint,
            },
        },
    }


def _has_to_move(pod: dict[str, Any], nodes: list[str]) -> bool:
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences") or ()}
    return pod["spec"].get("nodeName") in nodes and not owners & {"DaemonSet", "Node"}


@pytest.mark.usefixtures("no_detector")
@pytest.mark.rule("N-14")
def test_pods_move_about_once_if_waiting_nodes_have_the_soft_taint() -> None:
    rolled = Rolled(taint=True)

    assert rolled.moved <= 1.02
    assert len(rolled.tainted_meanwhile) == OLD
    assert rolled.tainted_in_the_end == set()


@pytest.mark.usefixtures("no_detector")
def test_pods_move_from_one_old_node_to_the_next_without_the_taint() -> None:
    rolled = Rolled(taint=False)

    assert rolled.moved > 1.05
    assert rolled.tainted_meanwhile == set()
