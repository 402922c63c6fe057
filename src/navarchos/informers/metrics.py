"""The metric families of informers, with their labels filled in."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from prometheus_client import Counter, Gauge, Histogram

from navarchos.instrument import Instruments, Sum

__all__ = ["RELIST_REASONS", "InformerMetrics"]

P = TypeVar("P")

RELIST_REASONS: Final = ("start", "expired", "failed", "short_watch", "catch_up")
"""Why a whole list was asked for: a closed set, so that every series exists at zero."""

_LIST_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120)
_WATCH_SECONDS: Final = (1, 10, 60, 150, 300, 450, 600)
_HANDLER_SECONDS: Final = (0.0001, 0.001, 0.01, 0.1, 1, 10, 60)
_EXACT_DIGITS: Final = 15
"""Decimal digits that a sample, a double, keeps; of a version the last ones change."""

_PENDING: Final = (
    "navarchos_informer_pending_notifications",
    "Notifications that wait for a handler, or that it is being told.",
)

_ITEMS: Final = (1, 10, 100, 1_000, 10_000, 100_000)


class InformerMetrics:
    """What one informer reports. Informers of one resource share the series and add up."""

    def __init__(self, instruments: Instruments, resource: str) -> None:
        self._instruments = instruments
        self._resource = resource
        self._relists = instruments.counter(
            "navarchos_informer_relists_total",
            "Whole lists asked of the server, by what made them necessary.",
            ("resource", "reason"),
        )
        instruments.gauge(*_PENDING, ("resource", "handler"))
        self._handler_errors = instruments.counter(
            "navarchos_informer_handler_errors_total",
            "Notifications that a handler failed on.",
            ("resource", "handler"),
        )
        self._handler_seconds = instruments.histogram(
            "navarchos_informer_handler_duration_seconds",
            "How long handlers took for a notification.",
            ("resource", "handler"),
            buckets=_HANDLER_SECONDS,
        )
        self.objects: Gauge = instruments.gauge(
            "navarchos_informer_objects", "Objects in the caches.", ("resource",)
        ).labels(resource)
        self.decode_failures: Counter = instruments.counter(
            "navarchos_informer_decode_failures_total",
            "Objects left out because they could not be read, transformed or indexed.",
            ("resource",),
        ).labels(resource)
        self.skipped: Gauge = instruments.gauge(
            "navarchos_informer_objects_skipped",
            "Objects whose present state the caches do not have, since it was left out.",
            ("resource",),
        ).labels(resource)
        self._list_seconds = self._histogram(
            instruments, "list_duration_seconds", "How long whole lists took.", _LIST_SECONDS
        )
        self._list_items = self._histogram(
            instruments, "list_items", "How many objects whole lists had.", _ITEMS
        )
        self.watches: Counter = instruments.counter(
            "navarchos_informer_watches_total", "Watches opened.", ("resource",)
        ).labels(resource)
        self.short_watches: Counter = instruments.counter(
            "navarchos_informer_short_watches_total",
            "Watches that ended at once without an event.",
            ("resource",),
        ).labels(resource)
        self._watch_seconds = self._histogram(
            instruments, "watch_duration_seconds", "How long watches lasted.", _WATCH_SECONDS
        )
        self._watch_items = self._histogram(
            instruments, "watch_items", "How many events watches had.", _ITEMS
        )
        self._last_version = instruments.gauge(
            "navarchos_informer_last_resource_version",
            "The resourceVersion seen last, where it is a number; its last 15 digits.",
            ("resource",),
        ).labels(resource)
        self._version = ""
        self._last_number = 0
        self._shows_version = instruments.claim_once(f"last version of {resource}")
        if self._shows_version:
            # Computed when somebody scrapes: it changes with every event.
            self._last_version.set_function(self._version_number)
        self.stale: Gauge = instruments.gauge(
            "navarchos_informer_disconnected",
            "Caches whose watch is lost at present.",
            ("resource",),
        ).labels(resource)
        self._by_reason = {
            reason: self._relists.labels(resource, reason) for reason in RELIST_REASONS
        }

    def relist(self, reason: str) -> None:
        """Count a list; `reason` is one of `RELIST_REASONS`."""
        self._by_reason[reason].inc()

    def listed(self, seconds: float, items: int) -> None:
        """Report a whole list that is in the store, streamed or not (RF-31)."""
        self._list_seconds.observe(seconds)
        self._list_items.observe(items)

    def watched(self, seconds: float, events: int) -> None:
        """Report a watch that has ended."""
        self._watch_seconds.observe(seconds)
        self._watch_items.observe(events)

    def seen(self, version: str) -> None:
        """Report the version seen last; one that is no number says nothing here.

        Of several informers of a resource the first one reports: a gauge that jumps
        between two caches would tell of neither (MT-09).
        """
        self._version = version

    def _version_number(self) -> float:
        version = self._version
        if version.isascii() and version.isdecimal():
            self._last_number = int(version[-_EXACT_DIGITS:])
        return self._last_number

    def pending(self, handler: str, read: Callable[[P], float]) -> Sum[P]:
        """Return the gauge of the buffers of handlers of this name.

        Args:
            handler: The name.
            read: Returns how much of a buffer is pending.
        """
        labels = {"resource": self._resource, "handler": handler}
        return self._instruments.sum(*_PENDING, labels, read)

    def handler_errors(self, handler: str) -> Counter:
        """Return the counter of a handler's failures."""
        return self._handler_errors.labels(self._resource, handler)

    def handler_seconds(self, handler: str) -> Histogram:
        """Return the durations of a handler."""
        return self._handler_seconds.labels(self._resource, handler)

    def _histogram(
        self, instruments: Instruments, what: str, about: str, buckets: Sequence[float]
    ) -> Histogram:
        name = f"navarchos_informer_{what}"
        return instruments.histogram(name, about, ("resource",), buckets=buckets).labels(
            self._resource
        )
