"""What cases of the operator are given, wherever they stand: a cluster, and themselves.

`--server` says which cluster: one in this process, or a real one, which is started for
this unless `NAVARCHOS_E2E_KUBECONFIG` names one that runs. Nothing is ever skipped
because a program is missing: `make controlplane` gets it.
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


def _as_long(*, fixture_name: str, config: pytest.Config) -> Literal["function", "session"]:
    """Tell how long a cluster lasts: one in this process is made for each case anew."""
    return "function" if config.getoption("--server") == IN_PROCESS else "session"


@pytest.fixture(scope="session")
def control_plane(control_plane: ControlPlane) -> ControlPlane:
    """That of `navarchos.testing.pytest`, with fake kubelets for marked nodes."""
    control_plane.kwok()
    return control_plane


@pytest.fixture(scope=_as_long)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The cluster that cases run on, often one for all of them: use names of your own."""
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
    """Install the operator as the README says, but for the replicas of its Deployment.

    Cases run managers of their own, as the ServiceAccount that is installed.
    """
    return install(kubectl)


@pytest.fixture(scope="session")
def guard() -> Iterator[Guard]:
    """What ends the managers when the tests end, however they end."""
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
    """Somebody who runs the pods of the nodes that cases make."""
    with Machines(target, (), kubelets=True) if target.lacks_kubelets else nullcontext():
        yield


@pytest.fixture
def case(
    request: pytest.FixtureRequest, target: Target, account: Path, guard: Guard, kubelets: None
) -> Iterator[Case]:
    """A case of its own; it fails when anything happened that must never happen."""
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
    """Watch a case on some cluster; judge it when it is over, and clear up after it."""
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
