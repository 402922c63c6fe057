"""Settings of a manager, and how its grace period may end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from navarchos.client import Resource
from navarchos.errors import NavarchosError
from navarchos.informers import KindOptions
from navarchos.runtime.controller import CACHE_SYNC_TIMEOUT
from navarchos.runtime.election import LeaderElectionOptions

__all__ = ["ControllerOptions", "GracePeriodExceeded", "ManagerOptions", "MetricsSecurity"]


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """What a manager's controllers have where their builders say nothing (CT-02).

    Attributes:
        workers: Keys that a controller reconciles at the same time.
        workers_by_kind: The same for controllers that are `for_` a kind; keys are
            `Kind.group`, or `Kind` in the core group.
        needs_leader_election: Run only while leading.
        warm_up: Fill queues before leading.
        recover: Go on after a panic.
        reconcile_timeout: Seconds that a reconcile may take; `None` for no limit.
    """

    workers: int = 1
    workers_by_kind: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    needs_leader_election: bool = True
    warm_up: bool = False
    recover: bool = True
    reconcile_timeout: float | None = None

    def workers_for(self, resource: Resource[Any] | None) -> int:
        """Return the workers of a controller that is for a kind, or for none."""
        if resource is None:
            return self.workers
        kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
        return self.workers_by_kind.get(kind, self.workers)


@dataclass(frozen=True, slots=True)
class MetricsSecurity:
    """How the metrics server is kept from those whom metrics do not concern (MG-16).

    There is no authorization without TLS: it would show tokens to the network.

    Attributes:
        cert_file: Certificate chain in PEM; see `ServerCertificate` for renewals.
        key_file: Its key.
        authorize: Ask the API server whether the token of a request may `get` its path;
            see `TokenReviewer`. Takes the rights `navarchos.runtime.token_reviewer.RBAC`.
    """

    cert_file: Path
    key_file: Path
    authorize: bool = True


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """Settings of a manager.

    Attributes:
        metrics_address: Where `/metrics` listens: `host:port`, `:port`, `0` for off.
        metrics_security: TLS and authorization of the metrics server; `None` for neither.
        health_address: Where `/healthz` and `/readyz` listen.
        profiling_address: Where stacks and profiles are served, to anybody who gets
            there: let it be a loopback address. See `Profiling`.
        leader_election: The lease to hold while acting; `None` acts at once.
        sync_period: Seconds after which every cached object is looked at again; 0
            for never; `None` for ten hours, up to a tenth more or less for each kind.
        kinds: How some kinds are cached, each with its projection: a transform that
            trims objects before they are stored, a namespace, selectors.
        uncached: Kinds whose reads by `Manager.reader` go to the server (CL-12).
        cache_untyped: Let reads of resources of type `dict` by `Manager.reader` come
            out of the cache.
        freeze_caches: Keep filled caches out of the garbage collector's reach, as long
            as they are there. It pays where managers last: each start costs a collection
            of all there is, tens of milliseconds in a test run.
        graceful_shutdown_timeout: Seconds that runnables get to end; 0 does not wait,
            a negative number waits for ever (MG-09).
        cache_sync_timeout: Seconds that caches get to fill, and sources to feed.
        controllers: What controllers have where their builders say nothing.
        component: Who we are in events.
        missing_kinds_hint: What to do when the server does not know a kind.
    """

    metrics_address: str = "0"
    metrics_security: MetricsSecurity | None = None
    health_address: str = "0"
    profiling_address: str = "0"
    leader_election: LeaderElectionOptions | None = None
    sync_period: float | None = None
    kinds: Mapping[Resource[Any], KindOptions[Any]] = field(default_factory=dict)
    uncached: tuple[Resource[Any], ...] = ()
    cache_untyped: bool = False
    freeze_caches: bool = True
    graceful_shutdown_timeout: float = 30.0
    cache_sync_timeout: float = CACHE_SYNC_TIMEOUT
    controllers: ControllerOptions = ControllerOptions()
    component: str = "navarchos"
    missing_kinds_hint: str = "install their CustomResourceDefinitions"


class GracePeriodExceeded(NavarchosError):
    """Runnables did not end in time.

    Attributes:
        seconds: The grace period.
        running: Names of the threads that still ran.
    """

    def __init__(self, seconds: float, running: tuple[str, ...]) -> None:
        super().__init__(seconds, running)
        self.seconds = seconds
        self.running = running

    def __str__(self) -> str:
        return f"not ended within the grace period of {self.seconds:g} s: {', '.join(self.running)}"
