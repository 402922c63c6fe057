"""Controllers, put together from what they watch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from navarchos.client import Resource
from navarchos.errors import ConfigError
from navarchos.runtime.controller import Controller
from navarchos.runtime.predicates import Predicate
from navarchos.runtime.reconciler import Reconciler, Request
from navarchos.runtime.sources import (
    Channel,
    ChannelSource,
    EnqueueMapped,
    EnqueueObject,
    EnqueueOwners,
    InformerSource,
    RequestMap,
    Source,
)
from navarchos.workqueue import RateLimiter

if TYPE_CHECKING:
    from navarchos.runtime.manager import Manager

__all__ = ["Builder"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Watch:
    """A kind to watch, and what to make of it."""

    resource: Resource[Any]
    mapping: RequestMap[Any]
    when: Predicate[Any] | None
    scope: dict[str, str]


class Builder:
    """Describes a controller, then makes it a part of a manager.

    ```python
    (Builder(manager, "rollouts")
        .for_(NODE_ROLLOUTS)
        .owns(NODE_REPLACEMENTS)
        .watches(NODES, map=nodes_to_rollouts, when=labels_changed)
        .with_workers(4)
        .build(Reconcile(manager.client)))
    ```

    Args:
        manager: Runs the controller; its informers are used.
        name: The controller's name; the kind of `for_` in lower case if empty.
    """

    def __init__(self, manager: "Manager", name: str = "") -> None:
        self._manager = manager
        self._name = name
        self._for: Resource[Any] | None = None
        self._watches: list[_Watch | Source] = []
        self._predicates: list[Predicate[Any]] = []
        self._defaults = manager.options.controllers
        self._workers: int | None = None
        self._limiter: RateLimiter[Request] | None = None
        self._needs_leader = self._defaults.needs_leader_election
        self._warm_up = self._defaults.warm_up
        self._debounce = 0.0
        self._timeout = self._defaults.reconcile_timeout
        self._recover = self._defaults.recover
        self._built = False

    def for_(self, resource: Resource[T], *, when: Predicate[T] | None = None) -> Self:
        """Reconcile the objects of this kind. At most once (CT-25)."""
        if self._for is not None:
            raise ConfigError("for_", str(resource), f"for_ was already called with {self._for}")
        self._for = resource
        return self._watch(resource, EnqueueObject(), when)

    def owns(
        self,
        resource: Resource[T],
        *,
        when: Predicate[T] | None = None,
        every_owner: bool = False,
    ) -> Self:
        """Look at an object when one that it controls changes; needs `for_` first.

        Args:
            resource: The kind of what is owned.
            when: Filters events.
            every_owner: Also owners that do not control it (CT-26).
        """
        if self._for is None:
            raise ConfigError("owns", str(resource), "call for_ before owns")
        mapping = EnqueueOwners(self._for, controller_only=not every_owner)
        return self._watch(resource, mapping, when)

    def watches(
        self,
        resource: Resource[T],
        *,
        map: Callable[[T], Iterable[Request]],  # noqa: A002 - the field's word
        when: Predicate[T] | None = None,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> Self:
        """Look at whatever a function names when an object of this kind changes."""
        return self._watch(
            resource,
            EnqueueMapped(map),
            when,
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
        )

    def where(self, *predicates: Predicate[Any]) -> Self:
        """Filter the events of every kind, before its own `when` (CT-26).

        Channels and other sources are not filtered.
        """
        self._predicates += predicates
        return self

    def watches_channel(self, channel: Channel, name: str = "channel") -> Self:
        """Look at what code of this process sends."""
        self._watches.append(ChannelSource(channel, name))
        return self

    def watches_raw(self, source: Source) -> Self:
        """Look at what any other source feeds."""
        self._watches.append(source)
        return self

    def with_workers(self, workers: int) -> Self:
        """Reconcile so many keys at the same time."""
        self._workers = workers
        return self

    def with_debounce(self, seconds: float) -> Self:
        """Let the requests of a key collapse for so long; see `Controller`."""
        self._debounce = seconds
        return self

    def with_rate_limiter(self, limiter: RateLimiter[Request]) -> Self:
        """Pause after failures as this limiter says."""
        self._limiter = limiter
        return self

    def with_leader_election(self) -> Self:
        """Run only while leading; the default, unless the manager's is another."""
        self._needs_leader = True
        return self

    def without_leader_election(self) -> Self:
        """Run on every replica."""
        self._needs_leader = False
        return self

    def with_warm_up(self) -> Self:
        """Fill the queue before leading; reconcile nothing until then (CT-08)."""
        self._warm_up = True
        return self

    def with_reconcile_timeout(self, seconds: float) -> Self:
        """Ask a reconcile to end after so many seconds; see `ReconcileContext`."""
        self._timeout = seconds
        return self

    def with_recovery(self) -> Self:
        """Go on after a panic; the default, unless the manager's is another."""
        self._recover = True
        return self

    def without_recovery(self) -> Self:
        """Let what nobody meant to raise end the process."""
        self._recover = False
        return self

    def build(self, reconciler: Reconciler) -> Controller:
        """Make the controller and give it to the manager.

        Raises:
            ConfigError: It watches nothing, has no name, shares its name with
                another one, or was built before.
        """
        if self._built:
            raise ConfigError("build", self._name, "build() was already called")
        if not self._watches:
            raise ConfigError("watches", "nothing", "a controller requires for_, owns or watches")
        name = self._name or (self._for.kind.lower() if self._for else "")
        if not name:
            raise ConfigError("name", "", "a controller without for_ requires a name")
        self._built = True
        controller = Controller(
            name,
            reconciler,
            workers=self._defaults.workers_for(self._for)
            if self._workers is None
            else self._workers,
            limiter=self._limiter,
            cache_sync_timeout=self._manager.options.cache_sync_timeout,
            needs_leader_election=self._needs_leader,
            warm_up=self._warm_up,
            debounce=self._debounce,
            reconcile_timeout=self._timeout,
            recover=self._recover,
            kind=self._for.kind if self._for else "",
            clock=self._manager.clock,
            instruments=self._manager.instruments,
        )
        for watch in self._watches:
            controller.watch(self._source(watch) if isinstance(watch, _Watch) else watch)
        self._manager.add_controller(controller)
        return controller

    def _watch(
        self,
        resource: Resource[T],
        mapping: RequestMap[T],
        when: Predicate[T] | None,
        **scope: str,
    ) -> Self:
        self._watches.append(_Watch(resource, mapping, when, scope))
        return self

    def _source(self, watch: _Watch) -> Source:
        informer = self._manager.informer(watch.resource, **watch.scope)
        predicates = self._predicates if watch.when is None else [*self._predicates, watch.when]
        return cast("Source", InformerSource(informer, watch.mapping, *predicates))
