"""What handlers are told."""

from typing import Generic, Protocol, TypeVar

import msgspec

from navarchos.informers.tombstone import Tombstone

__all__ = ["Added", "Deleted", "EventHandler", "Notification", "Updated"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class EventHandler(Protocol[T_contra]):
    """Hears of every change of one informer's objects, on a thread of its own.

    Calls come one at a time. Per object they are a subsequence of what the server
    did, in its order; the last state is always among them. The store has the
    change before the handler hears of it. Objects are shared: read-only.
    """

    def on_add(self, obj: T_contra, is_in_initial_list: bool) -> None:
        """Take note of an object that was unknown so far.

        Args:
            obj: The object.
            is_in_initial_list: Whether it was there before the cache was filled,
                or before this handler was added.
        """
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """Take note of a change, or of a resync, when `old` and `new` are the same.

        Their uids differ when an object was deleted and made anew out of our sight.
        """
        ...

    def on_delete(self, obj: T_contra | Tombstone[T_contra]) -> None:
        """Take note of an object's end.

        Args:
            obj: Its final state, or a tombstone where only a relist showed that it
                is gone. `deletion_key` gives the key of either.
        """
        ...


class Added(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object that was unknown so far."""

    obj: T
    initial: bool

    def tell(self, handler: EventHandler[T]) -> None:
        """Call the handler's method for this."""
        handler.on_add(self.obj, self.initial)


class Updated(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change, or the replay of an unchanged object."""

    old: T
    new: T
    initial: bool = False

    def tell(self, handler: EventHandler[T]) -> None:
        """Call the handler's method for this."""
        handler.on_update(self.old, self.new)


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object's end."""

    obj: T | Tombstone[T]
    initial: bool = False

    def tell(self, handler: EventHandler[T]) -> None:
        """Call the handler's method for this."""
        handler.on_delete(self.obj)


Notification = Added[T] | Updated[T] | Deleted[T]
"""One entry of a handler's buffer; `initial` ones are counted until they are handled."""
