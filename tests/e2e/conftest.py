"""End-to-end tests: on a real control plane, with the real kubectl and the audit log."""

from pathlib import Path

import pytest
from tests.servers import REAL

from navarchos.testing.controlplane import AuditEvent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the test of the granted permissions last, when all of them were used."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path == here / "test_permissions.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail early if the cluster under test is in this process."""
    closure = getattr(item, "fixturenames", ())
    if "target" in closure and item.config.getoption("--server") != REAL:
        pytest.fail(
            "this test requires a real control plane: run pytest --server=real", pytrace=False
        )


@pytest.fixture(scope="session")
def older_log() -> list[AuditEvent]:
    """The audit events of control planes that have been stopped."""
    return []
