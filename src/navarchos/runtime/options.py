"""Settings of managers, controllers and leader election."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from navarchos.client import Resource
from navarchos.errors import ConfigError
from navarchos.informers import KindOptions
from navarchos.leaderelection import Coordination, LeaseTiming
from navarchos.runtime.reconciler import Request
from navarchos.workqueue import RateLimiter

__all__ = [
    "CACHE_SYNC_TIMEOUT",
    "ControllerOptions",
    "LeaderElectionOptions",
    "ManagerOptions",
    "MetricsSecurity",
]

CACHE_SYNC_TIMEOUT: Final = 120.0


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Settings of a controller, or of all controllers of a manager (CT-02).

    Attributes:
        workers: Number of keys that are reconciled at the same time.
        workers_by_kind: The same for controllers that are `for_` a kind; keys are `Kind.group`,
            or `Kind` in the core group.
        limiter: Delays between retries of a key; doubling from 5 ms to 1000 s by default. Must
            not be shared between controllers.
        debounce: Seconds by which every request of a source is delayed: more requests for the
            same key in the meantime cost nothing. The delay starts with the first request, so a
            key that changes all the time is still reconciled. In the queue's metrics each
            request counts as a retry, as every delayed add does.
        needs_leader_election: Run only while this process leads.
        warm_up: Let the manager start the sources before it leads, so that the queue is filled
            when the workers start (CT-08).
        recover: Continue after a panic, which is an exception other than a `NavarchosError`.
            Without it, a panic ends the controller and the manager.
        reconcile_timeout: Seconds after which the stop token of a reconcile is set (see
            `ReconcileContext`); `None` for no limit. The reconcile then ends in an error like
            any other, as soon as it notices.
        cache_sync_timeout: Seconds that sources may take to start and to deliver all existing
            objects; `None` for the manager's.

    Raises:
        ConfigError: A value is out of range.
    """

    workers: int = 1
    workers_by_kind: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    limiter: RateLimiter[Request] | None = None
    debounce: float = 0.0
    needs_leader_election: bool = True
    warm_up: bool = False
    recover: bool = True
    reconcile_timeout: float | None = None
    cache_sync_timeout: float | None = None

    def __post_init__(self) -> None:
        for workers in (self.workers, *self.workers_by_kind.values()):
            if workers < 1:
                raise ConfigError("workers", workers, "a controller requires at least one worker")
        # `not ... >=` instead of `<`, so that NaN is refused, too.
        if not self.debounce >= 0:
            raise ConfigError("debounce", self.debounce, "it must not be negative")
        if self.reconcile_timeout is not None and not self.reconcile_timeout > 0:
            raise ConfigError(
                "reconcile_timeout", self.reconcile_timeout, "it must be above 0, or None"
            )

    def workers_for(self, resource: Resource[Any] | None) -> int:
        """Return the number of workers of a controller that is `for_` a kind, or for none."""
        if resource is None:
            return self.workers
        kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
        return self.workers_by_kind.get(kind, self.workers)


@dataclass(frozen=True, slots=True)
class LeaderElectionOptions:
    """The lease of an election, and how fast it changes hands.

    Attributes:
        name: The Lease's name.
        namespace: The Lease's namespace.
        identity: The name of this candidate; host name and a random part if empty (LE-05).
        timing: Durations of the election.
        release_on_cancel: Release the lease at the end, so that other candidates need not wait
            until it expires.
        coordination: Let the API server elect, if it supports that. Otherwise, and by default,
            candidates compete (LE-22).

    Raises:
        ConfigError: The name or the namespace is missing.
    """

    name: str
    namespace: str
    identity: str = ""
    timing: LeaseTiming = field(default_factory=LeaseTiming)
    release_on_cancel: bool = True
    coordination: Coordination | None = None

    def __post_init__(self) -> None:
        for name in ("name", "namespace"):
            if not getattr(self, name):
                raise ConfigError(name, "", f"leader election requires the {name} of the Lease")


@dataclass(frozen=True, slots=True)
class MetricsSecurity:
    """TLS and authorization of the metrics server (MG-16).

    Authorization without TLS is not possible: it would show tokens to the network.

    Attributes:
        cert_file: Certificate chain in PEM; see `ServerCertificate` for renewals.
        key_file: The private key of the certificate.
        authorize: Ask the API server whether the token of a request may `get` its path; see
            `TokenReviewer`. Requires the permissions `navarchos.runtime.token_reviewer.RBAC`.
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
        profiling_address: Where thread dumps and CPU profiles are served, without
            authentication: use a loopback address. See `Profiling`.
        leader_election: The lease to hold while acting; `None` acts at once.
        sync_period: Seconds after which every cached object is reconciled again; 0 for never;
            `None` for ten hours, varied by up to a tenth for each kind.
        kinds: How some kinds are cached, each with its projection: a transform that strips
            objects before they are stored, a namespace, selectors.
        uncached: Kinds that `Manager.reader` reads from the server (CL-12).
        cache_untyped: Let `Manager.reader` read resources of type `dict` from the cache.
        freeze_caches: Move filled caches out of the garbage collector's reach while they exist.
            Useful for long-lived managers: each start costs a collection of all objects of the
            process, tens of milliseconds in a test run.
        graceful_shutdown_timeout: Seconds that runnables may take to end; 0 does not wait, a
            negative number waits without limit (MG-09).
        cache_sync_timeout: Seconds that caches may take to fill, and sources to deliver all
            existing objects.
        controllers: Settings of controllers whose builders have no options.
        component: The name of this program in events.
        missing_kinds_hint: What to do when the server does not know a kind; for the log.
        missing_permissions_hint: What to do when a feature may not read its kinds; for the log.
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
    missing_permissions_hint: str = "grant the permissions of this feature"

    def controllers_with(self, *, workers: int) -> ControllerOptions:
        """Return the settings of controllers with another number of workers."""
        return replace(self.controllers, workers=workers)
