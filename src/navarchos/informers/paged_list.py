"""Ordinary lists: which resourceVersion to ask for, page sizes, and when to ask again."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from navarchos.client.errors import (
    ApiError,
    DecodeError,
    Expired,
    WatchExpired,
    is_resource_version_too_large,
)
from navarchos.client.options import ListOptions
from navarchos.informers.position import CachePosition
from navarchos.informers.scope import ScopedSource
from navarchos.informers.source import Page
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["PAGE_SIZE", "FetchedList", "PagedList", "is_version_unavailable"]

T = TypeVar("T")

PAGE_SIZE: Final = 500


class FetchedList(msgspec.Struct, Generic[T]):
    """A whole list.

    Attributes:
        version: The version of its first page.
        items: The objects.
        failures: The objects that could not be decoded.
        pages: The number of pages.
    """

    version: ResourceVersion
    items: list[T] = msgspec.field(default_factory=list)
    failures: list[DecodeError] = msgspec.field(default_factory=list)
    pages: int = 0

    def add(self, page: Page[T]) -> None:
        """Append a page."""
        self.items += page.items
        self.failures += page.failures
        self.pages += 1


class PagedList(Generic[T]):
    """Fetches whole lists from a source.

    Threads: owned by the reflector's thread.

    Args:
        source: The objects to list.
        position: Read for the version to ask for; records that the server refused it.
        page_size: Objects per page. `None` for 500, or for no pages where the server can
            answer from its cache; `0` for no pages in any case.
        on_object: Called with each object soon after it was decoded, and perhaps with others.
    """

    def __init__(
        self,
        source: ScopedSource[T],
        position: CachePosition,
        *,
        page_size: int | None = None,
        on_object: Callable[[T], object] | None = None,
    ) -> None:
        self._on_object = on_object
        self._source = source
        self._position = position
        self._page_size = page_size
        # A list from the server's watch cache has one page. If such a list came in pages,
        # the server's watch cache is off (RF-09).
        self._came_in_pages = False

    def fetch(self, stop: StopToken) -> FetchedList[T]:
        """Return the whole list.

        If the server refuses the version, list once more without a version (RF-06).

        Raises:
            Stopped: The token was set before the list was complete.
            ClientError: The list failed.
        """
        version = self._position.version_to_list()
        try:
            found = self._fetch_at(version, stop)
        except ApiError as error:
            if not is_version_unavailable(error):
                raise
            self._position.is_resume_version_refused = True
            found = self._fetch_at("", stop)
        if version == "0" and found.pages > 1:
            self._came_in_pages = True
        return found

    def _fetch_at(self, version: str, stop: StopToken) -> FetchedList[T]:
        limit = self._limit(version)
        page = self._page(version, limit, "", stop)
        found = FetchedList[T](ResourceVersion(page.resource_version))
        found.add(page)
        while page.continue_token:
            try:
                page = self._page(version, limit, page.continue_token, stop)
            except Expired:
                # The continue token was too old, not the version: list in one piece (RF-10).
                page = self._page(version, 0, "", stop)
                found = FetchedList(ResourceVersion(page.resource_version))
            found.add(page)
        return found

    def _limit(self, version: str) -> int:
        if self._page_size is not None:
            return self._page_size
        # With a version and no limit servers answer from memory instead of etcd (RF-08).
        return PAGE_SIZE if version in {"", "0"} or self._came_in_pages else 0

    def _page(self, version: str, limit: int, token: str, stop: StopToken) -> Page[T]:
        stop.raise_if_set()
        options = ListOptions(
            limit=limit, resource_version="" if token else version, continue_token=token
        )
        page = self._source.page(options, stop=stop, on_object=self._on_object)
        # A page that arrives after the stop is not stored (RF-03).
        stop.raise_if_set()
        return page


def is_version_unavailable(error: BaseException) -> bool:
    """Return whether the server cannot serve the requested version: too old, or too new."""
    return isinstance(error, Expired | WatchExpired) or is_resource_version_too_large(error)
