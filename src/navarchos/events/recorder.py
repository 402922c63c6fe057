"""The recorder: accepts events at once and writes them in the background."""

import threading
from enum import StrEnum
from typing import Any, Final, Protocol

from prometheus_client import Counter

from navarchos.client import (
    AlreadyExists,
    Client,
    ClientError,
    NotFound,
    Resource,
    TransportError,
    is_namespace_terminating,
)
from navarchos.client.rbac import PolicyRule
from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import AlreadyStarted
from navarchos.events import model
from navarchos.events.series_tracker import EventSeriesTracker, RecordResult
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.meta import KeyFailed
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["RBAC", "EventRecorder", "EventSink", "Recorder"]

_PAUSE: Final = 10.0
_JITTER: Final = 0.25

_log = get_logger(__name__)

RBAC: Final = (PolicyRule(model.EVENTS, ("create", "patch")),)
"""The permissions for writing events, in the namespaces of the objects that events are about.

Events about objects without a namespace are written to `default`.
"""


class EventSink:
    """Creates events on the server, and patches existing events.

    Threads: safe from any thread.
    """

    def __init__(self, client: Client, reporter: model.Reporter) -> None:
        self._events = client.resource(model.EVENTS)
        self._reporter = reporter

    def write(self, event: model.SeriesSnapshot, *, timeout: float | None) -> None:
        """Write the current state of a series; repeating the call changes nothing.

        Events expire on the server (after an hour by default); the event of a series that
        continues longer is then re-created (EV-11, EV-17).

        Raises:
            ClientError: The request failed.
        """
        if event.stored:
            try:
                return self._patch(event, timeout)
            except NotFound:
                pass
        try:
            self._events.create(
                model.new_event(event, self._reporter), event.facts.namespace, timeout=timeout
            )
        except AlreadyExists:
            # An earlier request was successful, but its response was lost.
            if event.count > 1:
                self._patch(event, timeout)

    def _patch(self, event: model.SeriesSnapshot, timeout: float | None) -> None:
        self._events.patch(
            event.name, model.next_in_series(event), event.facts.namespace, timeout=timeout
        )


class Recorder(Protocol):
    """Accepts events. `EventRecorder` writes them to the server; a fake only stores them."""

    def record(
        self,
        resource: Resource[Any],
        obj: object,
        type: model.EventType,  # noqa: A002 - the field's name
        reason: str,
        message: str,
        *,
        action: str = "",
        related: model.Reference | None = None,
    ) -> None:
        """Record an event; see `EventRecorder.record`."""
        ...


class _DropReason(StrEnum):
    """Why an event was dropped: the values of the metric's label."""

    INVALID = "invalid"
    FILTERED = "filtered"
    QUEUE_FULL = "queue_full"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    SHUTDOWN = "shutdown"


