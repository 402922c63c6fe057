"""Watches: from a version on, of a selection, in one representation.

A watch is a position in the log of its kind. A line is encoded once per event and representation,
and shared by all watches that need it.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from navarchos.testing.apiserver import kinds, objects, reads, requests, selectors, writes
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.store import BucketId, ChangeType, Compacted, Entry, StoredEvent
from navarchos.testing.apiserver.tables import metadata_only, table

__all__ = ["Watch", "WatchLines", "WatchNotifier"]

_INITIAL_END: Final = "k8s.io/initial-events-end"
_DEFAULT_DURATIONS: Final = (1800.0, 3600.0)
"""The limits of the random duration of a watch without `timeoutSeconds`, as upstream."""


class WatchNotifier:
    """Wakes the watches of a kind when the kind's log has grown.

    Threads: `wake` is safe from any thread; other methods run on the event loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sleepers: dict[BucketId, set[asyncio.Event]] = {}
        self._dirty: set[BucketId] = set()
        self._scheduled = False
        self.closed = False

    def close(self) -> None:
        """End all watches."""
        self.closed = True
        for events in self._sleepers.values():
            for event in events:
                event.set()

    def wake(self, bucket: BucketId) -> None:
        """Wake the watches of a kind soon; several changes wake them once."""
        # A watch that registers later begins with all events that are committed now.
        if not self._sleepers.get(bucket):
            return
        self._dirty.add(bucket)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        # Reset first: a change from here on schedules another flush.
        self._scheduled = False
        while self._dirty:
            for event in self._sleepers.get(self._dirty.pop(), ()):
                event.set()

    def register(self, bucket: BucketId, event: asyncio.Event) -> None:
        """Set `event` after every change of the kind."""
        self._sleepers.setdefault(bucket, set()).add(event)

    def unregister(self, bucket: BucketId, event: asyncio.Event) -> None:
        """Undo `register`."""
        self._sleepers.get(bucket, set()).discard(event)


class Watch:
    """One watch as an asynchronous source of lines.

    Args:
        lines: The lines.
        notifier: Wakes the watch.
        bookmark_interval: Seconds between bookmarks.
    """

    def __init__(
        self, lines: "WatchLines", notifier: WatchNotifier, *, bookmark_interval: float
    ) -> None:
        self._lines = lines
        self._notifier = notifier
        self._interval = bookmark_interval
        self._wake = asyncio.Event()

    async def lines(self) -> AsyncGenerator[list[bytes], None]:
        """Yield batches of complete lines until the watch ends.

        A version that is too old, or in the future, ends the watch with an `ERROR` line.
        """
        bucket = self._lines.bucket
        self._notifier.register(bucket, self._wake)
        try:
            first, cursor = self._lines.first_lines()
            # Yield an empty batch as well, so that the caller sends the headers.
            yield first
            del first  # otherwise the whole collection stays in memory as long as the watch
            if cursor >= 0:
                async with aclosing(self._follow(cursor)) as batches:
                    async for batch in batches:
                        yield batch
        finally:
            self._notifier.unregister(bucket, self._wake)

    async def _follow(self, cursor: int) -> AsyncGenerator[list[bytes], None]:
        loop = asyncio.get_running_loop()
        duration = self._lines.options.timeout or random.uniform(*_DEFAULT_DURATIONS)  # noqa: S311 - spreads load
        end = loop.time() + duration
        due = loop.time() + self._interval
        while True:
            self._wake.clear()
            lines, cursor = self._lines.lines_after(cursor)
            now = loop.time()
            if self._lines.options.bookmarks and cursor >= 0 and now >= min(due, end):
                lines.append(self._lines.bookmark())
                due = now + self._interval
            if lines:
                yield lines
            if cursor < 0 or now >= end or self._notifier.closed:
                return
            if not self._wake.is_set():
                await self._sleep(min(due, end) - loop.time())

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        except TimeoutError:
            return


