"""The kit for testing controllers: time, a server, a cluster, faults."""

from navarchos.testing.clock import FakeClock
from navarchos.testing.recorder import FakeRecorder, RecordedEvent

__all__ = ["FakeClock", "FakeRecorder", "RecordedEvent"]
