"""Watches: the server's changes of a collection, as they happen."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Literal, NoReturn, Self, TypeAlias, TypeVar, cast, get_args

import msgspec

from navarchos.client.decoding import Codec, resource_version_of
from navarchos.client.errors import (
    ConnectFailed,
    DecodeError,
    Expired,
    RequestTimeout,
    WatchBroken,
    WatchExpired,
    error_from_status,
)
from navarchos.client.lines import LineSplitter
from navarchos.client.status import decode_status
from navarchos.client.transport import Response
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken
from navarchos.structs import make_decoder

__all__ = ["EventType", "WatchEvent", "WatchStream"]

T = TypeVar("T")

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

_log = get_logger(__name__)

_TYPES: Final = frozenset(get_args(EventType))
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One change.

    Attributes:
        type: What happened; `BOOKMARK` only tells how far the server is.
        object: The object after the change, or its last state if deleted; `None`
            for bookmarks, and for an object that does not fit its type or is of
            another kind.
        resource_version: Of the object, or of the bookmark.
        initial_events_end: This bookmark ends the initial events of a streaming
            list. True only if the server says exactly so (RT-13).
        failure: Why there is no object, with its name and uid as far as they
            could be read.
    """

    type: EventType
    object: T | None
    resource_version: ResourceVersion
    initial_events_end: bool = False
    failure: DecodeError | None = None


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
    """An open watch: iterate over it, and close it.

    ```python
    options = WatchOptions(resource_version=version)
    with pods.watch(options=options, stop=stop) as events:
        for event in events:
            ...
    ```

    The iteration ends normally when the server ends the watch, as it does every
    few minutes, and after the event under way when certificates were replaced on disk:
    the next watch shows the new ones.

    Promises: the connection is closed when the iteration ends, however it ends,
    and by `close()`; a set stop token frees a blocked read at once.

    Does not promise: any event. Watch again from the last resourceVersion.

    Raises, while iterating:
        WatchExpired: 410: list again.
        WatchBroken: The stream was cut in the middle, garbled, or silent for too
            long: resume.
        ApiError: The server reports another error inside the stream.
        Stopped: The stop token was set, or `close()` called from elsewhere.

    Threads: one thread iterates; any may close.
    """

    def __init__(
        self,
        answer: Response,
        codec: Codec[T],
        *,
        resource: str,
        stop: StopToken,
        silence: Callable[[], float | None],
        on_bookmark: Callable[[], None],
        is_listing: bool = False,
    ) -> None:
        self._answer = answer
        self._codec = codec
        self._resource = resource
        self._stop = stop
        self._silence = silence
        self._on_bookmark = on_bookmark
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()
        self._reading_lock = threading.Lock()  # held by whoever uses the answer
        self._ended = False  # guarded by _reading_lock
        self._is_listing = is_listing  # what comes is a list: nobody hears of a part of it

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
            # The blocked reader has just been freed, so the lock is there soon.
            self._reading_lock.acquire()
        try:
            self._ended = True
            self._answer.close()
        finally:
            self._reading_lock.release()
        # Only now, or it would shut a connection that was read to its end and is
        # back in the pool. It detaches the token from those above it.
        self._stop.stop("the watch was closed")

    def _line(self) -> bytes:
        while not self._lines:
            self._lines.extend(self._splitter.feed(self._chunk()))
        return self._lines.popleft()

    def _chunk(self) -> bytes:
        """Read on; at the end of the stream hand out what has no newline yet."""
        with self._reading_lock:
            if self._ended:
                raise StopIteration
            self._stop.raise_if_set()
            if self._splitter.is_between and self._answer.is_outdated:
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
            return self._answer.read_some(silence, gather=self._is_listing)
        except RequestTimeout as error:
            why = f"the server was silent for {silence} seconds"
            raise WatchBroken(self._resource, why) from error
        except ConnectFailed as error:
            raise WatchBroken(self._resource, error.why) from error

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
            why = "the stream was cut" if self._ended else "the stream is garbled"
            raise WatchBroken(self._resource, f"{why} in the middle of an event") from error
        if found.type == "ERROR":
            self._raise_status(found.object)
        if found.type not in _TYPES:
            _log.warning("watch_event_of_unknown_type", resource=self._resource, type=found.type)
            return None
        return self._change(cast("EventType", found.type), found.object)

    def _change(self, kind: EventType, data: msgspec.Raw) -> WatchEvent[T]:
        try:
            self._codec.check_kind(data, verb="watch")
            obj = self._codec.decode(data, verb="watch")
        except DecodeError as failure:
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
            raise WatchBroken(self._resource, "an error that is no status") from error
        reported = error_from_status(status, verb="watch", resource=self._resource)
        if isinstance(reported, Expired):
            raise WatchExpired(self._resource, reported.message or "too old") from reported
        raise reported
