"""Controllers for Kubernetes in Python: client-go's guarantees, fewer resources.

This package exports the names that most controllers need. Each is defined in a
subpackage and imported at its first use, so that `import navarchos` is cheap.

```python
from navarchos import Builder, Client, DONE, Manager, Object, Reconciler, Request, Resource
```
"""

import importlib
from typing import TYPE_CHECKING, Final

from navarchos._version import __version__

if TYPE_CHECKING:
    from navarchos.client import Client, Resource
    from navarchos.errors import NavarchosError, Stopped
    from navarchos.informers import InformerFactory, SharedInformer
    from navarchos.meta import Object, ObjectMeta
    from navarchos.runtime import (
        DONE,
        Builder,
        Manager,
        ManagerOptions,
        Reconciler,
        Request,
        Result,
        TerminalError,
    )
    from navarchos.stopping import StopToken
    from navarchos.workqueue import PriorityQueue

__all__ = [
    "DONE",
    "Builder",
    "Client",
    "InformerFactory",
    "Manager",
    "ManagerOptions",
    "NavarchosError",
    "Object",
    "ObjectMeta",
    "PriorityQueue",
    "Reconciler",
    "Request",
    "Resource",
    "Result",
    "SharedInformer",
    "StopToken",
    "Stopped",
    "TerminalError",
    "__version__",
]

_MODULES: Final = {
    "Client": "client",
    "Resource": "client",
    "NavarchosError": "errors",
    "Stopped": "errors",
    "InformerFactory": "informers",
    "SharedInformer": "informers",
    "Object": "meta",
    "ObjectMeta": "meta",
    "DONE": "runtime",
    "Builder": "runtime",
    "Manager": "runtime",
    "ManagerOptions": "runtime",
    "Reconciler": "runtime",
    "Request": "runtime",
    "Result": "runtime",
    "TerminalError": "runtime",
    "StopToken": "stopping",
    "PriorityQueue": "workqueue",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'navarchos' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"navarchos.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
