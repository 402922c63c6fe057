"""What is told from outside: a real control plane, the real kubectl, the audit log."""

from pathlib import Path

import pytest
from tests.servers import REAL

from navarchos.testing.controlplane import AuditEvent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the test of the granted permissions last, when all of them were used."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path == here / "test_rights.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say at once what is missing: the cluster under test is never in this process here."""
    closure = getattr(item, "fixturenames", ())
    if "target" in closure and item.config.getoption("--server") != REAL:
        pytest.fail("this needs a real control plane: say pytest --server=real", pytrace=False)


@pytest.fixture(scope="session")
def older_log() -> list[AuditEvent]:
    """What the audit log of a control plane held that is stopped by now."""
    return []
