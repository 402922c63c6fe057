"""Whole lists: which resourceVersion to ask for, in pages of what size, and when to ask again."""

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
from navarchos.informers.scope import ScopedSource
from navarchos.informers.source import Page
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = [
    "PAGE_SIZE",
    "FetchedList",
    "LastVersion",
    "PagedList",
    "is_version_unavailable",
]

T = TypeVar("T")

PAGE_SIZE: Final = 500


class LastVersion:
    """The version that the reflector saw last, and whether the server still has it.

    Opaque: passed back, never compared (RT-11). Owned by the reflector's thread.

    Attributes:
        value: Empty before the first list.
        is_unavailable: The server has refused it: too old, or from its future.
    """

    def __init__(self) -> None:
        self.value = ResourceVersion("")
        self.is_unavailable = False

    def for_list(self) -> str:
        """Return what a list asks for (RF-05): never a time before the last one."""
        return "" if self.is_unavailable else self.value or "0"

    def for_streaming(self) -> str:
        """Return what a streaming list asks for (RF-24)."""
        return "" if self.is_unavailable else self.value

    def listed(self, version: ResourceVersion) -> None:
        """Remember the version of a list that succeeded (RF-12)."""
        self.value = version
        self.is_unavailable = False


class FetchedList(msgspec.Struct, Generic[T]):
    """A whole list.

    Attributes:
        version: That of its first page.
        items: The objects.
        failures: Those that could not be decoded.
        pages: How many pages it came in.
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
    """Fetches whole lists from a source. Owned by the reflector's thread.

    Args:
        source: Where from, and which objects.
        last: Read for the version to ask for; flagged when the server refuses it.
        page_size: Objects per page; `None` for 500, or for no pages where the server
            can answer from its cache; `0` for no pages ever.
        each: Hears of each object soon after it was decoded, and perhaps of others.
    """

    def __init__(
        self,
        source: ScopedSource[T],
        last: LastVersion,
        *,
        page_size: int | None = None,
        each: Callable[[T], object] | None = None,
    ) -> None:
        self._each = each
        self._source = source
        self._last = last
        self._page_size = page_size
        self._came_in_pages = False  # a cheap answer did, so its watch cache is off (RF-09)

    def fetch(self, stop: StopToken) -> FetchedList[T]:
        """Return the whole list.

        A version that the server refuses is given up at once, once (RF-06).

        Raises:
            Stopped: The token was set before the list was complete.
            ClientError: The list failed.
        """
        version = self._last.for_list()
        try:
            found = self._fetch_at(version, stop)
        except ApiError as error:
            if not is_version_unavailable(error):
                raise
            self._last.is_unavailable = True
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
                # The token, not our version, was too old: all in one piece (RF-10).
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
        page = self._source.page(version, limit=limit, token=token, stop=stop, each=self._each)
        # What arrived after the stop is not stored (RF-03).
        stop.raise_if_set()
        return page


def is_version_unavailable(error: BaseException) -> bool:
    """Tell whether the server cannot serve the version asked for: too old, or too new."""
    return isinstance(error, Expired | WatchExpired) or is_resource_version_too_large(error)
