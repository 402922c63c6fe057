"""Informers: local copies of a kind's objects, kept in step with the server.

```text
server ── list, watch ──> Reflector ──> Ingest ──> EventProcessor ──> Store <── Lister
                          (one thread)               │   └──> Overlay (own writes)
                                                     └──> Delivery ──> handler
                                                          (a thread each)
```

Start with `InformerFactory`, or with a single `SharedInformer`.
"""

from navarchos.informers.delivery import Registration
from navarchos.informers.errors import (
    CacheError,
    CacheMutated,
    InconsistentList,
    IndexConflict,
    IndexFailed,
    KindNotCached,
    NamespaceNotCached,
    SyncTimeout,
    TransformFailed,
    UnknownIndex,
)
from navarchos.informers.factory import InformerFactory
from navarchos.informers.handlers import (
    Callbacks,
    EventHandler,
    FilteringHandler,
    Tombstone,
    deletion_key,
)
from navarchos.informers.indexes import IndexFunction
from navarchos.informers.informer import SharedInformer
from navarchos.informers.lister import Lister, field_index
from navarchos.informers.options import (
    FactoryOptions,
    HandlerOptions,
    InformerOptions,
    KindOptions,
    Transform,
    WatchErrorHandler,
)
from navarchos.informers.scope import Scope
from navarchos.informers.source import ListerWatcher
from navarchos.informers.store import NAMESPACE_INDEX, Reader, Store

__all__ = [
    "NAMESPACE_INDEX",
    "CacheError",
    "CacheMutated",
    "Callbacks",
    "EventHandler",
    "FactoryOptions",
    "FilteringHandler",
    "HandlerOptions",
    "InconsistentList",
    "IndexConflict",
    "IndexFailed",
    "IndexFunction",
    "InformerFactory",
    "InformerOptions",
    "KindNotCached",
    "KindOptions",
    "Lister",
    "ListerWatcher",
    "NamespaceNotCached",
    "Reader",
    "Registration",
    "Scope",
    "SharedInformer",
    "Store",
    "SyncTimeout",
    "Tombstone",
    "Transform",
    "TransformFailed",
    "UnknownIndex",
    "WatchErrorHandler",
    "deletion_key",
    "field_index",
]