class EventRecorder:
    """Records events about objects and writes them to the server.

    Promises: `record` never blocks on the network and never raises; events of one kind about
    one object reach the server in order; repeats become a series; dropped events are counted in
    `navarchos_events_dropped_total`.

    Does not promise: delivery. At most 1000 events wait. An object may have 25 events at once
    and then one every five minutes (counted separately for each related object). An event is
    dropped if the server refuses it, or does not answer twelve times.

    Lifecycle: `start`, then `close`. Events recorded before `start` wait for it; events
    recorded after `close` are ignored, because some components still record events while the
    process ends (EV-04, RT-30). The thread starts with the first event.

    Threads: every method is safe from any thread.

    Args:
        client: Writes the events.
        component: The reporting controller, such as `widget-controller`.
        instance: The instance of it; `<component>-<host name>` when empty.
        clock: Time and waiting.
        instruments: Where dropped events are counted.

    Raises:
        ConfigError: The server would refuse the component or the instance.
    """

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        instance: str = "",
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        self._sink = EventSink(client, model.Reporter.of(component, instance))
        self._clock = clock
        self._dropped = _dropped_counters(instruments or Instruments())
        self._work = threading.Condition(threading.Lock())
        self._tracker = EventSeriesTracker(clock.monotonic())  # guarded by _work
        self._writing = False  # guarded by _work; the thread is writing a series
        self._deadline: float | None = None  # guarded by _work; set by close()
        self._threads: ThreadGroup | None = None  # guarded by _work; set by start()
        self._running = False  # guarded by _work; the thread has been started

    def record(
        self,
        resource: Resource[Any],
        obj: object,
        type: model.EventType,  # noqa: A002 - the field's name
        reason: str,
        message: str,
        *,
        action: str = "",
        related: model.Reference | None = None,
    ) -> None:
        """Record an event; it is written soon.

        Args:
            resource: The kind of the object.
            obj: The object, or anything with its metadata. The event is created in its
                namespace, or in `default` if the object has no namespace.
            type: `NORMAL` or `WARNING`.
            reason: Why, as one UpperCamelCase word for programs.
            message: What happened, for users; cut after 1 KiB. A series keeps its first
                message: the server does not allow to change it.
            action: The action, as one UpperCamelCase word; the reason if empty.
            related: Another object that the event concerns. Events with different related
                objects are not one series: each keeps its message.
        """
        try:
            regarding = model.Reference.to(resource, obj)
            facts = model.EventFacts.of(regarding, type, reason, message, action, related)
        except (KeyFailed, model.InvalidEvent) as error:
            self._dropped[_DropReason.INVALID].inc()
            _log.warning("event_invalid", reason=reason, error=str(error))
            return
        self._count(self._add(facts), facts)

    def start(self, stop: StopToken) -> None:
        """Start to write. Setting `stop` ends it at once; `close` ends it in order.

        Raises:
            AlreadyStarted: Called a second time.
        """
        with self._work:
            if self._threads is not None:
                raise AlreadyStarted("the event recorder")
            self._threads = ThreadGroup("events", stop=stop.child(), clock=self._clock)
            if len(self._tracker):
                self._run_locked()
        self._threads.stop.on_stop(self._wake)

    def flush(self, timeout: float) -> bool:
        """Wait until all events are written; return whether they are."""
        deadline = self._clock.monotonic() + timeout
        with self._work:
            while len(self._tracker) or self._writing:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return False
                self._clock.wait(self._work, left)
            return True

    def close(self, timeout: float = 5.0) -> bool:
        """Write all waiting events and end. Does nothing when called again.

        Each waiting event, and each series with unwritten occurrences, is tried once more.

        Args:
            timeout: Longest wait in seconds; events that still wait after it are dropped.

        Returns:
            Whether everything was written and the thread has ended.
        """
        with self._work:
            if self._deadline is None:
                self._deadline = self._clock.monotonic() + timeout
                self._tracker.flush()
            threads = self._threads
            self._work.notify_all()
        ended = threads.join(timeout) if threads is not None else True
        if threads is not None:
            threads.stop.stop("the event recorder is closed")
        with self._work:
            lost = self._tracker.clear() if ended else 0
        self._dropped[_DropReason.SHUTDOWN].inc(lost)
        return ended and not lost

    def _add(self, facts: model.EventFacts) -> RecordResult | None:
        with self._work:
            if self._deadline is not None:
                return None
            outcome = self._tracker.record(facts, at=self._clock.now(), now=self._clock.monotonic())
            if self._threads is not None and len(self._tracker):
                self._run_locked()
            self._work.notify_all()
        return outcome

    def _count(self, outcome: RecordResult | None, facts: model.EventFacts) -> None:
        if outcome is RecordResult.FILTERED:
            self._dropped[_DropReason.FILTERED].inc()
        elif outcome is RecordResult.NO_ROOM:
            self._dropped[_DropReason.QUEUE_FULL].inc()
            _log.warning("event_queue_full", reason=facts.reason)

    def _run_locked(self) -> None:
        if not self._running and self._threads is not None:
            self._running = True
            self._threads.start("", self._write_all)

    def _wake(self) -> None:
        with self._work:
            self._work.notify_all()

    def _write_all(self) -> None:
        while (event := self._next()) is not None:
            error = self._write(event)
            with self._work:
                self._writing = False
                again = self._finish_locked(event, error)
                self._work.notify_all()
            if error is not None and not again:
                self._drop(event, error)

    def _next(self) -> model.SeriesSnapshot | None:
        """Wait for a series to write; `None` at the end."""
        with self._work:
            while not self._is_over_locked():
                now = self._clock.monotonic()
                event = self._tracker.next(now)
                if event is not None:
                    self._writing = True
                    return event
                if self._deadline is not None:
                    return None
                due = self._tracker.next_due()
                self._clock.wait(self._work, None if due is None else due - now)
            return None

    def _is_over_locked(self) -> bool:
        assert self._threads is not None
        late = self._deadline is not None and self._clock.monotonic() >= self._deadline
        return late or self._threads.stop.is_set()

    def _write(self, event: model.SeriesSnapshot) -> ClientError | None:
        with self._work:
            deadline = self._deadline
        left = None if deadline is None else max(deadline - self._clock.monotonic(), 0.001)
        try:
            self._sink.write(event, timeout=left)
        except ClientError as error:
            return error
        return None

    def _finish_locked(self, event: model.SeriesSnapshot, error: ClientError | None) -> bool:
        """Record the result; return whether a failed event will be retried (EV-12)."""
        if error is None:
            self._tracker.written(event)
            return False
        if isinstance(error, TransportError):
            pause = _PAUSE * (1 + _JITTER * uniform())
            return self._tracker.failed(event, again_at=self._clock.monotonic() + pause)
        self._tracker.drop(event)
        return False

    def _drop(self, event: model.SeriesSnapshot, error: ClientError) -> None:
        refused = not isinstance(error, TransportError)
        self._dropped[_DropReason.REFUSED if refused else _DropReason.UNREACHABLE].inc()
        if is_namespace_terminating(error):
            return  # a terminating namespace deletes its events anyway (EV-12)
        _log.warning(
            "event_dropped",
            reason=event.facts.reason,
            kind=event.facts.regarding.kind,
            namespace=event.facts.regarding.namespace,
            name=event.facts.regarding.name,
            error=str(error),
        )


def _dropped_counters(instruments: Instruments) -> dict[_DropReason, Counter]:
    family = instruments.counter(
        "navarchos_events_dropped_total",
        "Kubernetes events that were dropped, by reason.",
        ("reason",),
    )
    return {reason: family.labels(reason=reason.value) for reason in _DropReason}
