"""Fixtures for tests of controllers.

```python
pytest_plugins = ["navarchos.testing.pytest"]  # in conftest.py, at the top of the tests
```

It is asked for by that line instead of being loaded wherever this package is installed:
its fixtures have everyday names, and an API server is half a second of imports, also for
those whose tests need none.

| fixture | scope | what it is |
|---|---|---|
| `api_server` | test | an API server in this process, empty and the test's own |
| `cluster` | test | nodes, workloads and their controllers, simulated on `api_server` |
| `cluster_options` | test | override it: what `cluster` is made of |
| `manager` | test | starts a manager, on `api_server` by default; stops it with the test |
| `fake_clock` | test | time that only the test moves |
| `server_clock` | test | override it: the time of `api_server`, `cluster` and `manager` |
| `control_plane` | session | a real one, with controllers and scheduler |
| `environment` | session | the server that `--navarchos-server` names |
| `environment_crds` | session | override it: definitions that `environment` is to have |

Every server is made when the first test asks for it.
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
    """Add the option that says where `environment` is."""
    parser.getgroup("navarchos").addoption(
        _OPTION,
        metavar="SERVER",
        default=str(ServerKind.IN_PROCESS),
        help="the API server of the fixture `environment`: in-process (the default), real, "
        "or the path of a kubeconfig: tests write to that cluster",
    )


@pytest.fixture
def server_clock() -> Clock:
    """The time of `api_server`, `cluster` and `manager`: the machine's.

    Override it to return `fake_clock`, and all of them live in virtual time. Nobody
    listens then, as connections know real time only: `api_server.client()` gets there.
    """
    return SYSTEM_CLOCK


@pytest.fixture
def api_server(server_clock: Clock) -> Iterator[ApiServer]:
    """An API server in this process, empty and the test's own."""
    server = ApiServer(clock=server_clock)
    if server_clock is SYSTEM_CLOCK:
        server.start()
    yield server
    server.stop()


@pytest.fixture
def cluster_options() -> ClusterOptions:
    """What `cluster` is made of: a dozen nodes with eight pods each. Override it."""
    return ClusterOptions()


@pytest.fixture
def cluster(api_server: ApiServer, cluster_options: ClusterOptions) -> Iterator[Cluster]:
    """A cluster, simulated on `api_server`, that has settled.

    The test fails at its end if an invariant was broken: a budget, a cordon.
    """
    with Cluster(api_server, options=cluster_options) as running:
        running.populate()
        running.start()
        assert running.wait_until_ready(_READY), f"not settled within {_READY:.0f} s"
        yield running
    assert running.violations == []


@pytest.fixture
def manager(request: pytest.FixtureRequest, server_clock: Clock) -> Iterator[StartManager]:
    """Start a manager: `manager(set_up)`. See `running_manager`.

    On the test's `api_server` unless it is given a `config`. Managers stop in the
    reverse order, and one that has failed fails the test.
    """
    with ExitStack() as stack:

        def start(
            set_up: SetUp,
            *,
            config: ClientConfig | None = None,
            options: ManagerOptions | None = None,
        ) -> Manager:
            way: ClientConfig | Client | None = config
            if way is None:
                ours: ApiServer = request.getfixturevalue("api_server")
                way = stack.enter_context(ours.client())
            running = running_manager(set_up, way, options=options, clock=server_clock)
            return stack.enter_context(running)

        yield start


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that only the test moves."""
    return FakeClock()


@pytest.fixture(scope="session")
def control_plane() -> Iterator["ControlPlane"]:
    """A real control plane, with controllers and scheduler, for all tests that ask for it.

    Objects stay from test to test: use a namespace and names of your own.
    """
    # Imported here: it needs the extra `controlplane`.
    from navarchos.testing.controlplane import ControlPlane

    with ControlPlane() as running:
        yield running


@pytest.fixture(scope="session")
def environment_crds() -> Sequence[Source]:
    """Definitions that `environment` is to have: objects, files or folders. Override it."""
    return ()


@pytest.fixture(scope="session")
def environment(
    pytestconfig: pytest.Config, environment_crds: Sequence[Source]
) -> Iterator[Environment]:
    """The API server that `--navarchos-server` names, for all tests that ask for it.

    Objects stay from test to test: use a namespace and names of your own.
    """
    with provide(pytestconfig.getoption(_OPTION), crds=environment_crds) as running:
        yield running
