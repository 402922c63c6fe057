"""Informers of one process: one per kind and scope, started and stopped together."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar, cast

from navarchos.client.resource import Resource
from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import AlreadyStopped, NotStarted, Stopped
from navarchos.informers.errors import KindNotCached, SyncTimeout
from navarchos.informers.gc_freeze import GC_FREEZER
from navarchos.informers.indexes import IndexFunction
from navarchos.informers.informer import SharedInformer
from navarchos.informers.ingest import Transform
from navarchos.informers.lister import Lister, UnionReader
from navarchos.informers.options import KindOptions, resync_default
from navarchos.informers.scope import Scope
from navarchos.informers.source import ListerWatcher
from navarchos.instrument import Instruments
from navarchos.stopping import StopToken
from navarchos.threads import ForkGuard

__all__ = ["InformerFactory", "SourceClient"]

T = TypeVar("T")

_NO_OPTIONS: Final = KindOptions[Any]()


class SourceClient(Protocol):
    """What a factory needs of a client: a source for each kind."""

    def resource(self, resource: Resource[T]) -> ListerWatcher[T]:
        """Return the source of a kind."""
        ...


class InformerFactory:
    """Hands out informers, the same one to everybody who asks for the same thing.

    Two askers share an informer when kind and scope are equal, its type is the one
    asked for or a subclass of it, and both kinds have the same transform and resync:
    objects of a projection that contains another serve for both (IF-01, IF-06).

    Lifecycle: ask, `start`, `wait_for_sync`, `shutdown`. Informers that were asked
    for after a start need another one (IF-02), except those behind `lister`.

    Threads: every method is safe from any thread.
    """

    def __init__(
        self,
        client: SourceClient,
        *,
        namespace: str = "",
        resync_period: float | None = 0.0,
        transform: Transform[Any] | None = None,
        kinds: Mapping[Resource[Any], KindOptions[Any]] | None = None,
        freeze: bool = True,
        on_failure: Callable[[BaseException], object] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rand: Callable[[], float] = uniform,
        instruments: Instruments | None = None,
    ) -> None:
        """Make a factory without informers.

        Args:
            client: Where informers list and watch.
            namespace: Only this namespace, of kinds that live in namespaces, unless
                an asker names another; empty for all.
            resync_period: Of each informer, in seconds; 0 for never; `None` for ten
                hours, up to a tenth more or less, drawn for each (IF-09).
            transform: Trims each object of each kind before it is stored.
            kinds: What differs for some kinds, each with its projection.
            freeze: Move what is in memory out of the garbage collector's reach once
                the caches are filled, so that it is not walked again and again; it
                comes back with the shutdown of the last factory that did so.
            on_failure: Hears what crashed an informer's own thread; see there.
            clock: Time and waiting.
            rand: Source of jitter, in [0, 1).
            instruments: Where metrics go; a private registry by default.
        """
        self._client = client
        self._namespace = namespace
        self._resync_period = resync_period
        self._transform = transform
        self._kinds = dict(kinds or {})
        self._freeze = freeze
        self._on_failure = on_failure
        self._clock = clock
        self._rand = rand
        self._instruments = instruments or Instruments()
        self._informers_lock = threading.Lock()
        self._informers: list[SharedInformer[Any]] = []  # guarded by _informers_lock
        # guarded by _informers_lock; a dict for its order, as what runs by a seed has to repeat
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
        """Return the informer of a kind and scope; the first asker makes it.

        Never blocks on anything (IF-07); a new one still has to be started.

        Args:
            resource: The kind and the type wanted.
            namespace: Only this namespace; empty for the kind's, or the factory's.
            label_selector: Only objects whose labels match; empty for the kind's.
            field_selector: Only objects whose fields match; empty for the kind's.
            indexers: Added to those it has.

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
        """Return an informer that somebody has asked for; never make one (IF-05).

        Raises:
            KindNotCached: Nobody has.
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
        """Return reads of a filled cache; what is not watched yet is, from now on (IF-04).

        Args:
            resource: The kind and the type wanted.
            namespaces: Only these, each with a watch of its own, as a role in each of
                them allows; reads of others are refused (IF-11). None for the kind's,
                or the factory's.
            label_selector: Only objects whose labels match; empty for the kind's.
            field_selector: Only objects whose fields match; empty for the kind's.
            timeout: Longest wait in seconds for first lists; `None` waits without
                limit.
            stop: Ends the wait early.

        Raises:
            NotStarted: The factory has not been started: nothing would ever come.
            AlreadyStopped: The factory has been shut down.
            SyncTimeout: The time passed, or an informer stopped; names the late ones.
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
        """Stop an informer and forget it; who asks again gets a fresh one (IF-08).

        Does not wait for its threads; `shutdown` does. Whoever still holds it can
        read what it had. Without such an informer nothing happens.

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
        """Start every informer that was asked for and does not run yet. Returns at once.

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
                # Under the lock, so that a shutdown finds only started ones started.
                informer.start(stop)

    def wait_for_sync(self, timeout: float | None = None, stop: StopToken | None = None) -> None:
        """Wait until every started informer has its first list.

        Args:
            timeout: Longest wait in seconds for all of them; `None` waits without
                limit.
            stop: Ends the wait early.

        Raises:
            SyncTimeout: The time passed, or an informer stopped; names the late ones.
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
        GC_FREEZER.thaw(self)
        return all(informer.join(self._left(deadline)) for informer in informers)

    def _wait(
        self, informers: list[SharedInformer[Any]], timeout: float | None, stop: StopToken | None
    ) -> None:
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        # No short circuit: with the time over, the rest is only looked at.
        synced = [informer.wait_for_sync(self._left(deadline), stop) for informer in informers]
        if not all(synced):
            if stop is not None and stop.is_set():
                raise Stopped(stop.reason or "")
            raise SyncTimeout(i.name for i, done in zip(informers, synced, strict=True) if not done)
        self._freeze_once(informers)

    def _scope(
        self, resource: Resource[Any], namespace: str, label_selector: str, field_selector: str
    ) -> Scope:
        """What an asker leaves empty the kind's options say, and then the factory's."""
        kind = self._kind(resource)
        if kind.namespace is not None:
            namespace = namespace or kind.namespace
        elif resource.namespaced:
            namespace = namespace or self._namespace
        return Scope.of(
            resource,
            namespace,
            label_selector or kind.label_selector,
            field_selector or kind.field_selector,
        )

    def _kind(self, resource: Resource[Any]) -> KindOptions[Any]:
        return self._kinds.get(resource, _NO_OPTIONS)

    def _make(self, resource: Resource[T], scope: Scope) -> SharedInformer[T]:
        period = self._period(resource)
        return SharedInformer(
            self._client.resource(resource),
            namespace=scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            resync_period=resync_default(self._rand) if period is None else period,
            transform=self._transform_of(resource),
            streaming=self._kind(resource).streaming,
            on_failure=self._on_failure,
            clock=self._clock,
            instruments=self._instruments,
            name=f"{resource} {scope}".strip(),
        )

    def _period(self, resource: Resource[Any]) -> float | None:
        own = self._kind(resource).resync_period
        return self._resync_period if own is None else own

    def _transform_of(self, resource: Resource[Any]) -> Transform[Any] | None:
        return self._kind(resource).transform or self._transform

    def _find_locked(self, resource: Resource[T], scope: Scope) -> SharedInformer[T] | None:
        for informer in self._informers:
            present = informer.resource
            alike = all(of(present) == of(resource) for of in (self._period, self._transform_of))
            if informer.scope == scope and alike and _serves(present, resource):
                return cast("SharedInformer[T]", informer)
        return None

    def _freeze_once(self, synced: list[SharedInformer[Any]]) -> None:
        with self._informers_lock:
            fresh = set(synced) - self._frozen
            self._frozen |= fresh
        if self._freeze and fresh:
            GC_FREEZER.freeze(self)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.monotonic())


def _serves(present: Resource[Any], wanted: Resource[Any]) -> bool:
    """Tell whether objects of one resource are objects of the other, and of its type."""
    if present == wanted:
        return True
    types = (present.type, wanted.type)
    return (
        present.projected(wanted.type) == wanted
        and all(isinstance(each, type) for each in types)
        and issubclass(present.type, wanted.type)
    )
