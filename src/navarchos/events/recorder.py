"""The recorder: takes events down at once, writes them in its own time."""

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
from navarchos.events.model import (
    EVENTS,
    EventFacts,
    EventType,
    InvalidEvent,
    Reference,
    Reporter,
    SeriesSnapshot,
    new_event,
    next_in_series,
)
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


class Recorder(Protocol):
    """Takes events down. `EventRecorder` writes them, a fake only keeps them."""

    def record(
        self,
        resource: Resource[Any],
        obj: object,
        type: EventType,  # noqa: A002 - the field's name
        reason: str,
        message: str,
        *,
        action: str = "",
        related: Reference | None = None,
    ) -> None:
        """Take an event down; see `EventRecorder.record`."""
        ...


class _DropReason(StrEnum):
    """Why an event does not reach the server: the values of the metric's label."""

    INVALID = "invalid"
    FILTERED = "filtered"
    QUEUE_FULL = "queue_full"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    SHUTDOWN = "shutdown"


class EventRecorder:
    """Records events about objects and writes them to the server.

    Promises: `record` never blocks on the network and never raises; events of
    one kind about one object reach the server in order; repeats become a series;
    what is lost is counted in `navarchos_events_dropped_total`.

    Does not promise: delivery. At most 1000 events wait, an object may have 25 at
    once and then one every five minutes (so may it with each object that is named as
    related), and an event that the server refuses, or that got no answer twelve
    times, is given up.

    Life cycle: `start`, then `close`. Events recorded before `start` wait for it;
    those recorded after `close` are ignored, because some components say their
    last words late (EV-04, RT-30). The thread starts with the first event.

    Threads: every method is safe from any thread.

    Args:
        client: Writes the events.
        component: Who reports, such as `widget-controller`.
        instance: Which instance of it; `<component>-<host name>` when empty.
        clock: Time, for tests.
        instruments: Where losses are counted.

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
        self._sink = EventSink(client, Reporter.of(component, instance))
        self._clock = clock
        self._dropped = _dropped_counters(instruments or Instruments())
        self._work = threading.Condition(threading.Lock())
        self._tracker = EventSeriesTracker(clock.monotonic())  # guarded by _work
        self._writing = False  # guarded by _work; a snapshot is with the thread
        self._deadline: float | None = None  # guarded by _work; set by close()
        self._threads: ThreadGroup | None = None  # guarded by _work; set by start()
        self._running = False  # guarded by _work; the thread has been started

    def record(
        self,
        resource: Resource[Any],
        obj: object,
        type: EventType,  # noqa: A002 - the field's name
        reason: str,
        message: str,
        *,
        action: str = "",
        related: Reference | None = None,
    ) -> None:
        """Take an event down, to be written soon.

        Args:
            resource: The kind of the object.
            obj: The object, or anything with its metadata. The event lives in its
                namespace, in `default` if it has none.
            type: `NORMAL` or `WARNING`.
            reason: Why, as one UpperCamelCase word for programs.
            message: What happened, for people; 1 KiB, the rest is cut off. Of a
                series only the first message is kept: the server allows no other.
            action: What was done, as one UpperCamelCase word; the reason if empty.
            related: Another object that it has to do with. Events with different ones
                are no repeats of one another: each keeps its message.
        """
        try:
            regarding = Reference.to(resource, obj)
            facts = EventFacts.of(regarding, type, reason, message, action, related)
        except (KeyFailed, InvalidEvent) as error:
            self._dropped[_DropReason.INVALID].inc()
            _log.warning("event_invalid", reason=reason, error=str(error))
            return
        self._count(self._take_down(facts), facts)

    def start(self, stop: StopToken) -> None:
        """Begin to write. Setting `stop` ends it at once; `close` ends it in order.

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
        """Wait until nothing waits to be written; return whether that came true."""
        deadline = self._clock.monotonic() + timeout
        with self._work:
            while len(self._tracker) or self._writing:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return False
                self._clock.wait(self._work, left)
            return True

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is left and end. May be called again; then it does nothing.

        Each event, and each series with occurrences that the server does not know
        of, is tried once more.

        Args:
            timeout: Longest wait in seconds; what is left then is dropped.

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

    def _take_down(self, facts: EventFacts) -> RecordResult | None:
        with self._work:
            if self._deadline is not None:
                return None
            outcome = self._tracker.record(facts, at=self._clock.now(), now=self._clock.monotonic())
            if self._threads is not None and len(self._tracker):
                self._run_locked()
            self._work.notify_all()
        return outcome

    def _count(self, outcome: RecordResult | None, facts: EventFacts) -> None:
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
                again = self._settle_locked(event, error)
                self._work.notify_all()
            if error is not None and not again:
                self._given_up(event, error)

    def _next(self) -> SeriesSnapshot | None:
        """Wait for something to write; `None` is the end."""
        with self._work:
            while not self._is_over_locked():
                now = self._clock.monotonic()
                event = self._tracker.take(now)
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

    def _write(self, event: SeriesSnapshot) -> ClientError | None:
        with self._work:
            deadline = self._deadline
        left = None if deadline is None else max(deadline - self._clock.monotonic(), 0.001)
        try:
            self._sink.write(event, timeout=left)
        except ClientError as error:
            return error
        return None

    def _settle_locked(self, event: SeriesSnapshot, error: ClientError | None) -> bool:
        """Enter the result; return whether a failed event will be tried again (EV-12)."""
        if error is None:
            self._tracker.written(event)
            return False
        if isinstance(error, TransportError):
            pause = _PAUSE * (1 + _JITTER * uniform())
            return self._tracker.failed(event, again_at=self._clock.monotonic() + pause)
        self._tracker.give_up(event)
        return False

    def _given_up(self, event: SeriesSnapshot, error: ClientError) -> None:
        refused = not isinstance(error, TransportError)
        self._dropped[_DropReason.REFUSED if refused else _DropReason.UNREACHABLE].inc()
        if is_namespace_terminating(error):
            return  # a namespace that goes takes its events with it (EV-12)
        _log.warning(
            "event_given_up",
            reason=event.facts.reason,
            kind=event.facts.regarding.kind,
            namespace=event.facts.regarding.namespace,
            name=event.facts.regarding.name,
            error=str(error),
        )


