"""Errors of creations in a terminating namespace can be ignored."""

from collections.abc import Iterator

import pytest

from navarchos.client import (
    Client,
    Forbidden,
    NotFound,
    Resource,
    ResourceClient,
    ignore_terminating_namespace,
)
from navarchos.testing.apiserver import ApiServer, Fault

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, type=dict)
MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=dict)
MAP = {"metadata": {"name": "map"}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def maps(server: ApiServer) -> Iterator[ResourceClient[dict[str, object]]]:
    """A client; the namespace `brief` is terminating."""
    with Client(server.client_config()) as client:
        namespaces = client.resource(NAMESPACES)
        namespaces.create({"metadata": {"name": "brief", "finalizers": ["example.com/hold"]}})
        namespaces.delete("brief")
        yield client.resource(MAPS)


@pytest.mark.parametrize("namespace", ["brief", "never-was"])
def test_errors_of_a_terminating_or_deleted_namespace_can_be_ignored(
    maps: ResourceClient[dict[str, object]], namespace: str
) -> None:
    with pytest.raises((Forbidden, NotFound)):
        maps.create(MAP, namespace)
    with ignore_terminating_namespace():
        maps.create(MAP, namespace)


def test_other_errors_are_raised(
    server: ApiServer, maps: ResourceClient[dict[str, object]]
) -> None:
    with pytest.raises(NotFound), ignore_terminating_namespace():
        maps.delete("map", "default")
    server.faults.add(Fault(verb="create", status=403, times=1))
    with pytest.raises(Forbidden), ignore_terminating_namespace():
        maps.create(MAP, "default")
