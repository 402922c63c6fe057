"""A real control plane, and what is needed to look at it from outside.

Tests here may poll: what they wait for happens in other processes. They never skip
because a program is missing: `make controlplane` gets it.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.cases import Case, case_name
from tests.e2e.checker import Checker
from tests.e2e.installing import Installed, install
from tests.e2e.machines import Machines
from tests.e2e.target import Kubectl, Target

from navarchos.client import Client
from navarchos.stopping import StopToken
from navarchos.testing.controlplane import KUBECTL, AuditEvent, ControlPlane, find_binaries
from navarchos.testing.controlplane.guarding import Guard

FOREIGN = "NAVARCHOS_E2E_KUBECONFIG"
"""The variable that names a kubeconfig of another cluster to test on."""

LATE = 60.0

# A server that dies between our connect and our TLS hello makes CPython drop the socket
# unclosed: `SSLSocket._create` raises the ConnectionResetError of its `recv` as it is.
_DROPPED_BY_CPYTHON = r"ignore:unclosed <ssl\.SSLSocket:ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let servers be killed under any of these tests."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.filterwarnings(_DROPPED_BY_CPYTHON))


def wait_until(look: Callable[[], object], timeout: float = LATE) -> None:
    """Wait until `look` returns something true."""
    deadline = time.monotonic() + timeout
    nobody = StopToken()
    while not look():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        nobody.wait(0.05)


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait until a function returns something true."""
    return wait_until


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    """The kubectl of the pinned version, or a later one."""
    return find_binaries([KUBECTL])[KUBECTL].path


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One control plane for all tests, with fake kubelets for marked nodes.

    Objects stay from test to test: use a namespace and names of your own.
    """
    with ControlPlane() as plane:
        plane.kwok()
        yield plane


@pytest.fixture(scope="session")
def target(
    request: pytest.FixtureRequest, kubectl_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The cluster under test: ours, or the one that `NAVARCHOS_E2E_KUBECONFIG` names."""
    directory = tmp_path_factory.mktemp("target")
    foreign = os.environ.get(FOREIGN)
    kubeconfig = Path(foreign) if foreign else directory / "kubeconfig"
    audit = None
    if not foreign:
        plane: ControlPlane = request.getfixturevalue("control_plane")
        plane.write_kubeconfig(kubeconfig)
        audit = plane.audit_events
    kubectl = Kubectl(kubectl_path, kubeconfig, directory)
    with Client.from_config(kubeconfig=kubeconfig, user_agent="e2e/1") as client:
        yield Target(kubeconfig, client, kubectl, audit, runs_kwok=not foreign)


@pytest.fixture(scope="session")
def installed(target: Target) -> Installed:
    """Install the operator as the README says, but for the replicas of its Deployment.

    Cases run managers of their own, as the ServiceAccount that is installed.
    """
    return install(target)


@pytest.fixture(scope="session")
def older_log() -> list[AuditEvent]:
    """What the audit log of a control plane held that is stopped by now."""
    return []


@pytest.fixture(scope="session")
def guard() -> Iterator[Guard]:
    """What ends the managers when the tests end, however they end."""
    keeper = Guard()
    try:
        yield keeper
    finally:
        keeper.stop()


@pytest.fixture(scope="session")
def account(target: Target, installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of the ServiceAccount that the manager has in a cluster."""
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    target.write_account_kubeconfig(path, "kube-system", "navarchos")
    return path


@pytest.fixture
def kubelets(target: Target, installed: Installed) -> Iterator[None]:
    """Somebody who runs the pods of the nodes that cases make."""
    if target.runs_kwok:
        yield
        return
    with Machines(target, (), kubelets=True):
        yield


@pytest.fixture
def case(
    request: pytest.FixtureRequest, target: Target, account: Path, guard: Guard, kubelets: None
) -> Iterator[Case]:
    """A case of its own; it fails when anything happened that must never happen."""
    with run_case(request.node, target, guard, account) as running:
        yield running


@contextmanager
def run_case(item: pytest.Item, target: Target, guard: Guard, account: Path) -> Iterator[Case]:
    """Watch a case on some cluster; judge it when it is over, and clear up after it."""
    with Checker(target.connect("e2e-checker/1")) as checker:
        running = Case(case_name(item.name), target, checker, guard, account)
        try:
            yield running
            running.judge()
        finally:
            for manager, log in running.logs().items():
                item.add_report_section("teardown", manager, log)  # shown on failure
            running.end()
