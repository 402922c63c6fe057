"""The plugin's fixtures in virtual time, with an overridden `server_clock`."""

import pytest

from navarchos.client import Resource
from navarchos.clock import Clock
from navarchos.runtime import Builder, Reconciler, Request, Result
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.clock import FakeClock
from navarchos.testing.managers import StartManager

NODES: Resource[dict[str, object]] = Resource(
    "", "v1", "nodes", "Node", namespaced=False, type=dict
)
HOUR = 3600.0

# The check has a deadline every second for each cache.
pytestmark = pytest.mark.usefixtures("no_detector")


@pytest.fixture
def server_clock(fake_clock: FakeClock) -> Clock:
    return fake_clock


class Hourly(Reconciler):
    """Reconciles each node every hour."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self.looks: list[float] = []

    def reconcile(self, request: Request) -> Result:
        self.looks.append(self._clock.monotonic() - self._began)
        return Result(requeue_after=HOUR)


def test_a_controller_that_looks_every_hour_has_looked_when_the_hours_are_over(
    api_server: ApiServer, manager: StartManager, fake_clock: FakeClock
) -> None:
    hourly = Hourly(fake_clock)
    manager(lambda m: Builder(m, "hourly").for_(NODES).build(hourly))
    api_server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    fake_clock.advance(3 * HOUR)
    assert hourly.looks == [0.0, HOUR, 2 * HOUR, 3 * HOUR]


def test_objects_are_as_old_as_the_clock_says(api_server: ApiServer, fake_clock: FakeClock) -> None:
    fake_clock.advance(HOUR)
    api_server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    created = api_server.get("nodes", "node-1")["metadata"]["creationTimestamp"]
    assert created == "2026-01-01T01:00:00Z"
