"""Event handlers: their protocol, their notifications, and ready-made handlers."""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from navarchos.errors import ConfigError
from navarchos.meta import key_of

__all__ = [
    "Added",
    "Callbacks",
    "Deleted",
    "EventHandler",
    "FilteringHandler",
    "Notification",
    "Tombstone",
    "Updated",
    "check_handler",
    "deletion_key",
    "handler_name",
]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_METHODS: Final = ("on_add", "on_update", "on_delete")


class Tombstone(msgspec.Struct, Generic[T], frozen=True):
    """Replaces an object whose deletion was inferred from a relist, not watched (SI-15).

    Its final state is unknown.

    Attributes:
        key: `namespace/name`, or the name alone.
        obj: The last known state, possibly out of date; `None` if it is unknown.
    """

    key: str
    obj: T | None = None


def deletion_key(deleted: object) -> str:
    """Return the key of the object that a delete notification is about (ST-03).

    Args:
        deleted: An object, a tombstone, or a key, which is returned unchanged.

    Raises:
        KeyFailed: An object without metadata or name.
    """
    if isinstance(deleted, str):
        return deleted
    return deleted.key if isinstance(deleted, Tombstone) else key_of(deleted)


class EventHandler(Protocol[T_contra]):
    """Is called for the changes of one informer's objects, on a separate thread.

    Calls come one at a time. The states of each object come in the server's order; some
    may be missing, but never the last one. The store has the change before the handler is
    called. Objects are shared: read-only.
    """

    def on_add(self, obj: T_contra, is_in_initial_list: bool) -> None:
        """Handle an object that was unknown so far.

        Args:
            obj: The object.
            is_in_initial_list: Whether the object existed before the cache was filled, or
                before this handler was added.
        """
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """Handle a change, or a resync, in which `old` and `new` are the same object.

        Their uids differ if the object was deleted and re-created between two watches.
        """
        ...

    def on_delete(self, obj: T_contra | Tombstone[T_contra]) -> None:
        """Handle a deletion.

        Args:
            obj: The object's final state, or a tombstone if a relist showed that the object
                is gone. `deletion_key` returns the key of either.
        """
        ...


class Added(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object that was unknown so far."""

    obj: T
    initial: bool

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler's method for this notification."""
        handler.on_add(self.obj, self.initial)  # mutant: copy-per-handler


class Updated(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change, or the replay of an unchanged object."""

    old: T
    new: T
    initial: bool = False

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler's method for this notification."""
        handler.on_update(self.old, self.new)


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A deletion."""

    obj: T | Tombstone[T]
    initial: bool = False

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler's method for this notification."""
        handler.on_delete(self.obj)


Notification = Added[T] | Updated[T] | Deleted[T]
"""One entry of a handler's buffer; `initial` ones are counted until they are handled."""


class Callbacks(Generic[T]):
    """A handler made of functions; each is optional (SI-08)."""

    def __init__(
        self,
        *,
        on_add: Callable[[T, bool], object] | None = None,
        on_update: Callable[[T, T], object] | None = None,
        on_delete: Callable[[T | Tombstone[T]], object] | None = None,
    ) -> None:
        self._on_add = on_add
        self._on_update = on_update
        self._on_delete = on_delete

    @property
    def functions(self) -> list[Callable[..., object]]:
        """The functions that were given."""
        given = (self._on_add, self._on_update, self._on_delete)
        return [function for function in given if function is not None]

    def on_add(self, obj: T, is_in_initial_list: bool) -> None:
        """Call the function for additions."""
        if self._on_add is not None:
            self._on_add(obj, is_in_initial_list)

    def on_update(self, old: T, new: T) -> None:
        """Call the function for changes."""
        if self._on_update is not None:
            self._on_update(old, new)

    def on_delete(self, obj: T | Tombstone[T]) -> None:
        """Call the function for deletions."""
        if self._on_delete is not None:
            self._on_delete(obj)


class FilteringHandler(Generic[T]):
    """Shows another handler only the objects that pass a filter (SI-08).

    An object that begins to pass is added for that handler, and one that no longer passes
    is deleted. A tombstone without an object is passed on: an unnecessary deletion does
    less harm than a missing one.
    """

    def __init__(self, handler: EventHandler[T], *, passes: Callable[[T], bool]) -> None:
        """Put a filter before a handler.

        Raises:
            ConfigError: The handler lacks a method.
        """
        check_handler(handler)
        self.handler = handler
        self._passes = passes

    def on_add(self, obj: T, is_in_initial_list: bool) -> None:
        """Pass on an addition if the object passes."""
        if self._passes(obj):
            self.handler.on_add(obj, is_in_initial_list)

    def on_update(self, old: T, new: T) -> None:
        """Pass on a change as an addition, a change or a deletion, or not at all."""
        before, after = self._passes(old), self._passes(new)
        if before and after:
            self.handler.on_update(old, new)
        elif after:
            self.handler.on_add(new, False)
        elif before:
            self.handler.on_delete(old)

    def on_delete(self, obj: T | Tombstone[T]) -> None:
        """Pass on a deletion if the last known state passes."""
        last = obj.obj if isinstance(obj, Tombstone) else obj
        if last is None or self._passes(last):
            self.handler.on_delete(obj)


def check_handler(handler: object) -> None:
    """Check that an object has every method of `EventHandler`.

    Otherwise it would fail on its first notification, and on every other.

    Raises:
        ConfigError: It is a class, or lacks a method.
    """
    if isinstance(handler, type):
        raise ConfigError("handler", handler, "it must be an instance, not a class")
    missing = [name for name in _METHODS if not callable(getattr(handler, name, None))]
    if missing:
        rule = (
            f"it must have the methods of EventHandler, but lacks {' and '.join(missing)}; "
            "add them, or pass the methods that it has as functions"
        )
        raise ConfigError("handler", handler, rule)


def handler_name(handler: object) -> str:
    """Return a handler's name for logs and metrics: the name of the code that runs (SI-20)."""
    if isinstance(handler, FilteringHandler):
        return handler_name(handler.handler)
    if isinstance(handler, Callbacks):
        return "+".join(_function_name(function) for function in handler.functions) or "nothing"
    return type(handler).__qualname__


def _function_name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
