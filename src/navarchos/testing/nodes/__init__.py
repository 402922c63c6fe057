"""Real nodes for tests: kubelets with containers, and the images that they run.

```python
with Lab() as lab, ControlPlane(network=lab) as server, Nodes(server, 3) as nodes:
    nodes["real-1"].reboot()
    nodes.wait_until_ready(60)
```

Linux and root are required. `python -m navarchos.testing.nodes` installs the programs.
"""

from navarchos.testing.nodes.configuration import RealMachine
from navarchos.testing.nodes.lab import Lab
from navarchos.testing.nodes.node import Node
from navarchos.testing.nodes.nodes import Nodes
from navarchos.testing.nodes.requirements import (
    ControllersMissing,
    FileSystemMissing,
    LabFailed,
    LinkMissing,
    MachineLacks,
    NamespacesRefused,
    NodeFailed,
    NodesError,
    NodesNotReady,
    NotLinux,
    NotRoot,
    ProgramsMissing,
    WatchersMissing,
    check_requirements,
)

__all__ = [
    "ControllersMissing",
    "FileSystemMissing",
    "Lab",
    "LabFailed",
    "LinkMissing",
    "MachineLacks",
    "NamespacesRefused",
    "Node",
    "NodeFailed",
    "Nodes",
    "NodesError",
    "NodesNotReady",
    "NotLinux",
    "NotRoot",
    "ProgramsMissing",
    "RealMachine",
    "WatchersMissing",
    "check_requirements",
]
