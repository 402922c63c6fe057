"""The test kit: an API server, a cluster, faults and virtual time for tests of controllers.

| name | what it is |
|---|---|
| `ApiServer`, `Fault` | an in-process Kubernetes API server, and its scripted faults |
| `Cluster`, `ClusterOptions` | a simulated cluster on an API server |
| `ControlPlane` | a real control plane on loopback, as in envtest |
| `FaultProxy`, `WireFault`, `WireFaultKind` | network faults between a client and a server |
| `FakeClock` | virtual time |
| `FakeRecorder`, `RecordedEvent` | a recorder that keeps events for the test |

The folder `docs/testing` has a page for each of them.

Each name is imported when it is first used, so a test pays only for the parts that it uses.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from navarchos.testing.apiserver import ApiServer, Fault
    from navarchos.testing.clock import FakeClock
    from navarchos.testing.cluster import Cluster, ClusterOptions
    from navarchos.testing.controlplane import ControlPlane
    from navarchos.testing.faultproxy import FaultProxy, WireFault, WireFaultKind
    from navarchos.testing.recorder import FakeRecorder, RecordedEvent

__all__ = [
    "ApiServer",
    "Cluster",
    "ClusterOptions",
    "ControlPlane",
    "FakeClock",
    "FakeRecorder",
    "Fault",
    "FaultProxy",
    "RecordedEvent",
    "WireFault",
    "WireFaultKind",
]

_HOMES: Final = {
    "ApiServer": "apiserver",
    "Fault": "apiserver",
    "FakeClock": "clock",
    "Cluster": "cluster",
    "ClusterOptions": "cluster",
    "ControlPlane": "controlplane",
    "FaultProxy": "faultproxy",
    "WireFault": "faultproxy",
    "WireFaultKind": "faultproxy",
    "FakeRecorder": "recorder",
    "RecordedEvent": "recorder",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'navarchos.testing' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"navarchos.testing.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
