"""The controller of taints on an API server, together with other clients."""

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
    """Some nodes, without the controllers that replace them; in virtual time."""

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
        """Return a node's taints once no controller has work left."""
        self._clock.advance(1.0)
        found: Sequence[Mapping[str, Any]] = self.nodes.get(node)["spec"].get("taints") or ()
        return [{name: taint[name] for name in taint if name != "timeAdded"} for taint in found]

    def writes(self) -> int:
        """Return the number of writes of managers to nodes."""
        return self._server.requests_by("manager").get("patch", 0)

    def delay_next_write(self, seconds: float) -> None:
        """Delay a manager's next write to a node by this many seconds."""
        self._server.faults.add(
            Fault(verb="patch", resource="nodes", user_agent="manager", delay=seconds)
        )

    @contextmanager
    def manager(self) -> Iterator[Manager]:
        """Run a manager with only this controller."""
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


def test_the_taint_follows_a_replacement_from_its_creation_to_its_end(
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
def test_the_taint_stays_while_the_node_is_in_flight(cluster: Cluster, step: str) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.add_replacement("a")
        cluster.finish("a", step)
        assert cluster.taints("a") == [OURS]
    assert cluster.writes() == 1


def test_the_taint_is_removed_with_a_deleted_replacement(cluster: Cluster) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.add_replacement("a")
        assert cluster.taints("a") == [OURS]
        cluster.replacements.delete("a")
        assert cluster.taints("a") == []


def test_the_next_manager_removes_a_taint_that_is_not_wanted_any_more(
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


def test_a_taint_that_a_user_removes_is_not_added_again(cluster: Cluster) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.add_replacement("a")
        assert cluster.taints("a") == [OURS]
        cluster.set_taints("a", FOREIGN)
        assert cluster.taints("a") == [FOREIGN]


def test_a_taint_that_another_client_adds_at_the_same_time_is_kept(cluster: Cluster) -> None:
    cluster.add_node("a")
    with cluster.manager():
        cluster.delay_next_write(5.0)
        cluster.add_replacement("a")
        assert cluster.taints("a") == []
        cluster.set_taints("a", FOREIGN)
        for _ in range(5):
            taints = cluster.taints("a")
        assert taints == [FOREIGN, OURS]


def test_a_new_node_with_the_same_name_gets_no_taint(cluster: Cluster) -> None:
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
