"""The clusters for cases: in this process, started for the tests, or an existing one."""

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

    It has no authorization, so the manager has no account there.
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
    """Use a running control plane with kwok."""
    kubeconfig = directory / "kubeconfig"
    plane.write_kubeconfig(kubeconfig)
    with Client.from_config(
        kubeconfig=kubeconfig, settings=ClientSettings(user_agent=_AGENT)
    ) as client:
        yield Target(kubeconfig, client, plane.audit_events)


@contextmanager
def foreign(kubeconfig: Path) -> Iterator[Target]:
    """Use an existing cluster, whose kubelets do not serve the nodes of cases."""
    with Client.from_config(
        kubeconfig=kubeconfig, settings=ClientSettings(user_agent=_AGENT)
    ) as client:
        yield Target(kubeconfig, client, runs_kwok=False, lacks_kubelets=True)
