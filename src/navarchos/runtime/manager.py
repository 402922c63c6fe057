"""The manager: starts and stops caches, controllers, election, probes and metrics in order."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from prometheus_client.registry import CollectorRegistry

from navarchos.client import Client, Resource
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStarted, AlreadyStopped, ConfigError, Stopped
from navarchos.events import EventRecorder
from navarchos.informers import CacheError, FactoryOptions, InformerFactory, Lister, SharedInformer
from navarchos.instrument import Instruments
from navarchos.leaderelection import HEALTH_CHECK, LeaseLost
from navarchos.logs import get_logger
from navarchos.parallel import parallelize
from navarchos.runtime.cached_client import CachedClient, ObjectReader, ReaderFactory
from navarchos.runtime.controller import Controller
from navarchos.runtime.election import Election, LeaderWork
from navarchos.runtime.endpoints import Endpoint, HttpServers, MetricsPages, Probes, Profiling
from navarchos.runtime.groups import GracePeriodExceeded, Runnable, RunnableGroup
from navarchos.runtime.httpserver import Route, ServerCertificate
from navarchos.runtime.options import ManagerOptions
from navarchos.runtime.signals import SignalHandling
from navarchos.runtime.startup import Feature, Needs, catch_up, wait_for_kinds
from navarchos.runtime.token_reviewer import TokenReviewer
from navarchos.stopping import StopToken

__all__ = ["Manager"]  # mutant: eager-import

T = TypeVar("T")

_log = get_logger(__name__)

_HELD: ContextVar[list[tuple[RunnableGroup, str, Runnable]] | None] = ContextVar(
    "navarchos_held", default=None
)
"""Collects what a late feature adds, until its caches are current."""

_SERVER_STOP_LIMIT: Final = 5.0
_FLUSH_LIMIT: Final = 5.0


class Manager:
    """Runs controllers and everything that they need.

    It starts, in this order: HTTP servers; informers, until their first lists are complete;
    runnables that do not need leadership; the sources of controllers with `warm_up`, until they
    have delivered all existing objects; the election; runnables that need leadership. The last
    step waits until the caches contain everything that the server had after the lease was
    acquired (without election: after the caches were filled).

    It stops, waiting for each group before the next: runnables that do not need leadership,
    runnables that do, informers, lease, events, servers. So caches can still be read while
    reconciles finish, and the lease is released only after the leader's work has ended.

    Promises: with leader election, writes through `client` and `cached_client` leave this
    process only while no other process can hold the lease (see `LeaderElector.fence`); the
    first failure stops the manager and is raised by `run`; a lost lease raises `LeaseLost` at
    once, without a grace period, and the process should exit; if the server does not serve a
    kind yet, the manager waits, logs one warning, and fails `/readyz` (CT-18). A feature
    (`add_feature`) waits for its own kinds and permissions, and the rest of the manager does not.

    Lifecycle: add runnables, then `run` once. Threads: `add` is safe from any thread.

    Args:
        client: Talks to the server. Use it directly for writes of runnables that do not need
            leadership; for the others use the manager's attribute `client`.
        options: See `ManagerOptions`.
        clock: Time and waiting.
        registry: Where metrics go; a private registry by default.
        instruments: Instead of a registry: pass the instruments of the client, and `/metrics`
            also shows its requests.

    Raises:
        ConfigError: An address or a certificate cannot be used, or both a registry and
            instruments were given.
    """

    def __init__(
        self,
        client: Client,
        *,
        options: ManagerOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        registry: CollectorRegistry | None = None,
        instruments: Instruments | None = None,
    ) -> None:
        if registry is not None and instruments is not None:
            raise ConfigError(
                "instruments",
                instruments,
                "pass either instruments or a registry: instruments have one",
            )
        self.options = options or ManagerOptions()
        self.clock = clock
        self.instruments = instruments or Instruments(registry)
        self.informers = InformerFactory(
            client,
            FactoryOptions(
                resync_period=self.options.sync_period,
                kinds=self.options.kinds,
                freeze=self.options.freeze_caches,
                on_failure=self._fail,
            ),
            clock=clock,
            instruments=self.instruments,
        )
        self.recorder = EventRecorder(
            client,
            component=self.options.component,
            clock=clock,
            instruments=self.instruments,
        )
        self._readers = ReaderFactory(
            client,
            self.informers,
            uncached=self.options.uncached,
            cache_untyped=self.options.cache_untyped,
        )
        self.elected = StopToken(clock=clock)
        """Set when this process starts to lead; without election, when the caches are current."""
        self.probes = Probes()
        self.probes.readyz.add("caches", self._check_caches)
        self._stop = StopToken(clock=clock)
        self._state_lock = threading.Lock()
        self._started = False  # guarded by _state_lock
        self._fills_caches = False  # guarded by _state_lock
        self._stopping = False  # guarded by _state_lock
        self._failure: BaseException | None = None  # guarded by _state_lock
        self._names: set[str] = set()  # guarded by _state_lock
        self._warmed: list[Controller] = []  # guarded by _state_lock
        self._features: list[Feature] = []  # guarded by _state_lock
        self._adding_lock = threading.Lock()  # one feature is added at a time
        self._resources: list[Resource[Any]] = []  # guarded by _state_lock
        # guarded by _state_lock; a dict, because its order makes test runs repeatable
        self._caches: dict[SharedInformer[Any], None] = {}
        self._caches_state = "the caches have not been started"  # guarded by _state_lock
        self._always = RunnableGroup("run", self._fail, clock)
        self._leading = RunnableGroup("lead", self._fail, clock)
        self._unfenced = client
        self._election = self._prepare_election()
        # mutant: writes-without-a-fence
        self.client = client if self._election is None else client.fenced(self._election.fence)
        """The client of leaders: its writes raise `NotLeading` while this process does not lead."""
        self._pages = MetricsPages(self.instruments.registry)
        self._servers = HttpServers(
            {
                "metrics": self._metrics_endpoint(),
                "health": Endpoint(self.options.health_address, self.probes.route),
                "profiling": Endpoint(
                    self.options.profiling_address, Profiling(self._stop, clock).route
                ),
            },
            clock=clock,
        )

    # What controllers need

    def informer(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> SharedInformer[T]:
        """Return the process's informer of a kind; it starts with the manager, or now.

        `ManagerOptions.kinds` decides which part of each object is cached.
        """
        informer = self.informers.informer(
            resource,
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
        )
        with self._state_lock:
            self._resources.append(resource)
            running, stopping = self._fills_caches, self._stopping
            if not running:
                self._caches[informer] = None
        if running and not stopping:
            self.informers.start()
            with self._state_lock:
                self._caches[informer] = None  # once started, because a new leader reads it
        return informer

    def lister(self, resource: Resource[T]) -> Lister[T]:
        """Return the lister of a kind's cache."""
        return self.informer(resource).lister

    def reader(self, resource: Resource[T]) -> ObjectReader[T]:
        """Return reads of a kind from its cache, or from the server (see `ReaderFactory`).

        Does not start an informer: call `informer`, or let a controller watch the kind.
        """
        return self._readers.reader(resource)

    def cached_client(self, resource: Resource[T], *, needs_leader: bool = True) -> CachedClient[T]:
        """Return a client of a kind: cached reads, which include the writes made through it.

        Args:
            resource: The kind.
            needs_leader: Allow writes only while this process leads.
        """
        client = self.client if needs_leader else self._unfenced
        return CachedClient(client.resource(resource), self.informer(resource))

    def add(self, runnable: Runnable, *, needs_leader: bool = True, name: str = "") -> None:
        """Run a runnable with the manager; at once if its group already runs (MG-04).

        Raises:
            AlreadyStopped: The manager is stopping.
        """
        with self._state_lock:
            if self._stopping:
                raise AlreadyStopped("manager")
        group = self._leading if needs_leader else self._always
        name, held = name or type(runnable).__name__.lower(), _HELD.get()
        if held is None:
            group.add(name, runnable)
        else:
            held.append((group, name, runnable))

    def add_controller(self, controller: Controller) -> None:
        """Run a controller with the manager.

        A controller that is added after the start does not warm up before it runs.

        Raises:
            ConfigError: Another controller has its name (CT-01).
        """
        options = controller.options
        with self._state_lock:
            if controller.name in self._names:
                raise ConfigError("name", controller.name, "another controller has this name")
            self._names.add(controller.name)
            if options.warm_up and options.needs_leader_election and not self._fills_caches:
                self._warmed.append(controller)
        self.add(controller, needs_leader=options.needs_leader_election, name=controller.name)

    def add_feature(
        self,
        name: str,
        kinds: Sequence[Resource[Any]],
        add: Callable[[], None],
        *,
        hint: str = "",
        reads: Mapping[str, Sequence[Resource[Any]]] = MappingProxyType({}),
    ) -> None:
        """Add a part that starts when it has its kinds and permissions (MG-21).

        If the server serves the kinds when the manager starts, and lets it read them, `add` is
        called before the caches are filled. Otherwise the manager starts without the feature,
        logs one warning, and fails the check `name` of `/readyz` until it has called `add`,
        which may be much later, on another thread. What `add` adds then starts when the caches
        are current. An error of `add` stops the manager.

        Args:
            name: The name of the feature, and of its check.
            kinds: The kinds that the server must serve.
            add: Adds informers, controllers and other runnables to this manager.
            hint: What to do while kinds are missing, for the log; by default
                `ManagerOptions.missing_kinds_hint`.
            reads: The kinds that informers of the feature read, by namespace; the key "" means
                all namespaces. Each is listed and watched once to learn whether that is allowed.

        Raises:
            AlreadyStarted: The manager runs already.
            ConfigError: Another check of `/readyz` has this name.
        """
        options = self.options
        hints = hint or options.missing_kinds_hint, options.missing_permissions_hint
        feature = Feature(name, Needs(tuple(kinds), reads, *hints), add, self.instruments)
        self.probes.readyz.add(name, feature.check)
        with self._state_lock:
            self._features.append(feature)

    def add_healthz_check(self, name: str, check: Callable[[], None]) -> None:
        """Add a check to `/healthz`; it must raise when the process is unhealthy."""
        self.probes.healthz.add(name, check)

    def add_readyz_check(self, name: str, check: Callable[[], None]) -> None:
        """Add a check to `/readyz`; it must raise while the process is not ready."""
        self.probes.readyz.add(name, check)

    def add_metrics_page(self, path: str, route: Route) -> None:
        """Serve another page next to `/metrics`; the route is called on many threads.

        Raises:
            ConfigError: Another page has this path, or the path does not begin with a slash.
        """
        self._pages.add(path, route)

    @property
    def metrics_port(self) -> int:
        """The port of `/metrics`; 0 if it is off."""
        return self._servers.port("metrics")

    @property
    def profiling_port(self) -> int:
        """The port of thread dumps and profiles; 0 if it is off."""
        return self._servers.port("profiling")

    @property
    def health_port(self) -> int:
        """The port of the probes; 0 if it is off."""
        return self._servers.port("health")

    # Life

    def run(self, stop: StopToken | None = None, *, install_signals: bool = False) -> None:
        """Run everything until stopped or until a failure.

        Args:
            stop: Stops the manager in order.
            install_signals: Stop in order on SIGTERM and SIGINT, at once on a second signal.
                Only possible on the main thread.

        Raises:
            AlreadyStarted: Called before.
            LeaseLost: Another process may lead by now: exit.
            GracePeriodExceeded: A runnable did not end in time.
        """
        with self._state_lock:
            if self._started:
                raise AlreadyStarted("manager")
            self._started = True
        with ExitStack() as stack:
            if stop is not None:
                outer = stop
                stack.callback(outer.on_stop(lambda: self._stop.stop(outer.reason or "stopped")))
            stack.enter_context(SignalHandling(self._stop) if install_signals else nullcontext())
            try:
                self._start()
                self._stop.wait()
            except Stopped:
                _log.debug("start_interrupted")
            except BaseException as error:  # noqa: BLE001 - raised below, after the rest has ended
                self._fail(error)
            late = self._shut_down()
        self._raise(late)

    def _start(self) -> None:
        for checks in (self.probes.healthz, self.probes.readyz):
            checks.freeze()
        self._servers.start()
        wait_for_kinds(
            self._unfenced,
            self._wanted_kinds,
            report=self._set_caches_state,
            hint=self.options.missing_kinds_hint,
            stop=self._stop,
        )
        served = self._add_served_features()
        self.recorder.start(StopToken(clock=self.clock))
        self._set_caches_state("the caches are being filled")
        with self._state_lock:
            self._fills_caches = True
        self.informers.start()
        self.informers.wait_for_sync(self.options.cache_sync_timeout, self._stop)
        self._set_caches_state("")
        for feature in served:
            feature.report("")
        _log.info("caches_synced")
        self._stop.raise_if_set()
        self._always.start()
        self._warm_up()
        self._begin_leading()

    def _add_served_features(self) -> list[Feature]:
        """Add the features that can start, and let a thread wait for each other one."""
        with self._state_lock:
            features = list(self._features)
        served = []
        for feature in features:
            if feature.can_start(self._unfenced, self._stop):
                with self._adding_lock:
                    feature.add()
                served.append(feature)
            else:
                self._always.add(f"feature-{feature.name}", _Late(partial(self._add_late, feature)))
        return served

    def _add_late(self, feature: Feature, stop: StopToken) -> None:
        feature.wait(self._unfenced, stop)
        feature.report("the caches are being filled")
        held: list[tuple[RunnableGroup, str, Runnable]] = []
        collecting = _HELD.set(held)
        try:
            with self._adding_lock:
                feature.add()
        finally:
            _HELD.reset(collecting)
        self._catch_up(stop)
        for group, name, runnable in held:
            group.add(name, runnable)
        feature.report("")
        _log.info("feature_started", feature=feature.name)

    def _warm_up(self) -> None:
        with self._state_lock:
            controllers = list(self._warmed)
        parallelize(
            controllers,
            lambda controller: controller.warm_up(self._stop),
            workers=len(controllers),
            stop=self._stop,
            clock=self.clock,
        )
        self._stop.raise_if_set()

    def _begin_leading(self) -> None:
        if self._election is None:
            # The first lists may come from the API server's cache, and be older than the last
            # writes of a former process.
            self._catch_up(self._stop)
            self._leading.start()
            self.elected.stop("no election")
        else:
            self._election.start()

    def _lead(self, stop: StopToken) -> None:
        """Run the runnables that need leadership, on the elector's thread for the work."""
        # The current resourceVersion is read after the lease was acquired, so it includes the
        # last write of the former leader.
        self._catch_up(stop)
        withdraw = stop.on_stop(lambda: self._leading.stop(stop.reason or "no longer leading"))
        self._leading.start()
        _log.info("elected")
        self.elected.stop("elected")
        stop.wait()
        withdraw()
        self._leading.join(None)

    def _catch_up(self, stop: StopToken) -> None:
        with self._state_lock:
            caches = list(self._caches)
        catch_up(caches, timeout=self.options.cache_sync_timeout, stop=stop, clock=self.clock)

    def _shut_down(self) -> tuple[str, ...]:
        with self._state_lock:
            self._stopping = True
            lost = isinstance(self._failure, LeaseLost)
        self._stop.stop("the manager stops")
        _log.info("manager_stopping", reason=self._stop.reason)
        # After a lost lease another process may lead already: do not wait (MG-10).
        grace = 0.0 if lost else self.options.graceful_shutdown_timeout
        deadline = None if grace < 0 else self.clock.monotonic() + grace
        late = [*self._end(self._always, deadline), *self._end_leading(deadline)]
        with self._state_lock:
            warmed = list(self._warmed)
        for controller in warmed:
            controller.close()  # for controllers that never led
        if not self.informers.shutdown(self._left(deadline)):
            late.append("informers")
        # Events and servers have separate limits, so that the end is reported even when the
        # grace period is used up.
        self.recorder.close(_FLUSH_LIMIT if grace else 0.0)
        self._servers.stop(_SERVER_STOP_LIMIT if grace else 0.0)
        _log.info("manager_stopped", late=late)
        return tuple(late) if grace > 0 else ()

    def _end(self, group: RunnableGroup, deadline: float | None) -> tuple[str, ...]:
        group.stop(self._stop.reason or "the manager stops")
        return () if group.join(self._left(deadline)) else group.running()

    def _end_leading(self, deadline: float | None) -> tuple[str, ...]:
        if self._election is None:
            return self._end(self._leading, deadline)
        # The elector ends the work first, and renews the lease in the meantime (MG-12).
        self._election.stop(self._stop.reason or "the manager stops")
        if self._election.join(self._left(deadline)):
            self._leading.stop("never led")
            # The election gives up work that does not end, possibly just before the deadline.
            return self._leading.running()
        return self._leading.running() or ("election",)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self.clock.monotonic())

    def _fail(self, error: BaseException) -> None:
        with self._state_lock:
            first = self._failure is None
            if first:
                self._failure = error
        if first:
            self._stop.stop(f"{type(error).__name__}: {error}")
        else:
            _log.warning("stop_failed", error=str(error), exc_info=error)

    def _raise(self, late: tuple[str, ...]) -> None:
        exceeded = (
            GracePeriodExceeded(self.options.graceful_shutdown_timeout, late) if late else None
        )
        with self._state_lock:
            failure = self._failure
        if failure is not None:
            if exceeded is not None:
                failure.add_note(str(exceeded))
            raise failure
        if exceeded is not None:
            raise exceeded

    # Parts

    def _metrics_endpoint(self) -> Endpoint:
        address, security = self.options.metrics_address, self.options.metrics_security
        if security is None:
            return Endpoint(address, self._pages.route)
        certificate = ServerCertificate(security.cert_file, security.key_file)
        # Not fenced: the metrics of a follower are scraped, too.
        guard = (
            TokenReviewer(self._unfenced, clock=self.clock).guard if security.authorize else None
        )
        return Endpoint(address, self._pages.route, certificate, guard)

    def _prepare_election(self) -> Election | None:
        if self.options.leader_election is None:
            return None
        grace = self.options.graceful_shutdown_timeout
        election = Election(
            self.options.leader_election,
            self._unfenced,
            work=LeaderWork(self._lead, self._fail, timeout=None if grace < 0 else grace),
            clock=self.clock,
            instruments=self.instruments,
        )
        self.probes.healthz.add(HEALTH_CHECK, election.check)
        return election

    def _wanted_kinds(self) -> list[Resource[Any]]:
        with self._state_lock:
            return list(self._resources)

    def _check_caches(self) -> None:
        with self._state_lock:
            state, caches = self._caches_state, list(self._caches)
        if state:
            failures = [f"{i.name}: {problem}" for i in caches if (problem := i.list_failure)]
            raise CacheError("; ".join((state, *failures)))

    def _set_caches_state(self, state: str) -> None:
        with self._state_lock:
            self._caches_state = state


class _Late:
    """A runnable that adds a feature later."""

    def __init__(self, add: Callable[[StopToken], None]) -> None:
        self._add = add

    def run(self, stop: StopToken) -> None:
        with suppress(AlreadyStopped):  # the manager stops: nothing can be added
            self._add(stop)
