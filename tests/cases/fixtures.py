"""Fixtures for cases of the operator: the cluster, and the case.

`--server` selects the cluster: one in this process, or a real one, which is started for
the tests unless `NAVARCHOS_E2E_KUBECONFIG` names a running one. No test is skipped because
a program is missing: `make controlplane` gets it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import pytest
from tests.cases import clusters
from tests.cases.case import Case, case_name
from tests.cases.checker import LATE_BINDING, Checker
from tests.cases.installing import Installed, install
from tests.cases.kubectl import Kubectl
from tests.cases.machines import Machines
from tests.cases.target import Target
from tests.foreign import foreign_kubeconfig
from tests.servers import IN_PROCESS

from navarchos.testing.controlplane import KUBECTL, ControlPlane, find_binaries
from navarchos.testing.controlplane.guard import Guard

__all__ = [
    "account",
    "case",
    "control_plane",
    "guard",
    "installed",
    "kubectl",
    "kubectl_path",
    "kubelets",
    "run_case",
    "target",
]


def _as_long(fixture_name: str, config: pytest.Config) -> Literal["function", "session"]:
    """Return the scope of a cluster: one in this process is created for each case."""
    return "function" if config.getoption("--server") == IN_PROCESS else "session"


@pytest.fixture(scope="session")
def control_plane(control_plane: ControlPlane) -> ControlPlane:
    """The fixture of `navarchos.testing.pytest`, with fake kubelets for marked nodes."""
    control_plane.kwok()
    return control_plane


@pytest.fixture(scope=_as_long)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The cluster for cases. It may be shared, so names of objects must be unique."""
    directory = tmp_path_factory.mktemp("target")
    if request.config.getoption("--server") == IN_PROCESS:
        cluster = clusters.in_process(directory)
    elif (kubeconfig := foreign_kubeconfig()) is not None:
        cluster = clusters.foreign(kubeconfig)
    else:
        cluster = clusters.real(request.getfixturevalue("control_plane"), directory)
    with cluster as found:
        yield found


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    """The kubectl of the pinned version, or a later one."""
    return find_binaries([KUBECTL])[KUBECTL].path


@pytest.fixture(scope=_as_long)
def kubectl(
    kubectl_path: Path, target: Target, tmp_path_factory: pytest.TempPathFactory
) -> Kubectl:
    """The administrator's kubectl."""
    return Kubectl(kubectl_path, target.kubeconfig, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(scope=_as_long)
def installed(kubectl: Kubectl) -> Installed:
    """Install the operator as the README says, without replicas of its Deployment.

    Cases run their managers themselves, as the installed ServiceAccount.
    """
    return install(kubectl)


@pytest.fixture(scope="session")
def guard() -> Iterator[Guard]:
    """Ends the managers when the tests end, also after a crash."""
    keeper = Guard()
    try:
        yield keeper
    finally:
        keeper.stop()


@pytest.fixture(scope=_as_long)
def account(
    request: pytest.FixtureRequest, target: Target, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A kubeconfig of the ServiceAccount that the manager has in a cluster."""
    if not target.has_accounts:
        return target.kubeconfig
    request.getfixturevalue("installed")
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    target.write_account_kubeconfig(path, "kube-system", "navarchos")
    return path


@pytest.fixture
def kubelets(target: Target, account: Path) -> Iterator[None]:
    """Kubelets for the nodes of cases."""
    with Machines(target, (), kubelets=True) if target.lacks_kubelets else nullcontext():
        yield


@pytest.fixture
def case(
    request: pytest.FixtureRequest, target: Target, account: Path, guard: Guard, kubelets: None
) -> Iterator[Case]:
    """A new case, which fails on any violation."""
    with run_case(request.node, target, guard, account) as running:
        yield running


@contextmanager
def run_case(
    item: pytest.Item,
    target: Target,
    guard: Guard,
    account: Path,
    *,
    late_binding: float = LATE_BINDING,
) -> Iterator[Case]:
    """Run a case on a cluster, check it at its end, and clean up."""
    client = target.connect("e2e-checker/1")
    with Checker(client, late_binding=late_binding) as checker:
        running = Case(case_name(item.name), target, checker, guard, account)
        try:
            yield running
            running.judge()
        finally:
            for manager, log in running.logs().items():
                item.add_report_section("teardown", manager, log)  # shown on failure
            running.end()