class WatchLines:
    """The lines of one watch, without waiting: a position in the log of the kind.

    Args:
        api: The objects and kinds.
        target: Kind and namespace.
        options: The options of the watch.
        form: The representation.
        streaming: Whether the server offers streaming lists.

    Attributes:
        bucket: The place of the objects.
        options: The options of the watch.

    Raises:
        StatusError: The options contradict each other; the watch does not begin.
    """

    def __init__(
        self,
        api: writes.Api,
        target: requests.Target,
        options: requests.ListQuery,
        form: requests.Form,
        *,
        streaming: bool,
    ) -> None:
        requests.check_watch_options(options, streaming=streaming)
        self._asked = requests.read_version(options.version, listing=False)
        self._api = api
        self._kind = target.kind
        self._target = target
        self.bucket: Final = target.kind.bucket
        self.options: Final = options
        # Where streaming lists are offered, a watch from any version is one, although it does not
        # ask for it (apimachinery's meta/internalversion/defaults.go).
        self._streams = options.initial_events or (
            streaming and options.initial_events is None and options.version in {"", "0"}
        )
        self._form = form
        self._headers_sent = False
        self._min_version = 0
        self._version = 0  # the version up to which `lines_after` has read

    def first_lines(self) -> tuple[list[bytes], int]:
        """Return the first lines and the cursor; a negative cursor ends the watch."""
        store, bucket = self._api.store, self._kind.bucket
        with store.transaction():
            version = store.version
            try:
                if self._streams and self._asked > version:
                    return [self._error(statuses.too_large_version(self._asked, version))], -1
                if self._streams or (not self._asked and self.options.initial_events is None):
                    lines = self._initial()
                    if self._streams and self.options.bookmarks:
                        lines.append(self._bookmark_line(version, initial_end=True))
                    return lines, store.cursor(bucket, version)
                if not self._asked:
                    return [], store.cursor(bucket, version)
                self._min_version = self._asked
                return [], store.cursor(bucket, self._asked)
            except Compacted as gone:
                return [self._error(_too_old(gone))], -1

    def _initial(self) -> list[bytes]:
        entries = reads.selected_entries(self._api, self._target, self.options)
        return [self._line("ADDED", entry) for entry in entries]

    def lines_after(self, cursor: int) -> tuple[list[bytes], int]:
        """Return the lines after a cursor, and the next cursor; a negative one ends the watch."""
        try:
            events, cursor, self._version = self._api.store.events_since(self._kind.bucket, cursor)
        except Compacted as gone:
            return [self._error(_too_old(gone))], -1
        return self._select(events), cursor

    def bookmark(self) -> bytes:
        """Return a bookmark of the version up to which `lines_after` has read."""
        return self._bookmark_line(self._version)

    def _select(self, events: Sequence[StoredEvent]) -> list[bytes]:
        namespace, found = self._target.namespace, []
        for event in events:
            if namespace and event.entry.namespace != namespace:
                continue
            if event.version <= self._min_version:
                continue
            kind = _type_for(event, self.options.selection)
            if kind is not None:
                found.append(self._shared_line(kind, event))
        return found

    def _shared_line(self, kind: ChangeType, event: StoredEvent) -> bytes:
        if self._form.kind == "Table" and not self._headers_sent:
            return self._line(kind, _shown_object(kind, event))
        view = (kind, self._kind.api_version, self._form, self.options.include_object)
        line = event.lines.get(view)
        if line is None:
            line = event.lines[view] = self._line(kind, _shown_object(kind, event))
        return line

    def _line(self, kind: str, entry: Entry) -> bytes:
        if self._form.kind == "Table":
            shown = table(
                self._kind,
                [entry],
                str(entry.version),
                self._form.version,
                self.options.include_object,
                headers=not self._headers_sent,
            )
            self._headers_sent = True
            return _event_line(kind, objects.encode(shown))
        if self._form.kind == "PartialObjectMetadata":
            return _event_line(kind, objects.encode(metadata_only(entry.obj, self._form.version)))
        return _event_line(kind, kinds.encoded_entry(self._kind, entry))

    def _bookmark_line(self, version: int, *, initial_end: bool = False) -> bytes:
        metadata: objects.JsonObject = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        shown: objects.JsonObject = {
            "kind": self._kind.kind,
            "apiVersion": self._kind.api_version,
            "metadata": metadata,
        }
        if self._form.kind == "PartialObjectMetadata":
            shown = metadata_only(shown, self._form.version)
        elif self._form.kind == "Table":
            headers, self._headers_sent = not self._headers_sent, True
            shown = _table_bookmark(shown, self._kind, self._form.version, headers=headers)
        return _event_line("BOOKMARK", objects.encode(shown))

    def _error(self, error: statuses.StatusError) -> bytes:
        return _event_line("ERROR", objects.encode(error.to_json()))


def _table_bookmark(
    obj: objects.JsonObject, kind: kinds.Kind, version: str, *, headers: bool
) -> objects.JsonObject:
    named = {**obj, "metadata": {**objects.meta(obj), "name": ""}}
    at = str(objects.meta(obj)["resourceVersion"])
    shown = table(kind, [Entry(named, 0)], at, version, headers=headers)
    shown["rows"][0]["object"] = metadata_only(obj, version)
    return shown


def _event_line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), raw)


def _too_old(gone: Compacted) -> statuses.StatusError:
    return statuses.expired(f"too old resource version: {gone.asked} ({gone.oldest})")


def _type_for(event: StoredEvent, selection: selectors.Selection) -> ChangeType | None:
    """Return the type of an event for a watch: objects enter and leave its selection."""
    if selection.is_empty:
        return event.type
    now = event.type != "DELETED" and selection.matches(event.entry.obj)
    before = event.previous is not None and selection.matches(event.previous.obj)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _shown_object(kind: ChangeType, event: StoredEvent) -> Entry:
    """Return the object of a line: an object that leaves in its old state, at the new version."""
    if kind != "DELETED" or event.type == "DELETED" or event.previous is None:
        return event.entry
    before = event.previous.obj
    metadata = {**objects.meta(before), "resourceVersion": str(event.version)}
    return Entry({**before, "metadata": metadata}, event.version)
