"""One kind's cache, kept in step with the server, and shared by any number of handlers."""

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, TypeVar

from navarchos.backoff import Backoff
from navarchos.client.resource import Resource
from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import AlreadyStopped, ConfigError, NotStarted
from navarchos.informers.catchup import CatchUp
from navarchos.informers.delivery import Delivery, Registration
from navarchos.informers.handlers import (
    Callbacks,
    EventHandler,
    Tombstone,
    check_handler,
    handler_name,
)
from navarchos.informers.indexes import IndexFunction
from navarchos.informers.ingest import Ingest, SkippedObjects, Transform
from navarchos.informers.interning import Interner
from navarchos.informers.lister import Lister
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.mutation import (
    MutationDetector,
    WatchedStore,
    mutation_detector_wanted,
)
from navarchos.informers.overlay import Overlay
from navarchos.informers.position import CachePosition, Staleness
from navarchos.informers.processor import (
    MIN_RESYNC_PERIOD,
    EventProcessor,
    ProcessorListener,
    ResyncTimer,
)
from navarchos.informers.reflector import REFLECTOR_BACKOFF, Reflector, WatchErrorHandler
from navarchos.informers.scope import IDLE_TIMEOUT, Scope, ScopedSource
from navarchos.informers.source import ListerWatcher
from navarchos.informers.store import Reader, Store, WritableStore
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken
from navarchos.threads import ForkGuard, ThreadGroup

__all__ = ["SharedInformer"]

T = TypeVar("T")

_log = get_logger(__name__)


class _State(Enum):
    NEW = "new"
    STARTED = "started"
    STOPPED = "stopped"


