"""What an informer needs from a client (pages of a list, and a watch) and from RBAC.

`navarchos.client.ResourceClient` is one such source. Tests use a scripted one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from navarchos.client.errors import DecodeError
from navarchos.client.options import ListOptions, WatchOptions
from navarchos.client.rbac import PolicyRule
from navarchos.client.resource import Resource
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["Event", "ListerWatcher", "Page", "Stream", "informer_rbac"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Page(Protocol[T_co]):
    """One page of a list."""

    @property
    def items(self) -> Sequence[T_co]:
        """The objects that could be decoded."""
        ...

    @property
    def failures(self) -> Sequence[DecodeError]:
        """The objects that could not be decoded, with as much of their identity as possible."""
        ...

    @property
    def resource_version(self) -> str:
        """The version of the list."""
        ...

    @property
    def continue_token(self) -> str:
        """Requests the next page; empty on the last page."""
        ...


class Event(Protocol[T_co]):
    """One event of a watch."""

    @property
    def type(self) -> str:
        """`ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`."""
        ...

    @property
    def object(self) -> T_co | None:
        """The object; `None` for a bookmark, or for one that could not be decoded."""
        ...

    @property
    def resource_version(self) -> ResourceVersion:
        """The version of the object, or of the bookmark."""
        ...

    @property
    def failure(self) -> DecodeError | None:
        """The error if the object could not be decoded, with its identity if it is known."""
        ...

    @property
    def initial_events_end(self) -> bool:
        """Whether this bookmark ends a streamed list."""
        ...


class Stream(Protocol[T_co]):
    """An open watch. Iterating blocks; it ends when the server ends the watch.

    Raises, while iterating: `WatchExpired`, `WatchBroken`, `ApiError` for other
    errors in the stream, `Stopped` once its stop token is set.
    """

    def __iter__(self) -> Iterator[Event[T_co]]: ...

    def close(self) -> None:
        """Close the connection. Harmless when repeated."""
        ...


class ListerWatcher(Protocol[T]):
    """Lists and watches one kind."""

    @property
    def resource(self) -> Resource[T]:
        """The kind."""
        ...

    @property
    def streams_lists(self) -> bool:
        """Whether it can request streaming lists at all; if not, they are not tried (RF-27)."""
        ...

    def list_page(
        self,
        namespace: str = "",
        options: ListOptions = ...,
        *,
        timeout: float | None = None,
        stop: StopToken | None = None,
        on_object: Callable[[T], object] | None = None,
    ) -> Page[T]:
        """Return one page.

        Setting `stop` unblocks the thread that waits for the page, with `Stopped`.
        `on_object` is called with each object of the page, and may be called with others.
        """
        ...

    def watch(
        self,
        namespace: str = "",
        options: WatchOptions = ...,
        *,
        stop: StopToken | None = None,
    ) -> Stream[T]:
        """Open a watch; return once the server has accepted it.

        The source sets the time at which the server ends the watch. It ends the watch
        itself after `idle_timeout` seconds of silence if bookmarks are expected (RF-14).
        """
        ...


def informer_rbac(*resources: Resource[Any]) -> tuple[PolicyRule, ...]:
    """Return what informers on these kinds need: lists and watches, no single reads."""
    return tuple(PolicyRule(resource, ("list", "watch")) for resource in resources)
