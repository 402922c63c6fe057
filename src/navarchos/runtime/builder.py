"""Builds controllers from the kinds that they watch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, cast

from navarchos.client import Resource
from navarchos.errors import ConfigError
from navarchos.runtime import sources
from navarchos.runtime.controller import Controller
from navarchos.runtime.manager import Manager
from navarchos.runtime.options import ControllerOptions
from navarchos.runtime.predicates import Predicate
from navarchos.runtime.reconciler import Reconciler, Request

__all__ = ["Builder"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Watch:
    """A kind to watch, its requests, and its filter."""

    resource: Resource[Any]
    mapping: sources.RequestMap[Any]
    when: Predicate[Any] | None
    scope: dict[str, str]


class Builder:
    """Describes a controller, then adds it to a manager.

    ```python
    (Builder(manager, "rollouts", options=ControllerOptions(workers=4))
        .for_(NODE_ROLLOUTS)
        .owns(NODE_REPLACEMENTS)
        .watches(NODES, map=nodes_to_rollouts, when=labels_changed)
        .build(Reconcile(manager.client)))
    ```

    Args:
        manager: Runs the controller; its informers are used.
        name: The controller's name; the kind of `for_` in lower case if empty.
        options: Settings of the controller; by default `ManagerOptions.controllers`. To change
            one setting only: `dataclasses.replace(manager.options.controllers, workers=4)`.
    """

    def __init__(
        self, manager: Manager, name: str = "", *, options: ControllerOptions | None = None
    ) -> None:
        self._manager = manager
        self._name = name
        self._options = options or manager.options.controllers
        self._for: Resource[Any] | None = None
        self._watches: list[_Watch | sources.Source] = []
        self._predicates: list[Predicate[Any]] = []
        self._built = False

    def for_(self, resource: Resource[T], *, when: Predicate[T] | None = None) -> Self:
        """Reconcile the objects of this kind. At most once (CT-25)."""
        if self._for is not None:
            raise ConfigError("for_", str(resource), f"for_ was already called with {self._for}")
        self._for = resource
        return self._watch(resource, sources.EnqueueObject(), when)

    def owns(
        self,
        resource: Resource[T],
        *,
        when: Predicate[T] | None = None,
        every_owner: bool = False,
    ) -> Self:
        """Reconcile an object when an object that it controls changes; needs `for_` first.

        Args:
            resource: The kind of the owned objects.
            when: Filters events.
            every_owner: Also reconcile owners that do not control the object (CT-26).
        """
        if self._for is None:
            raise ConfigError("owns", str(resource), "call for_ before owns")
        mapping = sources.EnqueueOwners(self._for, controller_only=not every_owner)
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
        """Reconcile the requests that a function returns for a changed object of this kind."""
        return self._watch(
            resource,
            sources.EnqueueMapped(map),
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

    def watches_channel(self, channel: sources.Channel, name: str = "channel") -> Self:
        """Reconcile the requests that code of this process sends into a channel."""
        self._watches.append(sources.ChannelSource(channel, name))
        return self

    def watches_raw(self, source: sources.Source) -> Self:
        """Reconcile the requests of any other source."""
        self._watches.append(source)
        return self

    def build(self, reconciler: Reconciler) -> Controller:
        """Make the controller and add it to the manager.

        Raises:
            ConfigError: The controller watches nothing, has no name, has the name of another
                controller, or was built before.
        """
        if self._built:
            raise ConfigError("build", self._name, "build() was already called")
        if not self._watches:
            raise ConfigError("watches", "nothing", "a controller requires for_, owns or watches")
        name = self._name or (self._for.kind.lower() if self._for else "")
        if not name:
            raise ConfigError("name", "", "a controller without for_ requires a name")
        self._built = True
        sync_timeout = self._options.cache_sync_timeout
        if sync_timeout is None:
            sync_timeout = self._manager.options.cache_sync_timeout
        controller = Controller(
            name,
            reconciler,
            options=replace(
                self._options,
                workers=self._options.workers_for(self._for),
                cache_sync_timeout=sync_timeout,
            ),
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
        mapping: sources.RequestMap[T],
        when: Predicate[T] | None,
        **scope: str,
    ) -> Self:
        self._watches.append(_Watch(resource, mapping, when, scope))
        return self

    def _source(self, watch: _Watch) -> sources.Source:
        informer = self._manager.informer(watch.resource, **watch.scope)
        predicates = self._predicates if watch.when is None else [*self._predicates, watch.when]
        return cast("sources.Source", sources.InformerSource(informer, watch.mapping, *predicates))
