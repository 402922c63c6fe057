"""Watches: changes of a collection, as the server reports them."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Literal, NoReturn, Self, TypeAlias, TypeVar, cast, get_args

import msgspec

from navarchos.client import errors
from navarchos.client.decoding import Codec, resource_version_of
from navarchos.client.status import decode_status
from navarchos.client.transport import Response
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken
from navarchos.structs import make_decoder

__all__ = ["EventType", "LineSplitter", "WatchEvent", "WatchStream"]

T = TypeVar("T")

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

_log = get_logger(__name__)

_TYPES: Final = frozenset(get_args(EventType))
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One event of a watch.

    Attributes:
        type: The kind of change; a `BOOKMARK` only reports the server's version.
        object: The object after the change, or its last state if it was deleted; `None`
            for a bookmark, and for an object that does not fit its type or is of another
            kind.
        resource_version: The version of the object or of the bookmark.
        initial_events_end: Whether this bookmark ends the initial events of a streaming
            list. True only if the server's annotation is exactly `"true"` (RT-13).
        failure: The reason why there is no object, with its name and uid as far as they
            could be read.
    """

    type: EventType
    object: T | None
    resource_version: ResourceVersion
    initial_events_end: bool = False
    failure: errors.DecodeError | None = None


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str | None = None
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _BookmarkMeta = _BookmarkMeta()


_LINES: Final = make_decoder(_Line)
_BOOKMARKS: Final = make_decoder(_Bookmark)


