"""Fixtures for tests of controllers.

```python
pytest_plugins = ["navarchos.testing.pytest"]  # in conftest.py, at the top of the tests
```

The plugin is not loaded automatically where this package is installed: its fixtures have
common names, and importing the API server takes half a second.

| fixture | scope | meaning |
|---|---|---|
| `api_server` | test | an empty in-process API server |
| `cluster` | test | nodes, workloads and their controllers, simulated on `api_server` |
| `cluster_options` | test | override it: the options of `cluster` |
| `manager` | test | starts a manager, by default on `api_server`, and stops it after the test |
| `fake_clock` | test | virtual time that only the test moves |
| `server_clock` | test | override it: the clock of `api_server`, `cluster` and `manager` |
| `control_plane` | session | a real control plane with controllers and scheduler |
| `environment` | session | the API server that `--navarchos-server` selects |
| `environment_crds` | session | override it: CustomResourceDefinitions of `environment` |

A server is created when the first test requests its fixture.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.runtime import Manager, ManagerOptions
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.clock import FakeClock
from navarchos.testing.cluster import Cluster, ClusterOptions
from navarchos.testing.definitions import Source
from navarchos.testing.environment import Environment, ServerKind
from navarchos.testing.environment import environment as provide
from navarchos.testing.managers import SetUp, StartManager, running_manager

if TYPE_CHECKING:
    from navarchos.testing.controlplane import ControlPlane

__all__ = [
    "api_server",
    "cluster",
    "cluster_options",
    "control_plane",
    "environment",
    "environment_crds",
    "fake_clock",
    "manager",
    "pytest_addoption",
    "server_clock",
]

_OPTION = "--navarchos-server"
_READY = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that selects the server of `environment`."""
    parser.getgroup("navarchos").addoption(
        _OPTION,
        metavar="SERVER",
        default=str(ServerKind.IN_PROCESS),
        help="the API server of the fixture `environment`: in-process (the default), real, "
        "or the path of a kubeconfig: tests write to that cluster",
    )


@pytest.fixture
def server_clock() -> Clock:
    """Return the clock of `api_server`, `cluster` and `manager`: the system clock.

    Override it to return `fake_clock`, and all of them use virtual time. The server does
    not listen on a port then, because connections use real time; `api_server.client()`
    returns a client without a connection.
    """
    return SYSTEM_CLOCK


@pytest.fixture
def api_server(server_clock: Clock) -> Iterator[ApiServer]:
    """Run an empty in-process API server for the test."""
    server = ApiServer(clock=server_clock)
    if server_clock is SYSTEM_CLOCK:
        server.start()
    yield server
    server.stop()


@pytest.fixture
def cluster_options() -> ClusterOptions:
    """Return the options of `cluster`: a dozen nodes with eight pods each. Override it."""
    return ClusterOptions()


@pytest.fixture
def cluster(api_server: ApiServer, cluster_options: ClusterOptions) -> Iterator[Cluster]:
    """Run a simulated cluster on `api_server`, after its pods are running.

    The test fails at its end if an invariant was violated, such as a budget or a cordon.
    """
    with Cluster(api_server, options=cluster_options) as running:
        running.populate()
        running.start()
        assert running.wait_until_ready(_READY), f"the cluster is not ready after {_READY:.0f} s"
        yield running
    assert running.violations == []


@pytest.fixture
def manager(request: pytest.FixtureRequest, server_clock: Clock) -> Iterator[StartManager]:
    """Start a manager: `manager(set_up)`. See `running_manager`.

    The manager uses the test's `api_server` unless `config` is given. Managers stop in
    reverse order. The test fails if a manager has failed.
    """
    with ExitStack() as stack:

        def start(
            set_up: SetUp,
            *,
            config: ClientConfig | None = None,
            options: ManagerOptions | None = None,
        ) -> Manager:
            target: ClientConfig | Client | None = config
            if target is None:
                server: ApiServer = request.getfixturevalue("api_server")
                target = stack.enter_context(server.client())
            running = running_manager(set_up, target, options=options, clock=server_clock)
            return stack.enter_context(running)

        yield start


@pytest.fixture
def fake_clock() -> FakeClock:
    """Return a clock that only the test moves."""
    return FakeClock()


@pytest.fixture(scope="session")
def control_plane() -> Iterator["ControlPlane"]:
    """Run a real control plane with controllers and scheduler, shared by all tests.

    Objects stay from test to test: each test must use a separate namespace and its own names.
    """
    # Imported here because it needs the extra `controlplane`.
    from navarchos.testing.controlplane import ControlPlane

    with ControlPlane() as running:
        yield running


@pytest.fixture(scope="session")
def environment_crds() -> Sequence[Source]:
    """Return the CustomResourceDefinitions of `environment`: objects, files or folders."""
    return ()


@pytest.fixture(scope="session")
def environment(
    pytestconfig: pytest.Config, environment_crds: Sequence[Source]
) -> Iterator[Environment]:
    """Provide the API server that `--navarchos-server` selects, shared by all tests.

    Objects stay from test to test: each test must use a separate namespace and its own names.
    """
    with provide(pytestconfig.getoption(_OPTION), crds=environment_crds) as running:
        yield running
