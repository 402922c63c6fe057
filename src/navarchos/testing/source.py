"""A scripted source of one kind, for testing informers without a server."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, Self, TypeVar

import msgspec

from navarchos.client.decoding import ResourceList
from navarchos.client.errors import ApiError, DecodeError, Expired, WatchBroken, WatchExpired
from navarchos.client.options import ListOptions, WatchOptions
from navarchos.client.resource import Resource
from navarchos.client.status import Status
from navarchos.client.watching import EventType, WatchEvent
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped
from navarchos.meta import Object, ResourceVersion, key_of
from navarchos.stopping import StopToken

__all__ = ["FakeSource", "FakeStream", "SourceRequest"]

T = TypeVar("T", bound=Object)

Verb = Literal["list", "watch"]

_ALL: Final = ListOptions()
_FROM_NOW: Final = WatchOptions()


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """A request that a `FakeSource` has received.

    Attributes:
        verb: `list` or `watch`.
        resource_version: The requested version.
        limit: The limit of a list.
        continue_token: The token of a list.
        streaming: Whether a watch asked for initial events.
    """

    verb: Verb
    resource_version: str
    limit: int = 0
    continue_token: str = ""
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class _Change(Generic[T]):
    version: int
    event: WatchEvent[T]


class FakeStream(Generic[T]):
    """A watch of a `FakeSource`: returns the events that the source sends, until it ends."""

    def __init__(self, *, namespace: str = "", stop: StopToken | None, clock: Clock) -> None:
        self.namespace = namespace
        self._clock = clock
        self._stop = stop.child() if stop is not None else StopToken(clock=clock)
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[WatchEvent[T] | BaseException | None] = deque()  # guarded by _changed
        self._closed = False  # guarded by _changed
        self._stop.on_stop(self._wake)

    @property
    def is_closed(self) -> bool:
        """Whether the reader has closed the watch."""
        with self._changed:
            return self._closed

    @property
    def unread(self) -> int:
        """How many events, the end included, the reader has not read yet."""
        with self._changed:
            return len(self._events)

    def send(self, event: WatchEvent[T]) -> None:
        """Send an event."""
        self._put(event)

    def offer(self, event: WatchEvent[T]) -> None:
        """Send an event if it concerns the watched namespace."""
        if event.object is None or self.namespace in {"", event.object.metadata.namespace}:
            self.send(event)

    def end(self, error: BaseException | None = None) -> None:
        """End the watch after the events that were sent, normally or with an error."""
        self._put(error)

    def close(self) -> None:
        """Close the watch, as its reader does."""
        with self._changed:
            self._closed = True
        self._stop.stop("the watch was closed")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchEvent[T]:
        with self._changed:
            while not self._events and not self._stop.is_set():
                self._clock.wait(self._changed, None)
            if self._stop.is_set():
                raise Stopped(self._stop.reason or "")
            event = self._events.popleft()
        if isinstance(event, BaseException):
            raise event
        if event is None:
            raise StopIteration
        return event

    def _put(self, event: WatchEvent[T] | BaseException | None) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


@dataclass(slots=True)
class _Failures:
    list: "deque[BaseException]" = field(default_factory=deque)
    watch: deque[BaseException] = field(default_factory=deque)


class FakeSource(Generic[T]):
    """Objects of one kind with a history, for lists and watches.

    It stands for a client's view of a server, and can do what servers and networks do at their
    worst: change an object *without* notifying watches, end watches in every way, lose the history,
    refuse requests. Objects get a uid and a resourceVersion.

    Threads: every method is safe from any thread.

    Attributes:
        resource: The kind.
        can_stream: Whether the server offers streaming lists; otherwise it refuses them.
        streams_lists: Whether the client supports streaming lists.
        requests: The requests, in order.
        streams: All watches, in order.
        before_list: Called before each response to a list, with no lock held.
    """

    def __init__(
        self, resource: Resource[T], *, can_stream: bool = True, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.resource = resource
        self.can_stream = can_stream
        self.streams_lists = True
        self.requests: list[SourceRequest] = []
        self.streams: list[FakeStream[T]] = []
        self.before_list: Callable[[], object] | None = None
        self._clock = clock
        self._world_lock = threading.RLock()
        self._objects: dict[str, T] = {}  # guarded by _world_lock
        self._history: list[
            _Change[T]
        ] = []  # guarded by _world_lock; the events that watches may see
        self._version = 10  # guarded by _world_lock
        self._compacted = 0  # guarded by _world_lock; older versions are gone
        self._uids = 0  # guarded by _world_lock
        self._pages: dict[str, list[T]] = {}  # guarded by _world_lock; by continue token
        self._failures = _Failures()  # guarded by _world_lock

    # Changes of the objects

    @property
    def version(self) -> ResourceVersion:
        """The current version."""
        with self._world_lock:
            return ResourceVersion(str(self._version))

    def objects(self) -> dict[str, T]:
        """Return the objects that exist, by key."""
        with self._world_lock:
            return dict(self._objects)

    def put(self, obj: T, *, notify: bool = True) -> T:
        """Create or change an object; return it with uid and version.

        Args:
            obj: The object; its key decides which object it changes.
            notify: False hides the change from present and future watches.
        """
        with self._world_lock:
            key = key_of(obj)
            known = self._objects.get(key)
            uid = self._fresh_uid() if known is None else known.metadata.uid
            stored = self._stamped(obj, uid)
            self._objects[key] = stored
            self._record("ADDED" if known is None else "MODIFIED", stored, notify=notify)
            return stored

    def delete(self, key: str, *, notify: bool = True) -> T:
        """Delete an object; return its last state, with the version of the deletion."""
        with self._world_lock:
            known = self._objects.pop(key)
            last = self._stamped(known, known.metadata.uid)
            self._record("DELETED", last, notify=notify)
            return last

    def pass_time(self, versions: int = 1) -> None:
        """Increase the server's version, as changes of other kinds do."""
        with self._world_lock:
            self._version += versions

    def compact(self) -> None:
        """Drop the history: older versions and all continue tokens have expired."""
        with self._world_lock:
            self._compacted = self._version
            self._history.clear()
            self._pages.clear()

    def restore(self, version: int) -> None:
        """Go back to an older version, as a restore of etcd from a backup does."""
        with self._world_lock:
            self._version = version
            self._compacted = 0
            self._history.clear()

    # Faults of the server and the network

    def fail(self, verb: Verb, *errors: BaseException) -> None:
        """Let the next requests of a verb fail with errors."""
        with self._world_lock:
            (self._failures.list if verb == "list" else self._failures.watch).extend(errors)

    def bookmark(self) -> None:
        """Send a bookmark of the current version to every open watch."""
        with self._world_lock:
            for stream in self.open_streams():
                stream.send(WatchEvent("BOOKMARK", None, self.version))

    def end_watches(self) -> None:
        """End every open watch, as servers do after some minutes."""
        for stream in self.open_streams():
            stream.end()

    def break_watches(self) -> None:
        """Cut every open watch."""
        for stream in self.open_streams():
            stream.end(WatchBroken(str(self.resource), "the connection was reset"))

    def fail_watches(self, error: BaseException) -> None:
        """Report an error inside every open watch."""
        for stream in self.open_streams():
            stream.end(error)

    def open_streams(self) -> list[FakeStream[T]]:
        """Return the watches that are not closed."""
        with self._world_lock:
            return [stream for stream in self.streams if not stream.is_closed]

    # The requests of an informer

    def list_page(
        self,
        namespace: str = "",
        options: ListOptions = _ALL,
        *,
        timeout: float | None = None,
        stop: StopToken | None = None,
        on_object: Callable[[T], object] | None = None,
    ) -> ResourceList[T]:
        """Return a page of the objects in a namespace. Selectors are ignored.

        An exact version other than the current one has expired.
        """
        del timeout, stop
        if self.before_list is not None:
            self.before_list()
        version, limit, token = options.resource_version, options.limit, options.continue_token
        with self._world_lock:
            self.requests.append(SourceRequest("list", version, limit, token))
            if self._failures.list:
                raise self._failures.list.popleft()
            if token:
                return _reported(self._next_page(token, limit), on_object)
            self._refuse_future(version)
            if options.resource_version_match == "Exact" and int(version) != self._version:
                raise Expired(Status(code=410, reason="Expired", message="the version is gone"))
            objects = [
                obj for obj in self._objects.values() if namespace in {"", obj.metadata.namespace}
            ]
            # A server with a watch cache ignores limits at version 0.
            page = self._page(objects, 0 if version == "0" else limit, self.version)
            return _reported(page, on_object)

    def watch(
        self,
        namespace: str = "",
        options: WatchOptions = _FROM_NOW,
        *,
        stop: StopToken | None = None,
    ) -> FakeStream[T]:
        """Open a watch. Selectors and `idle_timeout` are ignored."""
        version, streaming = options.resource_version, options.send_initial_events
        with self._world_lock:
            self.requests.append(SourceRequest("watch", version, streaming=streaming))
            if self._failures.watch:
                raise self._failures.watch.popleft()
            if streaming and not self.can_stream:
                message = "sendInitialEvents is forbidden for watch"
                raise ApiError(Status(code=422, reason="Invalid", message=message))
            self._refuse_future(version)
            stream = FakeStream[T](namespace=namespace, stop=stop, clock=self._clock)
            self._begin(stream, version, streaming=streaming)
            self.streams.append(stream)
            return stream

    # The functions below need _world_lock held

    def _begin(self, stream: FakeStream[T], version: str, *, streaming: bool) -> None:
        if streaming or version in {"", "0"}:
            for obj in self._objects.values():
                stream.offer(WatchEvent("ADDED", obj, obj.metadata.resource_version))
            if streaming:
                stream.send(WatchEvent("BOOKMARK", None, self.version, initial_events_end=True))
            return
        if int(version) < self._compacted:
            stream.end(WatchExpired(str(self.resource), "too old resource version"))
            return
        for change in self._history:
            if change.version > int(version):
                stream.offer(change.event)

    def _record(self, kind: EventType, obj: T, *, notify: bool) -> None:
        if not notify:
            return
        event = WatchEvent(kind, obj, obj.metadata.resource_version)
        self._history.append(_Change(self._version, event))
        for stream in self.open_streams():
            stream.offer(event)

    def _stamped(self, obj: T, uid: str) -> T:
        self._version += 1
        metadata = msgspec.structs.replace(
            obj.metadata, uid=uid, resource_version=ResourceVersion(str(self._version))
        )
        return msgspec.structs.replace(obj, metadata=metadata)

    def _fresh_uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids}"

    def _refuse_future(self, version: str) -> None:
        if version and int(version) > self._version:
            raise ApiError(
                Status(
                    code=504,
                    reason="Timeout",
                    message=f"Too large resource version: {version}, current: {self._version}",
                )
            )

    def _page(self, objects: list[T], limit: int, version: ResourceVersion) -> ResourceList[T]:
        page, rest = (objects[:limit], objects[limit:]) if limit else (objects, [])
        token = f"token-{len(self.requests)}" if rest else ""
        if rest:
            self._pages[token] = rest
        failures: list[DecodeError] = []
        return ResourceList(list(page), version, token, len(rest) or None, failures)

    def _next_page(self, token: str, limit: int) -> ResourceList[T]:
        if token not in self._pages:
            raise Expired(Status(code=410, reason="Expired", message="the token has expired"))
        return self._page(self._pages.pop(token), limit, self.version)


def _reported(page: ResourceList[T], on_object: Callable[[T], object] | None) -> ResourceList[T]:
    if on_object is not None:
        for obj in page.items:
            on_object(obj)
    return page
