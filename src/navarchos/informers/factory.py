"""The informers of one process: one per kind and scope, started and stopped together."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast

from navarchos.client.resource import Resource
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStopped, NotStarted, Stopped
from navarchos.informers.errors import KindNotCached, SyncTimeout
from navarchos.informers.gc_freeze import GC_FREEZER
from navarchos.informers.indexes import IndexFunction
from navarchos.informers.informer import SharedInformer
from navarchos.informers.lister import Lister, UnionReader
from navarchos.informers.options import (
    FactoryOptions,
    InformerOptions,
    KindOptions,
    resync_default,
)
from navarchos.informers.scope import Scope
from navarchos.informers.source import ListerWatcher
from navarchos.instrument import Instruments
from navarchos.stopping import StopToken
from navarchos.threads import ForkGuard

__all__ = ["InformerFactory", "SourceClient"]

T = TypeVar("T")


class SourceClient(Protocol):
    """What a factory needs from a client: a source for each kind."""

    def resource(self, resource: Resource[T]) -> ListerWatcher[T]:
        """Return the source of a kind."""
        ...


class InformerFactory:
    """Makes informers, and returns the same informer for equal requests.

    Two requests share an informer if kind and scope are equal, the informer's type is the
    requested one or a subclass of it, and both kinds have the same transform and resync
    period. So a projection that contains another one serves both (IF-01, IF-06).

    Lifecycle: request, `start`, `wait_for_sync`, `shutdown`. Informers that are requested
    after a start need another start (IF-02), except those behind `lister`.

    Threads: every method is safe from any thread.
    """

    def __init__(
        self,
        client: SourceClient,
        options: FactoryOptions | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        """Make a factory without informers.

        Args:
            client: Where informers list and watch.
            options: The settings.
            clock: Time and waiting.
            instruments: The metrics; a private registry by default.
        """
        self._client = client
        self._options = options or FactoryOptions()
        self._clock = clock
        self._instruments = instruments or Instruments()
        self._kinds: dict[Resource[Any], KindOptions[Any]] = {}  # computed once for each kind
        self._informers_lock = threading.Lock()
        self._informers: list[SharedInformer[Any]] = []  # guarded by _informers_lock
        # guarded by _informers_lock; a dict for its order, as a run with a seed must repeat
        self._started: dict[SharedInformer[Any], None] = {}
        self._removed: list[SharedInformer[Any]] = []  # guarded by _informers_lock; may run
        self._frozen: set[SharedInformer[Any]] = set()  # guarded by _informers_lock
        self._stop: StopToken | None = None  # guarded by _informers_lock; of the last start
        self._is_started = False  # guarded by _informers_lock
        self._is_shut_down = False  # guarded by _informers_lock

    def informer(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[T]] | None = None,
    ) -> SharedInformer[T]:
        """Return the informer of a kind and scope; the first request makes it.

        Never blocks (IF-07). A new informer must still be started.

        Args:
            resource: The kind and the type wanted.
            namespace: Only this namespace; empty for the kind's, or the factory's.
            label_selector: Only objects whose labels match; empty for the kind's.
            field_selector: Only objects whose fields match; empty for the kind's.
            indexers: Index functions by name, added to the informer's.

        Raises:
            ConfigError: A namespace for a cluster-scoped kind (IF-10).
            IndexConflict: An index of that name exists; nothing was added.
        """
        scope = self._scope(resource, namespace, label_selector, field_selector)
        with self._informers_lock:
            informer = self._find_locked(resource, scope)
            if informer is None:
                informer = self._make(resource, scope)
                self._informers.append(informer)
        if indexers:
            informer.add_indexers(indexers)
        return informer

    def find(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> SharedInformer[T]:
        """Return an informer that was requested before; never make one (IF-05).

        Raises:
            KindNotCached: The informer was not requested before.
            ConfigError: A namespace for a cluster-scoped kind.
        """
        scope = self._scope(resource, namespace, label_selector, field_selector)
        with self._informers_lock:
            informer = self._find_locked(resource, scope)
        if informer is None:
            raise KindNotCached(f"{resource} {scope}".strip())
        return informer

    def lister(
        self,
        resource: Resource[T],
        *,
        namespaces: Iterable[str] = (),
        label_selector: str = "",
        field_selector: str = "",
        timeout: float | None = None,
        stop: StopToken | None = None,
    ) -> Lister[T]:
        """Return a lister of a filled cache; start the informer if it does not run (IF-04).

        Args:
            resource: The kind and the type wanted.
            namespaces: Only these namespaces. Each has a separate watch, as a Role in it
                allows; reads of other namespaces are refused (IF-11). Empty for the
                kind's, or the factory's.
            label_selector: Only objects whose labels match; empty for the kind's.
            field_selector: Only objects whose fields match; empty for the kind's.
            timeout: Longest wait in seconds for first lists; `None` waits without
                limit.
            stop: Ends the wait early.

        Raises:
            NotStarted: The factory has not been started, so the cache would never fill.
            AlreadyStopped: The factory has been shut down.
            SyncTimeout: The time passed, or an informer stopped; names the unsynced ones.
            Stopped: `stop` was set first.
            ConfigError: A namespace for a cluster-scoped kind.
        """
        with self._informers_lock:
            if not self._is_started:
                raise NotStarted("informer factory")
            outer = self._stop
        parts = {
            namespace: self.informer(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )
            for namespace in list(namespaces) or [""]
        }
        self.start(outer)
        self._wait(list(parts.values()), timeout, stop)
        if len(parts) == 1:
            (only,) = parts.values()
            return only.lister
        union = UnionReader({namespace: part.reader for namespace, part in parts.items()})
        guard = ForkGuard(f"the cache of {resource}")
        guard.start()
        return Lister(union, resource, namespaces=parts, fork_guard=guard)

    def remove(
        self,
        resource: Resource[Any],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """Stop an informer and remove it; the next request makes another one (IF-08).

        Does not wait for its threads; `shutdown` does. Code that still has the informer can
        read its last content. Without such an informer nothing happens.

        Raises:
            ConfigError: A namespace for a cluster-scoped kind.
        """
        scope = self._scope(resource, namespace, label_selector, field_selector)
        with self._informers_lock:
            informer = self._find_locked(resource, scope)
            if informer is None:
                return
            self._informers.remove(informer)
            self._started.pop(informer, None)
            self._frozen.discard(informer)
            self._removed = [each for each in self._removed if not each.has_ended()]
            self._removed.append(informer)
        informer.stop("removed from the informer factory")

    def start(self, stop: StopToken | None = None) -> None:
        """Start every requested informer that does not run yet. Returns at once.

        Raises:
            AlreadyStopped: The factory has been shut down.
        """
        with self._informers_lock:
            if self._is_shut_down:
                raise AlreadyStopped("informer factory")
            self._is_started, self._stop = True, stop
            fresh = [informer for informer in self._informers if informer not in self._started]
            self._started.update(dict.fromkeys(fresh))
            for informer in fresh:
                # Under the lock, so that a shutdown stops each of them after its start.
                informer.start(stop)

    def wait_for_sync(self, timeout: float | None = None, stop: StopToken | None = None) -> None:
        """Wait until every started informer has its first list.

        Args:
            timeout: Longest wait in seconds for all of them; `None` waits without
                limit.
            stop: Ends the wait early.

        Raises:
            SyncTimeout: The time passed, or an informer stopped; names the unsynced ones.
            Stopped: `stop` was set first.
        """
        with self._informers_lock:
            started = list(self._started)
        self._wait(started, timeout, stop)

    def shutdown(self, timeout: float | None = None) -> bool:
        """Stop all informers, forbid further starts, and wait for their threads.

        Args:
            timeout: Longest wait in seconds for all of them; `None` waits without
                limit.

        Returns:
            False if the time passed with threads still running. May be called again.

        Raises:
            SelfJoin: Called from a handler.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._informers_lock:
            self._is_shut_down = True
            informers = [*self._informers, *self._removed]
        for informer in informers:
            informer.stop("the informer factory shuts down")
        GC_FREEZER.unfreeze(self)
        return all(informer.join(self._left(deadline)) for informer in informers)

    def _wait(
        self, informers: list[SharedInformer[Any]], timeout: float | None, stop: StopToken | None
    ) -> None:
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        # Ask all of them, even when the time is over, to name each that is not synced.
        synced = [informer.wait_for_sync(self._left(deadline), stop) for informer in informers]
        if not all(synced):
            if stop is not None and stop.is_set():
                raise Stopped(stop.reason or "")
            raise SyncTimeout(i.name for i, done in zip(informers, synced, strict=True) if not done)
        self._freeze_once(informers)

    def _scope(
        self, resource: Resource[Any], namespace: str, label_selector: str, field_selector: str
    ) -> Scope:
        """Return the requested scope, with the settings of the kind for empty arguments."""
        kind = self._kind(resource)
        scope = Scope(
            namespace or kind.namespace or "",
            label_selector or kind.label_selector,
            field_selector or kind.field_selector,
        )
        return scope.of_kind(resource)

    def _kind(self, resource: Resource[Any]) -> KindOptions[Any]:
        kind = self._kinds.get(resource)
        if kind is None:
            kind = self._kinds[resource] = self._options.of_kind(resource)
        return kind

    def _make(self, resource: Resource[T], scope: Scope) -> SharedInformer[T]:
        kind = self._kind(resource)
        period = kind.resync_period
        rand = self._options.rand
        options = InformerOptions[T](
            name=f"{resource} {scope}".strip(),
            resync_period=resync_default(rand) if period is None else period,
            transform=kind.transform,
            streaming=kind.streaming,
            on_failure=self._options.on_failure,
        )
        return SharedInformer(
            self._client.resource(resource),
            scope,
            options,
            clock=self._clock,
            instruments=self._instruments,
        )

    def _find_locked(self, resource: Resource[T], scope: Scope) -> SharedInformer[T] | None:
        wanted = self._kind(resource)
        for informer in self._informers:
            if informer.scope != scope or not _serves(informer.resource, resource):
                continue
            kind = self._kind(informer.resource)
            if (kind.resync_period, kind.transform) == (wanted.resync_period, wanted.transform):
                return cast("SharedInformer[T]", informer)
        return None

    def _freeze_once(self, synced: list[SharedInformer[Any]]) -> None:
        with self._informers_lock:
            fresh = set(synced) - self._frozen
            self._frozen |= fresh
        if self._options.freeze and fresh:
            GC_FREEZER.freeze(self)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.monotonic())


def _serves(present: Resource[Any], wanted: Resource[Any]) -> bool:
    """Return whether the objects of one resource can serve as objects of the other."""
    if present == wanted:
        return True
    types = (present.type, wanted.type)
    return (
        present.projected(wanted.type) == wanted
        and all(isinstance(each, type) for each in types)
        and issubclass(present.type, wanted.type)
    )
