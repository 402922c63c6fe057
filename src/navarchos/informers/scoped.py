"""A source seen through a scope: the only place where requests are put together."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from navarchos.informers.scope import Scope
from navarchos.informers.source import ListerWatcher, Page, Stream
from navarchos.stopping import StopToken

__all__ = ["IDLE_TIMEOUT", "ScopedSource"]

T = TypeVar("T")

IDLE_TIMEOUT: Final = 75.0
"""Seconds of silence after which a watch counts as dead: a bookmark a minute, and a margin."""


class ScopedSource(Generic[T]):
    """Lists and watches the objects of one scope. Safe from any thread."""

    def __init__(
        self, source: ListerWatcher[T], scope: Scope, *, idle_timeout: float | None = IDLE_TIMEOUT
    ) -> None:
        self._source = source
        self._scope = scope
        self._idle_timeout = idle_timeout
        self.name = str(source.resource)
        self.streams_lists = source.streams_lists

    def page(
        self,
        version: str,
        *,
        limit: int,
        token: str = "",
        match: str = "",
        timeout: float | None = None,
        stop: StopToken | None = None,
        each: Callable[[T], object] | None = None,
    ) -> Page[T]:
        """Return one page of a list.

        Args:
            version: The resourceVersion to ask for; not sent with a token.
            limit: Objects per page; 0 for all.
            token: The continue token of the page before.
            match: How `version` is meant; empty for the server's default.
            timeout: In seconds; `None` for the client's own.
            stop: Frees whoever waits.
            each: Hears of each object soon after it was decoded.
        """
        return self._source.list_page(
            self._scope.namespace,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            limit=limit,
            resource_version="" if token else version,
            resource_version_match="" if token else match,
            continue_token=token,
            timeout=timeout,
            stop=stop,
            each=each,
        )

    def watch(self, version: str, stop: StopToken, *, streaming: bool = False) -> Stream[T]:
        """Open a watch.

        Args:
            version: Changes after this one.
            stop: Ends it.
            streaming: Ask for what exists first, and for the bookmark after it.
        """
        return self._source.watch(
            self._scope.namespace,
            resource_version=version,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            send_initial_events=streaming,
            idle_timeout=self._idle_timeout,
            stop=stop,
        )
