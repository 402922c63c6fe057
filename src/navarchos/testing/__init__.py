"""The kit for testing controllers: time, a server, a cluster, faults."""

from navarchos.testing.clock import FakeClock

__all__ = ["FakeClock"]
