"""Controllers and the process they run in.

Write a `Reconciler`, describe its sources with a `Builder`, run a `Manager`.
"""

from navarchos.runtime.builder import Builder
from navarchos.runtime.cached_client import (
    OUTDATED_READ,
    CachedClient,
    CacheNotCaughtUp,
    ClientProvider,
    ObjectReader,
    ReaderFactory,
    list_all,
)
from navarchos.runtime.conditions import Condition, find_condition, is_true, set_condition
from navarchos.runtime.controller import Controller
from navarchos.runtime.durations import format_duration, parse_duration
from navarchos.runtime.finalizers import (
    Cleanup,
    Finalization,
    Finalize,
    FinalizerRegistry,
    FinalizersFailed,
)
from navarchos.runtime.groups import GracePeriodExceeded, Runnable
from navarchos.runtime.manager import Manager
from navarchos.runtime.options import (
    ControllerOptions,
    LeaderElectionOptions,
    ManagerOptions,
    MetricsSecurity,
)
from navarchos.runtime.predicates import (
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    changed,
    generation_changed,
    labels_changed,
    not_,
    resource_version_changed,
    when,
)
from navarchos.runtime.reconcile_context import ReconcileContext, current_reconcile
from navarchos.runtime.reconciler import (
    DONE,
    ReconcileObjects,
    Reconciler,
    Request,
    Result,
    TerminalError,
)
from navarchos.runtime.sources import (
    LOW_PRIORITY,
    Channel,
    ChannelSource,
    EnqueueMapped,
    EnqueueObject,
    EnqueueOwners,
    InformerSource,
    RequestMap,
    Source,
)

__all__ = [
    "DONE",
    "LOW_PRIORITY",
    "OUTDATED_READ",
    "Builder",
    "CacheNotCaughtUp",
    "CachedClient",
    "Channel",
    "ChannelSource",
    "Cleanup",
    "ClientProvider",
    "Condition",
    "Controller",
    "ControllerOptions",
    "EnqueueMapped",
    "EnqueueObject",
    "EnqueueOwners",
    "Finalization",
    "Finalize",
    "FinalizerRegistry",
    "FinalizersFailed",
    "GracePeriodExceeded",
    "InformerSource",
    "LeaderElectionOptions",
    "Manager",
    "ManagerOptions",
    "MetricsSecurity",
    "ObjectReader",
    "Predicate",
    "ReaderFactory",
    "ReconcileContext",
    "ReconcileObjects",
    "Reconciler",
    "Request",
    "RequestMap",
    "Result",
    "Runnable",
    "Source",
    "TerminalError",
    "all_of",
    "annotations_changed",
    "any_of",
    "changed",
    "current_reconcile",
    "find_condition",
    "format_duration",
    "generation_changed",
    "is_true",
    "labels_changed",
    "list_all",
    "not_",
    "parse_duration",
    "resource_version_changed",
    "set_condition",
    "when",
]
