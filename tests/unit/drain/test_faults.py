"""Drains whose requests fail, by faults that only the in-process server can inject.

All other tests of `drain_node` are in `tests/integration/framework/test_drain.py`.
"""

from collections.abc import Iterator

import pytest
from tests.clocks import JumpingClock

from navarchos.client import Client, ClientConfig
from navarchos.drain import EvictionForbidden, drain_node
from navarchos.testing.apiserver import ApiServer, Fault


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def server(api_server: ApiServer) -> ApiServer:
    api_server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    return api_server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(host=server.url)) as client:
        yield client


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "ownerReferences": [
            {
                "apiVersion": "example.org/v1",
                "kind": "Set",
                "name": "web",
                "uid": "web",
                "controller": True,
            }
        ],
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
}


def test_a_missing_permission_fails_the_drain_with_the_message_of_the_server(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(POD)
    message = 'User "x" cannot create resource "pods/eviction" in API group ""'
    server.faults.add(Fault(verb="evict", status=403, message=message))
    with pytest.raises(EvictionForbidden, match="pods/eviction"):
        drain_node(client, "n1", clock=clock)


def test_a_cordon_with_a_conflict_is_retried(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.faults.add(Fault(verb="patch", resource="nodes", status=409))
    assert drain_node(client, "n1", clock=clock).cordoned
