"""Metrics of controllers, under controller-runtime's names (MT-02 to MT-05)."""

from typing import Final

from navarchos.instrument import Instruments

__all__ = ["ControllerMetrics"]

_LABELS: Final = ("controller",)
_RESULTS: Final = ("success", "error", "requeue", "requeue_after")
_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    *(6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)


class ControllerMetrics:
    """The series of one controller; all exist with value 0 from the start."""

    def __init__(self, instruments: Instruments, controller: str) -> None:
        total = instruments.counter(
            "controller_runtime_reconcile_total",
            "Reconciles, by how they ended",
            (*_LABELS, "result"),
        )
        self.results: Final = {result: total.labels(controller, result) for result in _RESULTS}
        self.errors: Final = instruments.counter(
            "controller_runtime_reconcile_errors_total", "Reconciles that failed", _LABELS
        ).labels(controller)
        self.terminal_errors: Final = instruments.counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Reconciles that failed for good",
            _LABELS,
        ).labels(controller)
        self.panics: Final = instruments.counter(
            "controller_runtime_reconcile_panics_total",
            "Reconciles that raised what is no error of ours or of the client",
            _LABELS,
        ).labels(controller)
        self.timeouts: Final = instruments.counter(
            "controller_runtime_reconcile_timeouts_total",
            "Reconciles that took longer than the controller allows",
            _LABELS,
        ).labels(controller)
        self.seconds: Final = instruments.histogram(
            "controller_runtime_reconcile_time_seconds",
            "Seconds per reconcile",
            _LABELS,
            buckets=_BUCKETS,
        ).labels(controller)
        self.max_concurrent: Final = instruments.gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers", _LABELS
        ).labels(controller)
        self.active_workers: Final = instruments.gauge(
            "controller_runtime_active_workers", "Workers that reconcile now", _LABELS
        ).labels(controller)
