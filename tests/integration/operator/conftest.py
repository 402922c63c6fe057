"""Selects cases: all of them on a real server, only the quick ones in `make test`."""

from pathlib import Path

import pytest
from tests.servers import IN_PROCESS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long cases on the server in this process, unless a marker selects them."""
    if config.getoption("--server") != IN_PROCESS or config.option.markexpr:
        return
    here = Path(__file__).parent
    left_out = [
        item
        for item in items
        if item.path.is_relative_to(here) and item.get_closest_marker("long") is not None
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
