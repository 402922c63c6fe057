"""Fixtures of the framework's tests: a client of the server, and a namespace for each test.

Everything here holds for each API server (`--server`). Objects of cluster-wide kinds are
named after the test's namespace, so that no two tests meet.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.informers import make_informer
from tests.integration.framework.accounts import Account, account_in
from tests.integration.framework.defining import defined
from tests.integration.framework.kinds import (
    CONFIG_MAPS,
    GIZMO_DEFINITION,
    GIZMOS,
    NODES,
    ConfigMap,
    Gizmo,
)
from tests.integration.framework.waiting import LIMIT
from tests.namespaces import namespace_of_its_own
from tests.servers import IN_PROCESS, REAL, Served, serve

from navarchos.backoff import Backoff
from navarchos.client import Client, NotFound, ResourceClient
from navarchos.informers import SharedInformer
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.faultproxy import FaultProxy


@pytest.fixture(scope="session")
def served(pytestconfig: pytest.Config) -> Iterator[Served]:
    """The API server that `--server` names; one with users also in this process."""
    if pytestconfig.getoption("--server") != IN_PROCESS:
        with serve(REAL) as server:
            yield server
        return
    with (
        ApiServer(rbac=True) as server,
        tempfile.TemporaryDirectory(prefix="navarchos-framework-") as directory,
    ):
        kubeconfig = Path(directory) / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        yield Served(IN_PROCESS, server.client_config(), server, kubeconfig)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """A client with all permissions."""
    with Client(served.config) as client:
        yield client


@pytest.fixture
def namespace(client: Client) -> Iterator[str]:
    """A namespace of the test's own."""
    with namespace_of_its_own(client, "framework-") as name:
        yield name


@pytest.fixture
def our_server(served: Served) -> Served:
    """The server, if this run has started it; other servers must not be restarted."""
    if served.server is None:
        pytest.skip("the server does not belong to this run: it must not be restarted")
    return served


@pytest.fixture
def account(served: Served, client: Client, namespace: str) -> Iterator[Account]:
    """A service account without rights."""
    with account_in(namespace, client, served.config) as account:
        yield account


@pytest.fixture
def network(served: Served) -> Iterator[FaultProxy]:
    """A way to the server that can be cut."""
    with FaultProxy(served.config.host) as proxy:
        yield proxy


@pytest.fixture
def node(client: Client, namespace: str) -> Iterator[str]:
    """The name of a node of the test's own."""
    client.resource(NODES).create({"metadata": {"name": namespace}})
    yield namespace
    try:
        client.resource(NODES).delete(namespace)
    except NotFound:
        return


@pytest.fixture(scope="session")
def gizmos_served(served: Served) -> Iterator[None]:
    """Let the server serve `GIZMOS`."""
    with Client(served.config) as client, defined(client, {GIZMOS: GIZMO_DEFINITION}):
        yield


@pytest.fixture
def gizmos(client: Client, gizmos_served: None) -> ResourceClient[Gizmo]:
    """The verbs of a custom kind."""
    return client.resource(GIZMOS)


@pytest.fixture
def maps(client: Client) -> ResourceClient[ConfigMap]:
    return client.resource(CONFIG_MAPS)


@pytest.fixture(params=[True, False], ids=["streaming", "listing"])
def informer_of(
    request: pytest.FixtureRequest, maps: ResourceClient[ConfigMap], namespace: str
) -> Iterator[Callable[..., SharedInformer[Any]]]:
    made: list[SharedInformer[Any]] = []

    def make(**options: Any) -> SharedInformer[Any]:
        options = {
            "namespace": namespace,
            "streaming": request.param,
            "client": maps,
            # Clusters create a config map in every namespace.
            "label_selector": "test=yes",
            "backoff": Backoff(base=0.02, cap=0.2),
            **options,
        }
        made.append(make_informer(options.pop("client"), **options))
        return made[-1]

    yield make
    for informer in made:
        informer.stop("the test is over")
        assert informer.join(LIMIT)


@pytest.fixture
def create(maps: ResourceClient[ConfigMap], namespace: str) -> Callable[..., ConfigMap]:
    def make(name: str, **data: str) -> ConfigMap:
        metadata = {"name": name, "labels": {"test": "yes"}}
        return maps.create({"metadata": metadata, "data": data}, namespace)

    return make
