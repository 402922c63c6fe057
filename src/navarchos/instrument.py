"""Metrics without globals: families are created once per registry and shared.

A component gets `Instruments` and requests the families that it needs. Components that
request the same family get the same object, so the controllers, queues and informers of
one process share families and differ in labels. Nothing is registered at import, or in the
default registry of prometheus_client.
"""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from navarchos.errors import ConfigError

__all__ = ["Instruments", "Sum"]

M = TypeVar("M", bound=MetricWrapperBase)
P = TypeVar("P")


class Sum(Generic[P]):
    """A gauge that is computed as a sum over its parts at each scrape.

    For values that change often. A part without other references no longer counts.

    Threads: safe from any thread.
    """

    def __init__(self, gauge: Gauge, read: Callable[[P], float]) -> None:
        self._read = read
        self._parts_lock = threading.Lock()
        self._parts: weakref.WeakSet[Any] = weakref.WeakSet()  # guarded by _parts_lock
        gauge.set_function(self._total)

    def add(self, part: P) -> None:
        """Add a part to the sum."""
        with self._parts_lock:
            self._parts.add(part)

    def _total(self) -> float:
        with self._parts_lock:
            parts = list(self._parts)
        return sum(self._read(part) for part in parts)


class Instruments:
    """Metric families of one registry.

    Args:
        registry: The registry of the families; a private one by default, so that a
            component without metrics needs no special case.
        detailed: Whether components register additional metrics: the sizes and durations
            of requests (MT-08).

    Threads: safe from any thread. Look up families and labelled children once and keep
    them, because the look-up takes a lock.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, detailed: bool = False
    ) -> None:
        self.detailed = detailed
        self.registry = registry if registry is not None else CollectorRegistry()
        self._families_lock = threading.Lock()
        self._families: dict[str, MetricWrapperBase] = {}  # guarded by _families_lock
        self._sums: dict[tuple[str, ...], Sum[Any]] = {}  # guarded by _families_lock
        self._claimed: set[str] = set()  # guarded by _families_lock

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        """Return the counter `name`; the name must end with `_total`."""
        return self._family(Counter, name, documentation, labels, {})

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge `name`."""
        return self._family(Gauge, name, documentation, labels, {})

    def histogram(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> Histogram:
        """Return the histogram `name`; the buckets are upper bounds in base units."""
        return self._family(Histogram, name, documentation, labels, {"buckets": tuple(buckets)})

    def sum(
        self, name: str, documentation: str, labels: Mapping[str, str], read: Callable[[P], float]
    ) -> Sum[P]:
        """Return the gauge `name` with these labels as a sum of `read(part)`.

        All callers get the same object; the `read` of the first call is used.
        """
        gauge = self.gauge(name, documentation, tuple(labels))
        key = (name, *labels.values())
        with self._families_lock:
            if key not in self._sums:
                self._sums[key] = Sum(gauge.labels(*labels.values()), read)
            return self._sums[key]

    def claim_once(self, what: str) -> bool:
        """Return True for the first call with `what`, for metrics with only one owner."""
        with self._families_lock:
            if what in self._claimed:
                return False
            self._claimed.add(what)
            return True

    def _family(
        self,
        kind: type[M],
        name: str,
        documentation: str,
        labels: Sequence[str],
        options: dict[str, object],
    ) -> M:
        with self._families_lock:
            family = self._families.get(name)
            if family is None:
                family = kind(name, documentation, tuple(labels), registry=self.registry, **options)  # type: ignore[arg-type]  # options differ by kind
                self._families[name] = family
        if not isinstance(family, kind):
            raise ConfigError(
                "metric", name, f"a {type(family).__name__.lower()} has this name already"
            )
        known = family._labelnames  # noqa: SLF001 - no public accessor exists
        if known != tuple(labels):
            raise ConfigError("labels", tuple(labels), f"the labels of {name} are {known}")
        return family
