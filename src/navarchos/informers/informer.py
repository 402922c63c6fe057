"""A cache of one kind, kept in step with the server and shared by any number of handlers."""

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, TypeVar

from navarchos.client.resource import Resource
from navarchos.clock import SYSTEM_CLOCK, Clock
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
from navarchos.informers.ingest import Ingest, SkippedObjects
from navarchos.informers.interning import Interner
from navarchos.informers.lister import Lister
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.mutation import MutationDetector, WatchedStore, mutation_detector_wanted
from navarchos.informers.options import HandlerOptions, InformerOptions
from navarchos.informers.overlay import Overlay
from navarchos.informers.position import CachePosition
from navarchos.informers.processor import (
    MIN_RESYNC_PERIOD,
    EventProcessor,
    ProcessorListener,
    ResyncTimer,
)
from navarchos.informers.reflector import Reflector
from navarchos.informers.scope import Scope, ScopedSource
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
        - The cache ends up with the server's objects, through cut watches, expired
          versions and lost events.
        - The cache has a change before any handler is called with it.
        - Each handler is called with each object's changes in the server's order, one call
          at a time, on a separate thread. Intermediate states may be missing, never the
          last one. A slow or failing handler does not delay others.
        - Reads through `lister` include this process's own writes.

    Does not promise: order across objects; that a name always means one object (it may be
    deleted and re-created between two watches: compare uids); bounded handler buffers.

    Lifecycle: new, started, stopped, never back (SI-01). `stop()` requests the stop,
    `join()` waits for it. The reflector ends first, then the informer counts as stopped,
    then the delivery threads end; buffered notifications are dropped (SI-04).

    After a fork: every use of a started informer in the child raises `Forked`.

    Threads: every method is safe from any thread. An informer has one thread for the
    reflector, one for each handler, one for resyncs if there are any, and one more while a
    streamed list arrives.
    """

    def __init__(
        self,
        client: ListerWatcher[T],
        scope: Scope | None = None,
        options: InformerOptions[T] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        """Make an informer; it sends no request before its start.

        Args:
            client: The kind's client, usually `Client.resource(...)`.
            scope: Which objects; all by default.
            options: The settings.
            clock: Time and waiting.
            instruments: The metrics; a private registry by default.

        Raises:
            ConfigError: The label selector is not valid, or a namespace was given for a
                cluster-scoped kind.
        """
        self._options = options or InformerOptions()
        self.resource: Resource[T] = client.resource
        self.scope = (scope or Scope()).of_kind(self.resource)
        self.name = self._options.name or f"{self.resource} {self.scope}".strip()
        self._clock = clock
        self._metrics = InformerMetrics(instruments or Instruments(), str(self.resource))
        position = CachePosition(clock=clock, disconnected=self._metrics.disconnected)
        # The registry keeps this function, so it must not refer to the informer.
        self._metrics.show_version(lambda: position.resume_version)
        self._position = position
        self._detector = (
            MutationDetector[T](self.name, clock=clock) if mutation_detector_wanted() else None
        )
        self._store = self._new_store()
        self._overlay = Overlay(self._store, in_scope=self.scope.membership(), clock=clock)
        self._processor = EventProcessor(
            self._store,
            self._overlay,
            name=self.name,
            objects=self._metrics.objects,
            clock=clock,
        )
        source = ScopedSource(client, self.scope, idle_timeout=self._options.idle_timeout)
        self._skipped = SkippedObjects(source.name, self._metrics)
        self._reflector = self._new_reflector(source)
        self._catch_up = CatchUp(source, self._position, self._reflector.relist, clock=clock)
        self._fork_guard = ForkGuard(f"informer {self.name}")
        self.lister: Lister[T] = Lister(
            self._overlay,
            self.resource,
            namespaces=[self.scope.namespace] if self.scope.namespace else [],
            fork_guard=self._fork_guard,
        )
        self._stop = StopToken(clock=clock)  # ends the reflector and the resyncs
        self._stopped = StopToken(clock=clock)  # ends the deliveries, after the reflector
        self._threads = [
            ThreadGroup(f"{part}-{self.resource.plural}", stop=self._stop, clock=clock)
            for part in ("watch", "resync", "detect")
        ]
        self._state_lock = threading.Lock()
        self._state = _State.NEW  # guarded by _state_lock
        self._deliveries: list[Delivery[T]] = []  # guarded by _state_lock; any that may run

    def _new_store(self) -> WritableStore[T]:
        indexers = self._options.indexers
        if self._detector is None:
            return WritableStore(indexers, self._position)
        return WatchedStore(indexers, self._position, self._detector)

    def _new_reflector(self, source: ScopedSource[T]) -> Reflector[T]:
        ingest = Ingest(
            self._processor,
            kind=source.name,
            skipped=self._skipped,
            interner=Interner(self.resource.type),
            transform=self._options.transform,
            clock=self._clock,
        )
        return Reflector(
            source,
            ingest,
            self._position,
            self._options,
            metrics=self._metrics,
            clock=self._clock,
        )

    @property
    def store(self) -> Store[T]:
        """The objects as the watch has shown them, without this process's own writes."""
        return self._store

    @property
    def reader(self) -> Reader[T]:
        """The view that `lister` reads: the store, covered by this process's own writes."""
        return self._overlay

    @property
    def last_resource_version(self) -> ResourceVersion:
        """The version that the store has absorbed last; empty before the first (SI-05)."""
        return self._position.version

    @property
    def is_disconnected(self) -> bool:
        """Whether the watch is known to be lost at present, so that the cache misses changes.

        Known at once when a connection breaks or the server refuses, and after
        `idle_timeout` when the server falls silent. False between two watches that follow
        each other in good order, before the first list, and after the stop.
        """
        return self._position.disconnected

    def skipped(self) -> dict[str, Exception]:
        """Return the errors of objects whose present state is not in the cache, by key.

        An object that cannot be decoded (`DecodeError`), transformed (`TransformFailed`) or
        indexed (`IndexFailed`) does not hold up others. The cache has its earlier state, if
        there was one, until the object changes again, is deleted or is listed. The gauge
        `navarchos_informer_objects_skipped` counts such objects.
        """
        return self._skipped.snapshot()

    @property
    def list_failure(self) -> str:
        """The error of the last list or watch in words, until a list is complete; may be empty.

        Such as a missing permission: an informer tries again, and only logs the error.
        """
        return self._reflector.failure

    @property
    def failure(self) -> BaseException | None:
        """The error that crashed one of the informer's threads, if there was one."""
        return next((each.failure for each in self._own_threads() if each.failure), None)

    # Lifecycle

    def start(self, stop: StopToken | None = None) -> None:
        """Start to list and watch. Returns at once.

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
            period = self._processor.open(self._options.resync_period)
            watch.start("", self._reporting(lambda: self._reflect(stop)))
            if period > 0:
                resync.start("", self._reporting(lambda: self._resync(period)))
            if self._detector:
                detector = self._detector
                detect.start("", self._reporting(lambda: detector.run(self._stop)))

    def run(self, stop: StopToken) -> None:
        """Start, and return when the informer has stopped and its threads have ended.

        Raises:
            ThreadCrashed: One of its threads crashed; the cause is chained.
        """
        self.start(stop)
        self.join()
        for each in self._own_threads():
            each.raise_failure()

    def stop(self, reason: str = "asked to stop") -> None:
        """Request the stop; does not wait. Later calls do nothing."""
        self._fork_guard.check()
        self._stop.stop(reason)
        with self._state_lock:
            was_new = self._state is _State.NEW
            if was_new:
                self._state = _State.STOPPED
        if was_new:
            self._finish()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the informer has stopped and each of its threads has ended.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit, `0` does not wait.

        Returns:
            False if the time passed first. True for an informer that was never started.

        Raises:
            SelfJoin: Called from one of its threads, such as a handler.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        self._fork_guard.check()
        self._refuse_self_join()
        if not all(group.join(self._left(deadline)) for group in self._threads):
            return False
        # The list is final: the reflector's thread has closed it on its way out.
        return all(delivery.join(self._left(deadline)) for delivery in self._present())

    def has_ended(self) -> bool:
        """Return whether the informer was stopped and all its threads have ended."""
        with self._state_lock:
            stopped = self._state is _State.STOPPED
        running = any(group.running() for group in self._threads)
        return stopped and not running and all(each.has_ended() for each in self._present())

    def has_synced(self) -> bool:
        """Return whether the first list is in the store (SI-05).

        For handlers, ask their registrations.
        """
        self._fork_guard.check()
        return self._position.synced

    def wait_for_sync(self, timeout: float | None = None, stop: StopToken | None = None) -> bool:
        """Wait until the first list is in the store. No polling.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit, `0` does not wait.
            stop: Ends the wait early.

        Returns:
            False if the time passed, `stop` was set or the informer stopped first.
        """
        self._fork_guard.check()
        return self._position.wait_for(lambda at: at.synced, timeout, stop, self._stop)

    def unsynced(self) -> list[str]:
        """Return the names of the informer and of its handlers that are not synced (RT-08)."""
        late = [] if self.has_synced() else [self.name]
        return late + [f"{self.name} handler {name}" for name in self._processor.unsynced()]

    def catch_up(self, timeout: float | None = None, stop: StopToken | None = None) -> bool:
        """Wait until the cache has everything that the server has now.

        Requests the server's present version, and waits until the watch reaches it. If
        nothing of the kind has changed and no bookmark comes soon, the informer lists
        again. Costs one or two requests, so do not call this for every reconcile.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit.
            stop: Ends the wait early.

        Returns:
            False if the time passed, `stop` was set or the informer stopped first.

        Raises:
            NotStarted: The informer has not been started.
            ClientError: The server did not return its version.
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
        options: HandlerOptions | None = None,
        *,
        on_add: Callable[[T, bool], object] | None = None,
        on_update: Callable[[T, T], object] | None = None,
        on_delete: Callable[[T | Tombstone[T]], object] | None = None,
    ) -> Registration[T]:
        """Register a handler. On a running informer it first gets the present content.

        Args:
            handler: Its methods are called. Functions may be given instead.
            options: The settings.
            on_add: Called with `(obj, is_in_initial_list)`.
            on_update: Called with `(old, new)`; a resync passes one object twice.
            on_delete: Called with the object or a tombstone.

        Returns:
            The registration, to wait for the handler's sync and to remove the handler. A
            handler that is added twice has two registrations.

        Raises:
            AlreadyStopped: The informer has stopped.
            ConfigError: Both or neither of handler and functions were given, or the
                handler lacks a method.
        """
        self._fork_guard.check()
        options = options or HandlerOptions()
        functions = Callbacks(on_add=on_add, on_update=on_update, on_delete=on_delete)
        if (handler is None) == (not functions.functions):
            raise ConfigError("handler", handler, "pass either a handler or functions")
        if handler is not None:
            check_handler(handler)
        delivery = self._delivery(functions if handler is None else handler, options.name)
        listener = ProcessorListener(
            delivery, self._timer(options.resync_period), skip_unchanged=options.skip_unchanged
        )
        with self._state_lock:
            kept = [each for each in self._deliveries if each.failure or not each.has_ended()]
            self._deliveries = [*kept, delivery]
        self._processor.add(listener)
        return Registration(delivery, remove=lambda: self._processor.remove(listener))

    def add_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indexes; possible at any time before the stop (SI-02).

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
        """Show the result of a write in reads through `lister` from now on.

        It is shown until the watch brings it or a later state. See `Overlay`.
        """
        self._overlay.observe_write(obj)

    def observe_delete(self, obj: T) -> None:
        """Hide an object that this process deleted from reads through `lister`.

        Args:
            obj: The object as last seen; only its identity matters.
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
        self._processor.close()
        self._skipped.close()
        self._stopped.stop("the informer has stopped")

    def _reporting(self, run: Callable[[], object]) -> Callable[[], None]:
        def target() -> None:
            try:
                run()
            except Exception as error:  # not `Stopped`, which is an orderly end
                self._report(error)
                raise

        return target

    def _delivery_crashed(self, error: Exception) -> None:
        """End the informer: otherwise one of its handlers would get no more notifications."""
        self._report(error)
        self._stop.stop(f"the delivery of a handler crashed: {error!r}")

    def _report(self, error: Exception) -> None:
        if self._options.on_failure is not None:
            self._options.on_failure(error)

    def _resync(self, period: float) -> None:
        # The period runs across watches. If it started again with each watch, it would never
        # end on a connection that breaks often (RT-14).
        while not self._stop.wait(period):
            self._processor.resync()

    def _delivery(self, handler: EventHandler[T], name: str) -> Delivery[T]:
        name = name or handler_name(handler)
        delivery = Delivery(
            handler,
            self._metrics.handler(name),
            stop=self._stopped,
            on_failure=self._delivery_crashed,
            clock=self._clock,
        )
        self._metrics.pending(name, Delivery[T].outstanding).add(delivery)
        return delivery

    def _timer(self, period: float | None) -> ResyncTimer:
        wanted = self._options.resync_period if period is None else period
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
