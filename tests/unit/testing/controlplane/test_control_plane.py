"""The parts of the control plane that need no server."""

from pathlib import Path

import pytest

from navarchos.errors import ConfigError, NotStarted
from navarchos.testing.controlplane import BinariesMissing, ControlPlane, Lookup
from navarchos.testing.controlplane.binaries import Cache
from navarchos.testing.controlplane.servers import ControlPlaneOptions


def test_before_its_start_there_is_nothing_to_ask() -> None:
    plane = ControlPlane()
    properties = (lambda: plane.url, lambda: plane.etcd_url, lambda: plane.audit)
    for look in (*properties, plane.kubeconfig, plane.client):
        with pytest.raises(NotStarted):
            look()
    plane.stop()


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="timeout=0:"):
        ControlPlane(timeout=0)
    with pytest.raises(ConfigError, match="arguments='apiserver': the program must be one of etcd"):
        ControlPlane(arguments={"apiserver": ["--v=4"]})


def test_without_programs_it_says_how_to_get_them(tmp_path: Path) -> None:
    lookup = Lookup(environ={"PATH": ""}, cache=Cache(tmp_path))
    with pytest.raises(BinariesMissing, match="run `python -m"):
        ControlPlane(lookup=lookup).start()


def test_only_what_will_run_is_needed() -> None:
    assert [tool.name for tool in ControlPlaneOptions().tools] == [
        "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
    ]  # fmt: skip
    alone = ControlPlaneOptions(controllers=False, scheduler=False)
    assert [tool.name for tool in alone.tools] == ["etcd", "kube-apiserver"]
