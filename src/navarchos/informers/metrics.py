"""The metrics of informers, with their labels filled in."""

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

import msgspec
from prometheus_client import Counter, Gauge, Histogram

from navarchos.instrument import Instruments, Sum

__all__ = ["HandlerMetrics", "InformerMetrics", "RelistReason"]

P = TypeVar("P")

_LIST_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120)
_WATCH_SECONDS: Final = (1, 10, 60, 150, 300, 450, 600)
_HANDLER_SECONDS: Final = (0.0001, 0.001, 0.01, 0.1, 1, 10, 60)
_ITEMS: Final = (1, 10, 100, 1_000, 10_000, 100_000)
_EXACT_DIGITS: Final = 15
"""Decimal digits that a sample, a double, can hold; a version changes in its last digits."""

_PENDING: Final = (
    "navarchos_informer_pending_notifications",
    "Notifications that wait for a handler, or that the handler has not returned from.",
)


class RelistReason(Enum):
    """Why a whole list was requested."""

    START = "start"
    EXPIRED = "expired"
    FAILED = "failed"
    SHORT_WATCH = "short_watch"
    CATCH_UP = "catch_up"


class HandlerMetrics(msgspec.Struct, frozen=True):
    """The series of one handler.

    Attributes:
        resource: The resource of its informer.
        name: The handler's name.
        errors: Counts the notifications on which it failed.
        seconds: Observes how long it takes.
    """

    resource: str
    name: str
    errors: Counter
    seconds: Histogram


class InformerMetrics:
    """The series of one informer. Informers of one resource share them and add up."""

    def __init__(self, instruments: Instruments, resource: str) -> None:
        self._instruments = instruments
        self._resource = resource
        relists = instruments.counter(
            "navarchos_informer_relists_total",
            "Whole lists requested from the API server, by reason.",
            ("resource", "reason"),
        )
        # Every series exists from the start, at zero.
        self._relists = {reason: relists.labels(resource, reason.value) for reason in RelistReason}
        instruments.gauge(*_PENDING, ("resource", "handler"))
        self._handler_errors = instruments.counter(
            "navarchos_informer_handler_errors_total",
            "Notifications on which a handler failed.",
            ("resource", "handler"),
        )
        self._handler_seconds = instruments.histogram(
            "navarchos_informer_handler_duration_seconds",
            "Time that handlers took for one notification.",
            ("resource", "handler"),
            buckets=_HANDLER_SECONDS,
        )
        self.objects = self._gauge("objects", "Objects in the caches.")
        self.decode_failures = self._counter(
            "decode_failures_total",
            "Objects skipped because they could not be decoded, transformed or indexed.",
        )
        self.skipped = self._gauge(
            "objects_skipped",
            "Objects of which the caches do not have the present state, because it was skipped.",
        )
        self._list_seconds = self._histogram(
            "list_duration_seconds", "Duration of whole lists.", _LIST_SECONDS
        )
        self._list_items = self._histogram("list_items", "Objects in whole lists.", _ITEMS)
        self.watches = self._counter("watches_total", "Watches opened.")
        self.short_watches = self._counter(
            "short_watches_total", "Watches that ended at once, without an event."
        )
        self._watch_seconds = self._histogram(
            "watch_duration_seconds", "Duration of watches.", _WATCH_SECONDS
        )
        self._watch_items = self._histogram("watch_items", "Events in watches.", _ITEMS)
        self.disconnected = self._gauge(
            "disconnected", "Caches whose watch is lost at present, so that they miss changes."
        )
        self._last_version = self._gauge(
            "last_resource_version",
            "The resourceVersion seen last, if it is a number; its last 15 digits.",
        )

    def relist(self, reason: RelistReason) -> None:
        """Count a request for a whole list."""
        self._relists[reason].inc()

    def listed(self, seconds: float, items: int) -> None:
        """Observe a whole list that is in the store, streamed or not (RF-31)."""
        self._list_seconds.observe(seconds)
        self._list_items.observe(items)

    def watched(self, seconds: float, events: int) -> None:
        """Observe a watch that has ended."""
        self._watch_seconds.observe(seconds)
        self._watch_items.observe(events)

    def show_version(self, read: Callable[[], str]) -> None:
        """Show the version seen last; one that is not a number is not shown.

        The version is read at each scrape, because it changes with every event. Of several
        informers of a resource only the first one shows it: a gauge that jumps between two
        caches would be useless for both (MT-09).
        """
        if not self._instruments.claim_once(f"last version of {self._resource}"):
            return
        last = 0

        def number() -> float:
            nonlocal last
            version = read()
            if version.isascii() and version.isdecimal():
                last = int(version[-_EXACT_DIGITS:])
            return last

        self._last_version.set_function(number)

    def pending(self, handler: str, read: Callable[[P], float]) -> Sum[P]:
        """Return the gauge that sums up the buffers of the handlers of a name.

        Args:
            handler: The name.
            read: Returns the number of pending notifications of a buffer.
        """
        labels = {"resource": self._resource, "handler": handler}
        return self._instruments.sum(*_PENDING, labels, read)

    def handler(self, name: str) -> HandlerMetrics:
        """Return the series of a handler."""
        labels = (self._resource, name)
        return HandlerMetrics(
            *labels,
            errors=self._handler_errors.labels(*labels),
            seconds=self._handler_seconds.labels(*labels),
        )

    def _gauge(self, name: str, documentation: str) -> Gauge:
        family = self._instruments.gauge(f"navarchos_informer_{name}", documentation, ("resource",))
        return family.labels(self._resource)

    def _counter(self, name: str, documentation: str) -> Counter:
        family = self._instruments.counter(
            f"navarchos_informer_{name}", documentation, ("resource",)
        )
        return family.labels(self._resource)

    def _histogram(self, name: str, documentation: str, buckets: tuple[float, ...]) -> Histogram:
        family = self._instruments.histogram(
            f"navarchos_informer_{name}", documentation, ("resource",), buckets=buckets
        )
        return family.labels(self._resource)
