"""The clusters that cases run on: in this process, started for this, or anybody's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cases.machines import PACE
from tests.cases.target import CONFIG, Target

from navarchos.client import Client, ClientSettings
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.cluster import Cluster
from navarchos.testing.controlplane import ControlPlane

__all__ = ["foreign", "in_process", "real"]

_AGENT = "cases/1"


@contextmanager
def in_process(directory: Path) -> Iterator[Target]:
    """Run the simulator on an API server in this process, with the definitions installed.

    It knows no rights: the manager is nobody in particular there.
    """
    kubeconfig = directory / "kubeconfig"
    with ApiServer(crds=[CONFIG / "crds"]) as server, Cluster(server, options=PACE) as cluster:
        cluster.start()
        assert cluster.wait_until_ready(30)
        server.write_kubeconfig(kubeconfig)
        with Client.from_config(
            kubeconfig=kubeconfig, settings=ClientSettings(user_agent=_AGENT)
        ) as client:
            yield Target(kubeconfig, client, has_accounts=False, runs_kwok=False)


@contextmanager
def real(plane: ControlPlane, directory: Path) -> Iterator[Target]:
    """Use a control plane that runs, and kwok."""
    kubeconfig = directory / "kubeconfig"
    plane.write_kubeconfig(kubeconfig)
    with Client.from_config(
        kubeconfig=kubeconfig, settings=ClientSettings(user_agent=_AGENT)
    ) as client:
        yield Target(kubeconfig, client, plane.audit_events)


@contextmanager
def foreign(kubeconfig: Path) -> Iterator[Target]:
    """Use somebody's cluster, whose kubelets are not for nodes that cases make."""
    with Client.from_config(
        kubeconfig=kubeconfig, settings=ClientSettings(user_agent=_AGENT)
    ) as client:
        yield Target(kubeconfig, client, runs_kwok=False, lacks_kubelets=True)
