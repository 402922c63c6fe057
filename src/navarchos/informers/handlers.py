"""Ready-made handlers."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from navarchos.errors import ConfigError
from navarchos.informers.notifications import EventHandler
from navarchos.informers.tombstone import Tombstone

__all__ = ["Callbacks", "FilteringHandler", "check_handler", "handler_name"]

T = TypeVar("T")

_METHODS: Final = ("on_add", "on_update", "on_delete")


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
        """Pass an addition on."""
        if self._on_add is not None:
            self._on_add(obj, is_in_initial_list)

    def on_update(self, old: T, new: T) -> None:
        """Pass a change on."""
        if self._on_update is not None:
            self._on_update(old, new)

    def on_delete(self, obj: T | Tombstone[T]) -> None:
        """Pass an end on."""
        if self._on_delete is not None:
            self._on_delete(obj)


class FilteringHandler(Generic[T]):
    """Shows another handler only the objects that pass (SI-08).

    To that handler an object that begins to pass is added, and one that ceases to
    is deleted. A tombstone without an object is passed on: better one deletion too
    many than one missed.
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
        """Pass an addition on if the object passes."""
        if self._passes(obj):
            self.handler.on_add(obj, is_in_initial_list)

    def on_update(self, old: T, new: T) -> None:
        """Pass a change on as an addition, a change, an end, or not at all."""
        before, after = self._passes(old), self._passes(new)
        if before and after:
            self.handler.on_update(old, new)
        elif after:
            self.handler.on_add(new, False)
        elif before:
            self.handler.on_delete(old)

    def on_delete(self, obj: T | Tombstone[T]) -> None:
        """Pass an end on if the last known state passes."""
        last = obj.obj if isinstance(obj, Tombstone) else obj
        if last is None or self._passes(last):
            self.handler.on_delete(obj)


def check_handler(handler: object) -> None:
    """Refuse what would fail on its first notification, and on every other.

    Raises:
        ConfigError: It is a class, or lacks a method of `EventHandler`.
    """
    if isinstance(handler, type):
        raise ConfigError("handler", handler, "it is a class: give an instance of it")
    missing = [name for name in _METHODS if not callable(getattr(handler, name, None))]
    if missing:
        rule = (
            f"it has no method {' and no '.join(missing)}: "
            "add it, or give the methods that it has as functions"
        )
        raise ConfigError("handler", handler, rule)


def handler_name(handler: object) -> str:
    """Return a name for logs and metrics: that of the code that will run (SI-20)."""
    if isinstance(handler, FilteringHandler):
        return handler_name(handler.handler)
    if isinstance(handler, Callbacks):
        return "+".join(_function_name(function) for function in handler.functions) or "nothing"
    return type(handler).__qualname__


def _function_name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
