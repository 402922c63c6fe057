"""The metric families of informers, with their labels filled in."""

from typing import Final

from prometheus_client import Counter, Gauge

from navarchos.instrument import Instruments

__all__ = ["RELIST_REASONS", "InformerMetrics"]

RELIST_REASONS: Final = ("start", "expired", "failed", "short_watch", "catch_up")
"""Why a whole list was asked for: a closed set, so that every series exists at zero."""


class InformerMetrics:
    """What one informer reports. Informers of one resource share the series and add up."""

    def __init__(self, instruments: Instruments, resource: str) -> None:
        self._resource = resource
        self._relists = instruments.counter(
            "navarchos_informer_relists_total",
            "Whole lists asked of the server, by what made them necessary.",
            ("resource", "reason"),
        )
        self._pending = instruments.gauge(
            "navarchos_informer_pending_notifications",
            "Notifications that wait for a handler.",
            ("resource", "handler"),
        )
        self._handler_errors = instruments.counter(
            "navarchos_informer_handler_errors_total",
            "Notifications that a handler failed on.",
            ("resource", "handler"),
        )
        self.objects: Gauge = instruments.gauge(
            "navarchos_informer_objects", "Objects in the caches.", ("resource",)
        ).labels(resource)
        self.decode_failures: Counter = instruments.counter(
            "navarchos_informer_decode_failures_total",
            "Objects left out because they could not be read or transformed.",
            ("resource",),
        ).labels(resource)
        self._by_reason = {
            reason: self._relists.labels(resource, reason) for reason in RELIST_REASONS
        }

    def relist(self, reason: str) -> None:
        """Count a list; `reason` is one of `RELIST_REASONS`."""
        self._by_reason[reason].inc()

    def pending(self, handler: str) -> Gauge:
        """Return the gauge of a handler's buffer."""
        return self._pending.labels(self._resource, handler)

    def handler_errors(self, handler: str) -> Counter:
        """Return the counter of a handler's failures."""
        return self._handler_errors.labels(self._resource, handler)