def _dropped_counters(instruments: Instruments) -> dict[_DropReason, Counter]:
    family = instruments.counter(
        "navarchos_events_dropped_total", "Events that did not reach the server.", ("reason",)
    )
    return {reason: family.labels(reason=reason.value) for reason in _DropReason}


RBAC: Final = (PolicyRule(EVENTS, ("create", "patch")),)
"""What writing events asks of the server, in the namespaces of what they are about.

Events about objects without a namespace are written to `default`.
"""


class EventSink:
    """Creates events, and patches those that the server has.

    Threads: safe from any thread, as the client is.
    """

    def __init__(self, client: Client, reporter: Reporter) -> None:
        self._events = client.resource(EVENTS)
        self._reporter = reporter

    def write(self, event: SeriesSnapshot, *, timeout: float | None) -> None:
        """Bring the server up to date; repeating it changes nothing.

        Events expire on the server (after an hour by default); a series that
        goes on longer is then created anew (EV-11, EV-17).

        Raises:
            ClientError: As the client does.
        """
        if event.stored:
            try:
                return self._patch(event, timeout)
            except NotFound:
                pass
        try:
            self._events.create(
                new_event(event, self._reporter), event.facts.namespace, timeout=timeout
            )
        except AlreadyExists:
            # An earlier try arrived, though its answer did not.
            if event.count > 1:
                self._patch(event, timeout)

    def _patch(self, event: SeriesSnapshot, timeout: float | None) -> None:
        self._events.patch(
            event.name, next_in_series(event), event.facts.namespace, timeout=timeout
        )
