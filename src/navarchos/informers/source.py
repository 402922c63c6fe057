"""What an informer needs of a client: pages of a list, and a watch.

`navarchos.client.ResourceClient` is one such source. Tests script another.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from navarchos.client.errors import DecodeError
from navarchos.client.rbac import PolicyRule
from navarchos.client.resource import Resource
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
        """The objects that could not, with as much of their identity as was legible."""
        ...

    @property
    def resource_version(self) -> str:
        """The version of the list."""
        ...

    @property
    def continue_token(self) -> str:
        """Asks for the next page; empty on the last."""
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
    def resource_version(self) -> str:
        """The version of the object, or of the bookmark."""
        ...

    @property
    def failure(self) -> DecodeError | None:
        """Why there is no object, with as much of its identity as was legible."""
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
        """Whether it can ask for streaming lists at all; if not, nobody tries (RF-27)."""
        ...

    def list_page(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        resource_version: str = "",
        resource_version_match: str = "",
        continue_token: str = "",
        timeout: float | None = None,
        stop: StopToken | None = None,
        each: Callable[[T], object] | None = None,
    ) -> Page[T]:
        """Return one page; a `limit` of 0 asks for everything at once.

        Setting `stop` frees the thread that waits for the page, with `Stopped`. `each`
        is called with each of its objects, and may be with others.
        """
        ...

    def watch(
        self,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial_events: bool = False,
        stop: StopToken | None = None,
        idle_timeout: float | None = 75.0,
    ) -> Stream[T]:
        """Open a watch with bookmarks; return once the server has accepted it.

        The source sets the time at which the server ends it, and ends it itself
        after `idle_timeout` seconds of silence if bookmarks are to be expected
        (RF-14).
        """
        ...


def informer_rbac(*resources: Resource[Any]) -> tuple[PolicyRule, ...]:
    """Return what informers on these kinds need: lists and watches, no single reads."""
    return tuple(PolicyRule(resource, ("list", "watch")) for resource in resources)