class WatchStream(Generic[T]):
    """An open watch. Iterate over it, and close it.

    ```python
    options = WatchOptions(resource_version=version)
    with pods.watch(options=options, stop=stop) as events:
        for event in events:
            ...
    ```

    The iteration ends normally when the server ends the watch, as it does every few
    minutes, and after the current event when the certificate files have changed: the next
    watch uses the new certificates.

    Promises: the connection is closed when the iteration ends, also by an exception, and
    by `close()`; setting the stop token unblocks a read at once.

    Does not promise: any event. Open a new watch at the last resourceVersion.

    Raises, while iterating:
        WatchExpired: 410: list again.
        WatchBroken: The stream broke, is not readable, or was silent for too long: resume.
        ApiError: The server reports another error inside the stream.
        Stopped: The stop token was set, or another thread called `close()`.

    Threads: one thread iterates; any may close.
    """

    def __init__(
        self,
        response: Response,
        codec: Codec[T],
        *,
        stop: StopToken,
        silence: Callable[[], float | None],
        on_bookmark: Callable[[], None],
        is_listing: bool = False,
    ) -> None:
        self._response = response
        self._codec = codec
        self._resource = codec.name
        self._stop = stop
        self._silence = silence
        self._on_bookmark = on_bookmark
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()
        self._reading_lock = threading.Lock()  # held while a thread reads the response
        self._ended = False  # guarded by _reading_lock
        self._is_listing = is_listing  # reads may be late: a list counts when it is complete

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchEvent[T]:
        """Wait for the next event."""
        try:
            while True:
                event = self._event(self._lines.popleft() if self._lines else self._line())
                if event is not None:
                    return event
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the watch; harmless when it has ended."""
        if not self._reading_lock.acquire(blocking=False):
            self._stop.stop("the watch was closed")
            # The blocked reader has just been unblocked and will release the lock soon.
            self._reading_lock.acquire()
        try:
            self._ended = True
            self._response.close()
        finally:
            self._reading_lock.release()
        # Last, because it would shut down a connection that was read to its end and has
        # returned to the pool. It also detaches the token from its parents.
        self._stop.stop("the watch was closed")

    def _line(self) -> bytes:
        while not self._lines:
            self._lines.extend(self._splitter.feed(self._chunk()))
        return self._lines.popleft()

    def _chunk(self) -> bytes:
        """Return the next bytes; at the end of the stream, the line without a newline."""
        with self._reading_lock:
            if self._ended:
                raise StopIteration
            self._stop.raise_if_set()
            if self._splitter.is_between and self._response.is_outdated:
                self._ended = True
                raise StopIteration
            chunk = self._read()
            if chunk:
                return chunk
            self._ended = True
        return self._splitter.rest() + b"\n"

    def _read(self) -> bytes:
        silence = self._silence()
        try:
            return self._response.read_some(silence, batch=self._is_listing)
        except errors.RequestTimeout as error:
            why = f"the server sent nothing for {silence} seconds"
            raise errors.WatchBroken(self._resource, why) from error
        except errors.ConnectFailed as error:
            raise errors.WatchBroken(self._resource, error.why) from error

    def _event(self, line: bytes) -> WatchEvent[T] | None:
        change = self._codec.decode_change(line)
        if change is not None:
            kind, obj, version = change
            return WatchEvent(kind, obj, version)
        try:
            found = _LINES.decode(line)
            if found.type == "BOOKMARK":
                return self._bookmark(found.object)
        except msgspec.DecodeError as error:
            why = "the stream ended" if self._ended else "the stream is not readable"
            raise errors.WatchBroken(self._resource, f"{why} in the middle of an event") from error
        if found.type == "ERROR":
            self._raise_status(found.object)
        if found.type not in _TYPES:
            _log.warning("watch_event_type_unknown", resource=self._resource, type=found.type)
            return None
        return self._change(cast("EventType", found.type), found.object)

    def _change(self, kind: EventType, data: msgspec.Raw) -> WatchEvent[T]:
        try:
            self._codec.check_kind(data, verb="watch")
            obj = self._codec.decode(data, verb="watch")
        except errors.DecodeError as failure:
            version = ResourceVersion(failure.resource_version)
            return WatchEvent(kind, None, version, failure=failure)
        return WatchEvent(kind, obj, resource_version_of(obj, data))

    def _bookmark(self, data: msgspec.Raw) -> WatchEvent[T]:
        self._on_bookmark()
        metadata = _BOOKMARKS.decode(data).metadata
        is_end = (metadata.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
        self._is_listing = self._is_listing and not is_end
        return WatchEvent(
            "BOOKMARK",
            None,
            ResourceVersion(metadata.resource_version or ""),
            initial_events_end=is_end,
        )

    def _raise_status(self, data: msgspec.Raw) -> NoReturn:
        try:
            status = decode_status(data)
        except msgspec.DecodeError as error:
            raise errors.WatchBroken(
                self._resource, "the server reported an error that is not a Status"
            ) from error
        reported = errors.error_from_status(status, verb="watch", resource=self._resource)
        if isinstance(reported, errors.Expired):
            raise errors.WatchExpired(self._resource, reported.message or "too old") from reported
        raise reported


class LineSplitter:
    """Splits a stream into lines; copies each byte at most twice.

    A line that arrives in many chunks is joined once, when it is complete; searching a
    growing buffer for each chunk would take quadratic time.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # the begun line; without a newline

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without newlines and blank lines."""
        if not self._parts and 0 < chunk.find(b"\n") == len(chunk) - 1:
            # The usual case: one chunk is one line.
            line = chunk.strip()
            return [line] if line else []
        lines = []
        begin = 0
        # `find` is faster than `split`: it compares many bytes at once.
        while (end := chunk.find(b"\n", begin)) >= 0:
            line = chunk[begin:end]
            begin = end + 1
            if self._parts:
                self._parts.append(line)
                line = self.rest()
            if line := line.strip():
                lines.append(line)
        if begin < len(chunk):
            self._parts.append(chunk[begin:])
        return lines

    @property
    def is_between(self) -> bool:
        """Whether the last line is complete."""
        return not self._parts

    def rest(self) -> bytes:
        """Return and forget the begun line."""
        line = b"".join(self._parts).strip()
        self._parts.clear()
        return line