class SharedInformer(Generic[T]):
    """A cache of one kind in one scope, fed by one watch, for any number of readers.

    Promises:
        - The cache ends up with what the server has, through cut watches, expired
          versions and lost events.
        - The cache has a change before any handler hears of it.
        - Each handler hears of each object's changes in the server's order, one
          call at a time, on a thread of its own. It may miss intermediate states,
          never the last one. A slow or failing handler delays nobody else.
        - Reads through `lister` include this process's own writes.

    Does not promise: order across objects; that a name stands for one object (it
    may be deleted and made anew unseen: compare uids); bounded handler buffers.

    Lifecycle: new, started, stopped, never back (SI-01). `stop()` asks, `join()`
    waits. The reflector ends first, then the informer counts as stopped, then the
    delivery threads end; what is still buffered for handlers is dropped (SI-04).

    After a fork: a started informer refuses to be used in the child, with `Forked`.

    Threads: every method is safe from any thread. Costs a thread for the reflector,
    one per handler, one for resyncs where there are any, and one more while a
    streamed list comes in.
    """

    def __init__(
        self,
        client: ListerWatcher[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resync_period: float = 0.0,
        transform: Transform[T] | None = None,
        indexers: Mapping[str, IndexFunction[T]] | None = None,
        streaming: bool = True,
        page_size: int | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT,
        backoff: Backoff = REFLECTOR_BACKOFF,
        tolerate_internal_errors: float = 0.0,
        on_watch_error: WatchErrorHandler | None = None,
        on_failure: Callable[[BaseException], object] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rand: Callable[[], float] = uniform,
        instruments: Instruments | None = None,
        name: str = "",
    ) -> None:
        """Make an informer; nothing is asked of the server before its start.

        Args:
            client: The kind's client, usually `Client.resource(...)`.
            namespace: Only this namespace; empty for all.
            label_selector: Only objects whose labels match.
            field_selector: Only objects whose fields match.
            resync_period: How often handlers get the cache replayed, in seconds; 0
                for never. Handlers may ask for another period.
            transform: Trims each object before it is stored.
            indexers: Index functions by name, besides the index `namespace`.
            streaming: Ask for a streaming list first; where the server cannot, an
                ordinary list follows.
            page_size: Objects per page of ordinary lists; `None` for the usual.
            idle_timeout: Seconds of silence after which a watch counts as dead, on a
                server that has been seen to send bookmarks; `None` for no limit.
            backoff: The pause after a failure.
            tolerate_internal_errors: For how many seconds internal errors in a watch
                lead to another watch instead of a list; 0 for never.
            on_watch_error: Hears why listing or watching failed instead of the log.
            on_failure: Hears what crashed one of the informer's own threads, which ends
                the informer; on that thread, so quick and without raising.
            clock: Time and waiting.
            rand: Source of jitter, in [0, 1).
            instruments: Where metrics go; a private registry by default.
            name: For logs and threads; kind and scope by default.

        Raises:
            ConfigError: A negative resync period, a selector that cannot be read, or
                a namespace for a cluster-scoped kind.
        """
        if resync_period < 0:
            raise ConfigError(
                "resync_period", resync_period, "the period must be 0 (never) or more"
            )
        self.resource: Resource[T] = client.resource
        self.scope = Scope.of(self.resource, namespace, label_selector, field_selector)
        self.name = name or f"{self.resource} {self.scope}".strip()
        self._clock = clock
        self._resync_period = resync_period
        self._metrics = InformerMetrics(instruments or Instruments(), str(self.resource))
        self._detector = (
            MutationDetector[T](self.name, clock=clock) if mutation_detector_wanted() else None
        )
        self._store = (
            WatchedStore(indexers, self._detector) if self._detector else WritableStore(indexers)
        )
        self._overlay = Overlay(self._store, in_scope=self.scope.membership(), clock=clock)
        self._progress = CachePosition(clock=clock)
        self._intake = EventProcessor(
            self._store,
            self._overlay,
            self._progress,
            name=self.name,
            objects=self._metrics.objects,
            clock=clock,
        )
        source = ScopedSource(client, self.scope, idle_timeout=idle_timeout)
        self._skipped = SkippedObjects(source.name, self._metrics)
        ingest = Ingest(
            self._intake,
            resource=source.name,
            skipped=self._skipped,
            sharing=Interner(self.resource.type),
            transform=transform,
            clock=clock,
        )
        self._reflector = Reflector(
            source,
            ingest,
            metrics=self._metrics,
            staleness=Staleness(self._progress, self._metrics.stale),
            streaming=streaming,
            page_size=page_size,
            backoff=backoff,
            tolerate_internal_errors=tolerate_internal_errors,
            on_error=on_watch_error,
            clock=clock,
            rand=rand,
        )
        self._catch_up = CatchUp(source, self._progress, self._reflector.relist, clock=clock)
        self._fork_guard = ForkGuard(f"informer {self.name}")
        self.lister: Lister[T] = Lister(
            self._overlay,
            self.resource,
            namespaces=[self.scope.namespace] if self.scope.namespace else [],
            fork_guard=self._fork_guard,
        )
        self._stop = StopToken(clock=clock)  # ends the reflector and the resyncs
        self._stopped = StopToken(clock=clock)  # ends the deliveries, once the reflector has
        self._threads = [
            ThreadGroup(f"{part}-{self.resource.plural}", stop=self._stop, clock=clock)
            for part in ("watch", "resync", "detect")
        ]
        self._on_failure = on_failure
        self._state_lock = threading.Lock()
        self._state = _State.NEW  # guarded by _state_lock
        self._deliveries: list[Delivery[T]] = []  # guarded by _state_lock; any that may run

    @property
    def store(self) -> Store[T]:
        """What the server has shown, own writes not included."""
        return self._store

    @property
    def reader(self) -> Reader[T]:
        """What `lister` reads: the store, covered by own writes."""
        return self._overlay

    @property
    def last_resource_version(self) -> ResourceVersion:
        """The version that the store has absorbed last; empty before the first (SI-05)."""
        return self._store.resource_version

    @property
    def is_disconnected(self) -> bool:
        """Whether the watch is known to be lost at present, so that changes may be missed.

        Known at once when a connection breaks or the server refuses, and after
        `idle_timeout` when it falls silent. Not so between two watches that follow
        each other in good order, nor before the first list, nor after the stop.
        """
        return self._progress.position.stale

    def skipped(self) -> dict[str, Exception]:
        """Return why objects are not in the cache as they are on the server, by key.

        An object that cannot be decoded (`DecodeError`), transformed
        (`TransformFailed`) or indexed (`IndexFailed`) holds up no other. The cache has
        it in the state before, if there was one, until it changes again, ends or is
        listed. The gauge `navarchos_informer_objects_skipped` counts such objects.
        """
        return self._skipped.present()

    @property
    def failure(self) -> BaseException | None:
        """What ended the informer's own threads, if it was a crash."""
        return next((each.failure for each in self._own_threads() if each.failure), None)

    # Life cycle

    def start(self, stop: StopToken | None = None) -> None:
        """Begin to list and watch. Returns at once.

        A second start, or one after a stop, is logged and does nothing (SI-01).

        Args:
            stop: Stops the informer when it is set, as `stop()` does.
        """
        self._fork_guard.check()
        with self._state_lock:
            if self._state is not _State.NEW:
                _log.warning("informer_not_started_again", informer=self.name)
                return
            self._state = _State.STARTED
            self._fork_guard.start()
            watch, resync, detect = self._threads
            period = self._intake.open(self._resync_period)
            watch.start("", self._reporting(lambda: self._reflect(stop)))
            if period > 0:
                resync.start("", self._reporting(lambda: self._resync(period)))
            if self._detector:
                detector = self._detector
                detect.start("", self._reporting(lambda: detector.run(self._stop)))

    def run(self, stop: StopToken) -> None:
        """Start, and return when the informer has stopped and its threads are gone.

        Raises:
            ThreadCrashed: One of its own threads crashed; the cause is chained.
        """
        self.start(stop)
        self.join()
        for each in self._own_threads():
            each.raise_failure()

    def stop(self, reason: str = "asked to stop") -> None:
        """Ask the informer to stop; does not wait. Later calls do nothing."""
        self._fork_guard.check()
        self._stop.stop(reason)
        with self._state_lock:
            was_new = self._state is _State.NEW
            if was_new:
                self._state = _State.STOPPED
        if was_new:
            self._finish()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the informer has stopped and every thread of it has ended.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit, `0` only
                looks.

        Returns:
            False if the time passed first. True for one that was never started.

        Raises:
            SelfJoin: Called from one of its own threads, such as a handler.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        self._fork_guard.check()
        self._refuse_self_join()
        if not all(group.join(self._left(deadline)) for group in self._threads):
            return False
        # The list is final: the reflector's thread has closed it on its way out.
        return all(delivery.join(self._left(deadline)) for delivery in self._present())

    def has_ended(self) -> bool:
        """Tell whether it has been stopped and no thread of it runs any more."""
        with self._state_lock:
            stopped = self._state is _State.STOPPED
        running = any(group.running() for group in self._threads)
        return stopped and not running and all(each.has_ended() for each in self._present())

    def has_synced(self) -> bool:
        """Tell whether the first list is in the store (SI-05).

        It says nothing about handlers; each registration speaks for itself.
        """
        self._fork_guard.check()
        return self._progress.position.synced

    def wait_for_sync(self, timeout: float | None = None, stop: StopToken | None = None) -> bool:
        """Wait until the first list is in the store. No polling.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit, `0` only
                looks.
            stop: Ends the wait early.

        Returns:
            False if the time passed, or `stop` was set or the informer stopped, first.
        """
        self._fork_guard.check()
        return self._progress.wait_for(lambda at: at.synced, timeout, stop, self._stop)

    def unsynced(self) -> list[str]:
        """Return what is not synced: the informer, and handlers, each by name (RT-08)."""
        late = [] if self.has_synced() else [self.name]
        return late + [f"{self.name} handler {name}" for name in self._intake.unsynced()]

    def catch_up(self, timeout: float | None = None, stop: StopToken | None = None) -> bool:
        """Wait until the cache is no older than the server is now.

        Asks the server for its present version, and waits for the watch to reach it;
        where nothing of the kind has changed and no bookmark comes soon, it lists
        again. Costs one or two requests: not for every pass over a large kind.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit.
            stop: Ends the wait early.

        Returns:
            False if the time passed, or `stop` was set or the informer stopped, first.

        Raises:
            NotStarted: There is nothing to wait for.
            ClientError: The server did not say its version.
        """
        self._fork_guard.check()
        with self._state_lock:
            if self._state is _State.NEW:
                raise NotStarted(f"informer {self.name}")
        return self._catch_up.wait(timeout, len(self._store), stop, self._stop)

    # Handlers and indexes

    def add_handler(
        self,
        handler: EventHandler[T] | None = None,
        *,
        on_add: Callable[[T, bool], object] | None = None,
        on_update: Callable[[T, T], object] | None = None,
        on_delete: Callable[[T | Tombstone[T]], object] | None = None,
        name: str = "",
        resync_period: float | None = None,
        skip_unchanged: bool = False,
    ) -> Registration[T]:
        """Register a handler; one added to a running informer first gets its content.

        Args:
            handler: Its methods are called; or give functions.
            on_add: Called with `(obj, is_in_initial_list)`.
            on_update: Called with `(old, new)`; a resync passes one object twice.
            on_delete: Called with the object or a tombstone.
            name: For logs and metrics; by default that of the code that is called.
            resync_period: In seconds, 0 for never, `None` for the informer's. At
                least 1; after the start at least the informer's (SI-16, SI-17).
            skip_unchanged: Leave out updates in which only the resourceVersion
                differs. A resync is no such update.

        Returns:
            The registration, to ask for sync and to remove the handler. The same
            handler added twice has two of them.

        Raises:
            AlreadyStopped: The informer has stopped.
            ConfigError: Both or neither of handler and functions were given, or the
                handler lacks a method.
        """
        self._fork_guard.check()
        functions = Callbacks(on_add=on_add, on_update=on_update, on_delete=on_delete)
        if (handler is None) == (not functions.functions):
            raise ConfigError("handler", handler, "pass either a handler or functions")
        if handler is not None:
            check_handler(handler)
        delivery = self._delivery(functions if handler is None else handler, name)
        listener = ProcessorListener(
            delivery, self._timer(resync_period), skip_unchanged=skip_unchanged
        )
        with self._state_lock:
            kept = [each for each in self._deliveries if each.failure or not each.has_ended()]
            self._deliveries = [*kept, delivery]
        self._intake.add(listener)
        return Registration(delivery, remove=lambda: self._intake.remove(listener))

    def add_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indexes, at any time before the stop (SI-02).

        Raises:
            AlreadyStopped: The informer has stopped.
            IndexConflict: A name is taken; nothing was added.
            IndexFailed: A function raised; nothing was added.
        """
        self._fork_guard.check()
        with self._state_lock:
            if self._state is _State.STOPPED:
                raise AlreadyStopped(f"informer {self.name}")
        self._store.add_indexers(indexers)

    # Own writes

    def observe_write(self, obj: T) -> None:
        """Let reads through `lister` show what a write returned, from now on.

        It is shown until the watch has caught up with it. See `Overlay`.
        """
        self._overlay.observe_write(obj)

    def observe_delete(self, obj: T) -> None:
        """Let reads through `lister` no longer show what this process deleted.

        Args:
            obj: What was deleted, as last seen: its identity counts.
        """
        self._overlay.observe_delete(obj)

    # Inside

    def _reflect(self, stop: StopToken | None) -> None:
        outer = stop if stop is not None else StopToken(clock=self._clock)
        withdraw = outer.on_stop(lambda: self.stop(outer.reason or "asked to stop"))
        try:
            self._reflector.run(self._stop)
        finally:
            withdraw()
            self._stop.stop("the reflector has ended")
            with self._state_lock:
                self._state = _State.STOPPED
            self._finish()

    def _finish(self) -> None:
        self._intake.close()
        self._skipped.close()
        self._stopped.stop("the informer has stopped")

    def _reporting(self, run: Callable[[], object]) -> Callable[[], None]:
        def target() -> None:
            try:
                run()
            except Exception as error:  # `Stopped` is none, and an orderly end
                self._report(error)
                raise

        return target

    def _delivery_crashed(self, error: Exception) -> None:
        """End the informer: to go on would leave one of its handlers blind."""
        self._report(error)
        self._stop.stop(f"the delivery of a handler crashed: {error!r}")

    def _report(self, error: Exception) -> None:
        if self._on_failure is not None:
            self._on_failure(error)

    def _resync(self, period: float) -> None:
        # The deadline is kept across watches; one that began anew with each would
        # never be reached on a connection that breaks often (RT-14).
        while not self._stop.wait(period):
            self._intake.resync()

    def _delivery(self, handler: EventHandler[T], name: str) -> Delivery[T]:
        called = name or handler_name(handler)
        delivery = Delivery(
            handler,
            name=called,
            group=f"handle-{self.resource.plural}-{called}",
            stop=self._stopped,
            on_failure=self._delivery_crashed,
            errors=self._metrics.handler_errors(called),
            seconds=self._metrics.handler_seconds(called),
            clock=self._clock,
        )
        self._metrics.pending(called, Delivery[T].outstanding).add(delivery)
        return delivery

    def _timer(self, period: float | None) -> ResyncTimer:
        wanted = self._resync_period if period is None else period
        if 0 < wanted < MIN_RESYNC_PERIOD:
            _log.warning("resync_period_raised", wanted=wanted, period=MIN_RESYNC_PERIOD)
            wanted = MIN_RESYNC_PERIOD
        return ResyncTimer(wanted, self._clock.monotonic())

    def _present(self) -> list[Delivery[T]]:
        with self._state_lock:
            return list(self._deliveries)

    def _own_threads(self) -> list[ThreadGroup | Delivery[T]]:
        return [*self._threads, *self._present()]

    def _refuse_self_join(self) -> None:
        for each in self._own_threads():
            each.join(0)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.monotonic())
