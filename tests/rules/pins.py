"""Collect the pins of tests: markers of functions, classes, modules and parameters."""

import pytest

__all__ = ["Pins"]


class Pins:
    """A pytest plugin that records which collected tests pin which rule.

    Pins of tests that are skipped or expected to fail do not count, because such tests prove
    nothing.
    Errors of the collection are recorded too, because pins are then missing.
    """

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = {}
        self.errors: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if item.get_closest_marker("skip") or item.get_closest_marker("xfail"):
                continue
            for marker in item.iter_markers("rule"):
                for rule in marker.args:
                    self.tests.setdefault(rule, []).append(item.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid} cannot be collected: {report.longreprtext}")
