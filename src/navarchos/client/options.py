"""The options of lists and watches."""

from collections.abc import Sequence

import msgspec

__all__ = ["ListOptions", "WatchOptions"]


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Select the objects of a list and the version of the data.

    Attributes:
        label_selector: Return only objects whose labels match.
        field_selector: Return only objects whose fields match.
        limit: Maximum number of objects per page; `0` returns all in one response.
        resource_version: Empty for a consistent read; `"0"` for any version that the
            server has cached, then usually in one page.
        resource_version_match: `Exact` or `NotOlderThan`.
        continue_token: The token of the previous page. It already contains the version,
            so with a token `resource_version` and its match are not sent.
    """

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 500
    resource_version: str = ""
    resource_version_match: str = ""
    continue_token: str = ""

    def query(self) -> Sequence[tuple[str, str]]:
        """Return the query parameters; a parameter that is not set is empty."""
        is_first = not self.continue_token
        return [
            ("labelSelector", self.label_selector),
            ("fieldSelector", self.field_selector),
            ("limit", str(self.limit) if self.limit else ""),
            ("continue", self.continue_token),
            ("resourceVersion", self.resource_version if is_first else ""),
            ("resourceVersionMatch", self.resource_version_match if is_first else ""),
        ]


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Select the objects of a watch, and when the watch ends.

    Attributes:
        label_selector: Only objects whose labels match.
        field_selector: Only objects whose fields match.
        resource_version: Return changes after this version; empty or `"0"` begins with
            an ADDED event for each existing object.
        send_initial_events: Ask for a streaming list: an ADDED event for each object,
            then a bookmark with `initial_events_end`, then changes.
        bookmarks: Ask for bookmarks.
        timeout_seconds: Seconds after which the server ends the watch; `None` for a
            random time between 5 and 10 minutes, so that watches do not end together.
        idle_timeout: Seconds of silence after which the watch counts as broken, once
            this server has sent a bookmark of this resource. Before the first bookmark,
            and with `None`, the limit is `timeout_seconds` plus five.
    """

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    send_initial_events: bool = False
    bookmarks: bool = True
    timeout_seconds: int | None = None
    idle_timeout: float | None = 75.0

    def query(self, timeout_seconds: int) -> Sequence[tuple[str, str]]:
        """Return the query parameters; a parameter that is not set is empty."""
        return [
            ("watch", "true"),
            ("resourceVersion", self.resource_version),
            ("labelSelector", self.label_selector),
            ("fieldSelector", self.field_selector),
            ("allowWatchBookmarks", "true" if self.bookmarks else ""),
            ("timeoutSeconds", str(timeout_seconds)),
            ("sendInitialEvents", "true" if self.send_initial_events else ""),
            ("resourceVersionMatch", "NotOlderThan" if self.send_initial_events else ""),
        ]
