"""Threads for tests of queues."""

from collections.abc import Callable, Iterator

import pytest

from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

Spawn = Callable[[Callable[[], object]], list[object]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Run a function on another thread; its result appears in a list."""
    group = ThreadGroup("test", stop=StopToken())

    def start(target: Callable[[], object]) -> list[object]:
        results: list[object] = []
        group.start("worker", lambda: results.append(target()))
        return results

    yield start
    assert group.join(10.0), f"still running: {group.running()}"
    group.raise_failure()
