"""Informers of one process: one per kind and scope, started and stopped together."""

import gc
import threading
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, cast

from navarchos.client.resource import Resource
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStopped, ConfigError, Stopped
from navarchos.informers.errors import KindNotCached, SyncTimeout
from navarchos.informers.indexes import IndexFunction
from navarchos.informers.informer import SharedInformer
from navarchos.informers.scope import Scope
from navarchos.informers.source import ListerWatcher
from navarchos.instrument import Instruments
from navarchos.stopping import StopToken

__all__ = ["InformerFactory", "SourceClient"]

T = TypeVar("T")


class SourceClient(Protocol):
    """What a factory needs of a client: a source for each kind."""

    def resource(self, resource: Resource[T]) -> ListerWatcher[T]:
        """Return the source of a kind."""
        ...


class InformerFactory:
    """Hands out informers, the same one to everybody who asks for the same thing.

    Two askers share an informer when kind and scope are equal and its type is the
    one asked for or a subclass of it: objects of a projection that contains another
    serve for both (IF-01).

    Lifecycle: ask, `start`, `wait_for_sync`, `shutdown`. Informers that were asked
    for after a start need another one (IF-02).

    Threads: every method is safe from any thread.
    """

    def __init__(
        self,
        client: SourceClient,
        *,
        resync_period: float = 0.0,
        freeze: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        """Make a factory without informers.

        Args:
            client: Where informers list and watch.
            resync_period: Of each informer, in seconds; 0 for never.
            freeze: Move what is in memory out of the garbage collector's reach once
                the caches are filled, so that it is not walked again and again.
            clock: Time and waiting.
            instruments: Where metrics go; a private registry by default.
        """
        self._client = client
        self._resync_period = resync_period
        self._freeze = freeze
        self._clock = clock
        self._instruments = instruments or Instruments()
        self._informers_lock = threading.Lock()
        self._informers: list[SharedInformer[Any]] = []  # guarded by _informers_lock
        self._started: set[SharedInformer[Any]] = set()  # guarded by _informers_lock
        self._frozen: set[SharedInformer[Any]] = set()  # guarded by _informers_lock
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
            namespace: Only this namespace; empty for all.
            label_selector: Only objects whose labels match.
            field_selector: Only objects whose fields match.
            indexers: Added to those it has.

        Raises:
            ConfigError: A namespace for a cluster-scoped kind (IF-10).
            IndexConflict: An index of that name exists; nothing was added.
        """
        if namespace and not resource.namespaced:
            raise ConfigError(
                "namespace", namespace, f"{resource} are cluster-scoped: leave it out"
            )
        scope = Scope(namespace, label_selector, field_selector)
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
        """
        scope = Scope(namespace, label_selector, field_selector)
        with self._informers_lock:
            informer = self._find_locked(resource, scope)
        if informer is None:
            raise KindNotCached(f"{resource} {scope}".strip())
        return informer

    def start(self, stop: StopToken | None = None) -> None:
        """Start every informer that was asked for and does not run yet. Returns at once.

        Raises:
            AlreadyStopped: The factory has been shut down.
        """
        with self._informers_lock:
            if self._is_shut_down:
                raise AlreadyStopped("informer factory")
            fresh = [informer for informer in self._informers if informer not in self._started]
            self._started.update(fresh)
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
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._informers_lock:
            started = list(self._started)
        # No short circuit: with the time over, the rest is only looked at.
        synced = [informer.wait_for_sync(self._left(deadline), stop) for informer in started]
        if not all(synced):
            if stop is not None and stop.is_set():
                raise Stopped(stop.reason or "")
            raise SyncTimeout(i.name for i, done in zip(started, synced, strict=True) if not done)
        self._freeze_once(started)

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
            informers = list(self._informers)
        for informer in informers:
            informer.stop("the informer factory shuts down")
        return all(informer.join(self._left(deadline)) for informer in informers)

    def _make(self, resource: Resource[T], scope: Scope) -> SharedInformer[T]:
        return SharedInformer(
            self._client.resource(resource),
            namespace=scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            resync_period=self._resync_period,
            clock=self._clock,
            instruments=self._instruments,
            name=f"{resource} {scope}".strip(),
        )

    def _find_locked(self, resource: Resource[T], scope: Scope) -> SharedInformer[T] | None:
        for informer in self._informers:
            if informer.scope == scope and _serves(informer.resource, resource):
                return cast("SharedInformer[T]", informer)
        return None

    def _freeze_once(self, synced: list[SharedInformer[Any]]) -> None:
        with self._informers_lock:
            fresh = set(synced) - self._frozen
            self._frozen |= fresh
        if self._freeze and fresh:
            # Garbage that is frozen stays for ever: collect it first.
            gc.collect()
            gc.freeze()

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
