"""Least privilege: the manager used every granted permission, and no other.

This test runs last (`conftest.py`), because it reads the audit log of all other tests.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cases.target import Target
from tests.e2e.permissions import (
    asked_by_admission,
    granted,
    of_systems,
    refused,
    requested,
    used,
)

from navarchos.testing.controlplane import AuditEvent

E2E = Path(__file__).parent
CASES = {
    *E2E.glob("test_operator_*.py"),
    *E2E.parent.joinpath("integration", "operator").glob("test_*.py"),
}


@pytest.fixture
def whole_suite(request: pytest.FixtureRequest, target: Target) -> None:
    """Skip if only a part of the cases ran, or the audit log cannot be read.

    A part of the cases may not use every permission. `--all-permissions` requires all cases.
    """
    if target.audit is None:
        pytest.skip("the audit log of this cluster cannot be read")
    ran = {item.path for item in request.session.items}
    options = request.config.option
    picked = options.keyword or options.markexpr or any("::" in arg for arg in request.config.args)
    if picked or not ran >= CASES:
        why = "only the whole suite uses every permission"
        pytest.fail(why) if options.all_permissions else pytest.skip(why)


@pytest.mark.rule("OP-62")
@pytest.mark.usefixtures("whole_suite", "account")
def test_the_used_permissions_are_the_granted_permissions(
    target: Target, older_log: Sequence[AuditEvent]
) -> None:
    assert target.audit is not None
    events = [*target.audit(), *older_log]
    assert refused(events) == []
    permissions = granted()
    requested = used(events, permissions)
    assert sorted(requested - permissions) == [], "used but not granted"
    unused = permissions - requested - asked_by_admission()
    assert sorted(unused) == [], "granted but not used"


@pytest.mark.rule("NP-50")
@pytest.mark.usefixtures("whole_suite", "account")
def test_each_system_uses_its_permissions(target: Target, older_log: Sequence[AuditEvent]) -> None:
    assert target.audit is not None
    unused = of_systems() - requested([*target.audit(), *older_log])
    assert sorted(unused) == [], "granted but not used"
