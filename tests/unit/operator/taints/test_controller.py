"""The taints' controller on an API server, among people and other controllers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from navarchos.client import Client
from navarchos.operator import taints
from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS
from navarchos.operator.clients import operator_clients
from navarchos.operator.nodes import NODES
from navarchos.operator.taints.decide import TAINT
from navarchos.runtime import Manager
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.testing.clock import FakeClock
from navarchos.testing.managers import running_manager

FOREIGN = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
OURS = {"key": TAINT.key, "effect": TAINT.effect}


class Cluster:
    """Some nodes, without anybody who would replace them; in virtual time."""

    def __init__(self, server: ApiServer, clock: FakeClock, person: Client) -> None:
        self._server = server
        self._clock = clock
        self.nodes = person.resource(NODES.projected(dict))
        self.replacements = person.resource(NODE_REPLACEMENTS.projected(dict))

    def add_node(self, name: str, *taints: Mapping[str, str]) -> None:
        self.nodes.create({"metadata": {"name": name}, "spec": {"taints": list(taints)}})

    def add_replacement(self, node: str, *, taint: bool = True) -> None:
        spec = {"nodeName": node, "strategy": {"taintWaitingNodes": taint}}
        self.replacements.create({"metadata": {"name": node}, "spec": spec})

    def finish(self, node: str, step: str) -> None:
        status = {"step": {"name": step}}
        self.replacements.patch(node, {"status": status}, subresource="status")

    def set_taints(self, node: str, *taints: Mapping[str, str]) -> None:
        self.nodes.patch(node, {"spec": {"taints": list(taints) or None}})

    def taints(self, node: str) -> Sequence[Mapping[str, Any]]:
        """Return a node's taints when everybody has come to rest."""
        self._clock.advance(1.0)
        found: Sequence[Mapping[str, Any]] = self.nodes.get(node)["spec"].get("taints") or ()
        return [{name: taint[name] for name in taint if name != "timeAdded"} for taint in found]

    def writes(self) -> int:
        """Return how often managers have written to nodes."""
        return self._server.requests_by("manager").get("patch", 0)

    def delay_next_write(self, seconds: float) -> None:
        """Let a manager's next write to a node arrive so much later."""
        self._server.faults.add(
            Fault(verb="patch", resource="nodes", user_agent="manager", delay=seconds)
        )

    @contextmanager
    def manager(self) -> Iterator[Manager]:
        """Let a manager run, with this controller alone."""
        with (
            self._server.client(user_agent="manager") as client,
            running_manager(_set_up, client, clock=self._clock) as manager,
        ):
            yield manager


def _set_up(manager: Manager) -> None:
    taints.add_to_manager(manager, operator_clients(manager))


@pytest.fixture
def cluster(definitions: list[Any]) -> Iterator[Cluster]:
    clock = FakeClock()
    server = ApiServer(crds=definitions, clock=clock)
    with server.client(user_agent="a-person") as person:
        yield Cluster(server, clock, person)


def test_the_taint_comes_with_a_replacement_that_wants_it_and_goes_when_that_is_finished(
    cluster: Cluster,
) -> None:
    cluster.add_node("a", FOREIGN)
    cluster.add_node("b", FOREIGN)
    with cluster.manager():
        cluster.add_replacement("a")
        cluster.add_replacement("b", taint=False)
        assert cluster.taints("a") == [FOREIGN, OURS]
        cluster.finish("a", "Done")
        assert cluster.taints("a") == [FOREIGN]
    assert cluster.taints("b") == [FOREIGN]
    assert cluster.writes() == 2


@pytest.mark.parametrize("step", ["Reserved", "Cordoned", "Draining", "Releasing", "Waiting"])
def test_the_taint_stays_while_the_node_is_on_its_way(cluster: Cluster, step: str) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.add_replacement("a")
        cluster.finish("a", step)
        assert cluster.taints("a") == [OURS]
    assert cluster.writes() == 1


def test_the_taint_goes_with_a_deleted_replacement(cluster: Cluster) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.add_replacement("a")
        assert cluster.taints("a") == [OURS]
        cluster.replacements.delete("a")
        assert cluster.taints("a") == []


def test_a_taint_that_nobody_wants_any_more_goes_when_the_next_manager_comes(
    cluster: Cluster,
) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.add_replacement("a")
        assert cluster.taints("a") == [OURS]
    cluster.replacements.delete("a")
    assert cluster.taints("a") == [OURS]
    with cluster.manager():
        assert cluster.taints("a") == []


def test_whoever_takes_the_taint_off_is_not_contradicted(cluster: Cluster) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.add_replacement("a")
        assert cluster.taints("a") == [OURS]
        cluster.set_taints("a", FOREIGN)
        assert cluster.taints("a") == [FOREIGN]


def test_a_taint_that_somebody_sets_while_ours_is_on_its_way_is_kept(cluster: Cluster) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.delay_next_write(5.0)
        cluster.add_replacement("a")
        assert cluster.taints("a") == []
        cluster.set_taints("a", FOREIGN)
        for _ in range(5):
            taints = cluster.taints("a")
        assert taints == [FOREIGN, OURS]


def test_a_node_that_came_back_under_its_name_gets_no_taint(cluster: Cluster) -> None:
    cluster.add_node("a")
    uid = cluster.nodes.get("a")["metadata"]["uid"]
    with cluster.manager():
        cluster.replacements.create(
            {
                "metadata": {"name": "a"},
                "spec": {
                    "nodeName": "a",
                    "nodeUID": uid,
                    "strategy": {"taintWaitingNodes": True},
                },
            }
        )
        assert cluster.taints("a") == [OURS]
        cluster.nodes.delete("a")
        cluster.add_node("a")
        assert cluster.taints("a") == []
