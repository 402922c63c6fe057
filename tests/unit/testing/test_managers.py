"""A manager for the length of a test."""

import gc
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest

from navarchos.client import Resource
from navarchos.leaderelection import LeaseTiming
from navarchos.runtime import (
    DONE,
    Builder,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    Reconciler,
    Request,
    Result,
)
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.cluster import Cluster, ClusterOptions
from navarchos.testing.managers import StartManager, running_manager

NODES: Final[Resource[dict[str, Any]]] = Resource(
    "", "v1", "nodes", "Node", namespaced=False, type=dict
)


class Noticing(Reconciler):
    def __init__(self) -> None:
        self.seen = StopToken()

    def reconcile(self, request: Request) -> Result:
        self.seen.stop(request.name)
        return DONE


class Failing:
    def run(self, stop: StopToken) -> None:
        raise ZeroDivisionError("expected")


def node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def test_inside_it_acts_and_afterwards_nothing_of_it_is_left(api_server: ApiServer) -> None:
    reconciler = Noticing()
    with running_manager(
        lambda manager: Builder(manager).for_(NODES).build(reconciler), api_server.client_config()
    ) as manager:
        assert manager.elected.is_set()
        api_server.install(node("n"))
        assert reconciler.seen.wait(30)
        names = {thread.name for thread in threading.enumerate()}
    left = names & {thread.name for thread in threading.enumerate()}
    assert reconciler.seen.reason == "n"
    assert not {name for name in left if name.startswith("nav-") and "apiserver" not in name}


def test_an_error_of_the_manager_is_raised_in_the_test(api_server: ApiServer) -> None:
    config, begun = api_server.client_config(), []
    with (
        pytest.raises(ZeroDivisionError, match="expected"),
        running_manager(lambda manager: manager.add(Failing()), config) as manager,
    ):
        begun.append(manager)

    def set_up_fails(manager: Manager) -> None:
        raise LookupError("while it is set up")

    with pytest.raises(LookupError), running_manager(set_up_fails, config):
        pytest.fail("the block must not be entered")


def test_a_failure_of_the_test_is_not_hidden_by_one_of_the_manager(api_server: ApiServer) -> None:
    failing = threading.Event()

    class FailingLate:
        def run(self, stop: StopToken) -> None:
            stop.wait()
            failing.set()
            raise ZeroDivisionError

    with (
        pytest.raises(AssertionError, match="the test's own"),
        running_manager(lambda manager: manager.add(FailingLate()), api_server.client_config()),
    ):
        raise AssertionError("the test's own")
    assert failing.is_set()


def test_one_that_waits_for_its_lease_is_handed_out_at_once(
    api_server: ApiServer, manager: StartManager
) -> None:
    def options(identity: str) -> ManagerOptions:
        lease = LeaderElectionOptions(
            name="l", namespace="default", identity=identity, timing=LeaseTiming(retry_period=0.05)
        )
        return ManagerOptions(leader_election=lease)

    first = manager(lambda _: None, options=options("first"))
    assert first.elected.wait(30)
    second = manager(lambda _: None, options=options("second"))
    assert not second.elected.is_set()


def test_the_fixtures_manager_works_on_the_tests_server_or_on_another(
    api_server: ApiServer, manager: StartManager
) -> None:
    ours, others = Noticing(), Noticing()
    with ApiServer() as other:
        manager(lambda m: Builder(m, "ours").for_(NODES).build(ours))
        with running_manager(
            lambda m: Builder(m, "others").for_(NODES).build(others), other.client_config()
        ):
            api_server.install(node("here"))
            other.install(node("there"))
            assert ours.seen.wait(30)
            assert others.seen.wait(30)
    assert (ours.seen.reason, others.seen.reason) == ("here", "there")


@pytest.fixture
def full_collections() -> Iterator[list[int]]:
    """Count the requested full collections; automatic collection is off."""
    asked: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            asked.append(info["collected"])

    gc.disable()
    gc.callbacks.append(note)
    try:
        yield asked
    finally:
        gc.callbacks.remove(note)
        gc.enable()


def test_a_manager_of_a_test_and_a_small_cluster_cost_no_collection_of_everything(
    api_server: ApiServer, full_collections: list[int]
) -> None:
    with running_manager(lambda manager: manager.informer(NODES), api_server.client_config()):
        pass
    with Cluster(api_server, options=ClusterOptions(nodes=3, pods_per_node=3)) as cluster:
        cluster.populate()
        cluster.start()
        assert cluster.wait_until_ready(30)
    assert full_collections == []


def test_a_manager_that_lasts_collects_once_before_it_freezes(
    api_server: ApiServer, full_collections: list[int]
) -> None:
    options = ManagerOptions()
    config = api_server.client_config()
    with running_manager(lambda manager: manager.informer(NODES), config, options=options):
        pass
    assert len(full_collections) == 1
