"""Streaming lists: the initial list as events of the watch that continues after it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from navarchos.client.errors import ClientError, WatchBroken
from navarchos.client.options import ListOptions
from navarchos.informers.errors import InconsistentList
from navarchos.informers.ingest import Draft
from navarchos.informers.paged_list import is_version_unavailable
from navarchos.informers.reflector_context import ReflectorContext, is_busy
from navarchos.informers.scope import ScopedSource
from navarchos.informers.source import Stream
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion, identity_of, key_of
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["DETECT_VARIABLE", "ConsistencyDetector", "StreamingList", "detector_wanted"]

T = TypeVar("T")

DETECT_VARIABLE: Final = "NAVARCHOS_DETECT_INCONSISTENT_LISTS"
"""The environment variable that turns the detector on if it is not empty."""

_MAX_UNFINISHED: Final = 3
_WARN_EVERY: Final = 10.0
"""Seconds (RF-27)."""

_log = get_logger(__name__)


def detector_wanted() -> bool:
    """Return whether the environment turns the detector on."""
    return bool(os.environ.get(DETECT_VARIABLE))


class ConsistencyDetector(Generic[T]):
    """Compares a streamed list with an ordinary one at the same version (RF-29).

    For test suites and canaries: each streamed list costs one more whole list. As
    client-go's `KUBE_WATCHLIST_INCONSISTENCY_DETECTOR`.

    Threads: owned by the reflector's thread.
    """

    def __init__(self, source: ScopedSource[T]) -> None:
        self._source = source

    def check(self, draft: Draft[T], version: ResourceVersion, stop: StopToken) -> None:
        """Compare a streamed list with an ordinary one, by uid and version of each object.

        A list that fails, for instance because the version has just been compacted, proves
        nothing and is only logged.

        Args:
            draft: The streamed list.
            version: The version of the streamed list.
            stop: Ends the wait for the ordinary list.

        Raises:
            InconsistentList: The lists differ.
            Stopped: The token was set.
        """
        try:
            options = ListOptions(limit=0, resource_version=version, resource_version_match="Exact")
            page = self._source.page(options, stop=stop)
        except ClientError as error:
            _log.warning("streamed_list_not_checked", resource=self._source.name, error=str(error))
            return
        listed = {key_of(obj): _stamp(obj) for obj in page.items}
        unreadable = {failure.key for failure in page.failures} | draft.unreadable.keys()
        streamed = {key: _stamp(obj) for key, obj in draft.objects.items()}
        differing = {
            key
            for key in (listed.keys() | streamed.keys()) - unreadable
            if listed.get(key) != streamed.get(key)
        }
        if differing:
            raise InconsistentList(self._source.name, version, differing)


class StreamingList(Generic[T]):
    """Fills the store from a watch, object by object (RF-24 to RF-27).

    The server sends an ADDED for each object, then a bookmark that marks the list as
    complete, then changes. Neither side ever holds the whole list as one response, which is
    what an informer of a large kind needs most of its memory for.

    Threads: owned by the reflector's thread.
    """

    def __init__(
        self, context: ReflectorContext[T], *, detector: ConsistencyDetector[T] | None = None
    ) -> None:
        self._source = context.source
        self._position = context.position
        self._ingest = context.ingest
        self._backoff = context.backoff
        self._clock = context.clock
        self._detector = detector

    def fill(self, stop: StopToken) -> Stream[T] | None:
        """Fill the store and return the stream, which continues as the watch.

        Returns:
            `None` if this server cannot stream lists: list and watch then. The same for a
            server that does not know the request, and ends one stream after the other
            without the bookmark.

        Raises:
            Stopped: The token was set; nothing was stored.
            InconsistentList: The detector found a difference; nothing changed.
        """
        unfinished = 0
        while unfinished < _MAX_UNFINISHED:
            try:
                return self._attempt(stop)
            except WatchBroken as error:
                unfinished += 1
                _log.info("streaming_list_unfinished", error=error.why, resource=error.resource)
            except InconsistentList:
                raise  # an ordinary list would hide it
            except Exception as error:  # noqa: BLE001 - told apart below
                if is_busy(error):
                    self._backoff.wait_for_server(error, stop)
                elif is_version_unavailable(error) and not self._position.is_resume_version_refused:
                    self._position.is_resume_version_refused = True
                else:
                    _log.info(
                        "streaming_list_refused", resource=self._source.name, error=str(error)
                    )
                    return None
        return None

    def _attempt(self, stop: StopToken) -> Stream[T]:
        stream = self._source.watch(self._position.version_to_stream(), stop, streaming=True)
        try:
            draft = Draft[T]()
            with self._warning(stop):
                version = self._read(stream, draft)
            stop.raise_if_set()
            if self._detector is not None:
                self._detector.check(draft, version, stop)
            self._ingest.take_draft(draft, version)
        except BaseException:
            stream.close()
            raise
        self._position.resume_from(version)
        return stream

    def _read(self, stream: Stream[T], draft: Draft[T]) -> ResourceVersion:
        for event in stream:
            # Another bookmark only says how far the stream is, not that it is complete (RT-13).
            if event.initial_events_end:
                return event.resource_version
            self._ingest.draft(draft, event)
        raise WatchBroken(self._source.name, "it ended before the list was complete")

    @contextmanager
    def _warning(self, stop: StopToken) -> Iterator[None]:
        """Warn while the end of the list does not come, even if no event comes at all.

        That takes a thread, because the reflector's thread is blocked in the read.
        """
        done = stop.child()
        threads = ThreadGroup(f"slow-{self._source.name}", stop=done, clock=self._clock)
        threads.start("", lambda: self._warn(done))
        try:
            yield
        finally:
            done.stop("the list is complete, or was abandoned")
            threads.join()

    def _warn(self, done: StopToken) -> None:
        began = self._clock.monotonic()
        while not done.wait(_WARN_EVERY):
            seconds = self._clock.monotonic() - began
            _log.warning("streaming_list_is_slow", resource=self._source.name, seconds=seconds)


def _stamp(obj: object) -> tuple[str, str]:
    identity = identity_of(obj)
    return identity.uid, identity.resource_version
