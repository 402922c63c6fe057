"""Least privilege: the manager used all that it is granted, and nothing else.

Comes last (`conftest.py`): it reads the audit log of everything that ran before it.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cases.target import Target
from tests.e2e.rights import asked_by_admission, granted, refused, used

E2E = Path(__file__).parent
CASES = {
    *E2E.glob("test_operator_*.py"),
    *E2E.parent.joinpath("integration", "operator").glob("test_*.py"),
}


@pytest.fixture
def whole_suite(request: pytest.FixtureRequest, target: Target) -> None:
    """Skip where only a part of the cases ran, or nothing tells what they did.

    A part need not use everything. Whoever says `--all-rights` runs them all.
    """
    if target.audit is None:
        pytest.skip("the audit log of this cluster is not ours to read")
    ran = {item.path for item in request.session.items}
    options = request.config.option
    picked = options.keyword or options.markexpr or any("::" in arg for arg in request.config.args)
    if picked or not ran >= CASES:
        why = "only the whole suite uses every right"
        pytest.fail(why) if options.all_rights else pytest.skip(why)


@pytest.mark.rule("OP-62")
@pytest.mark.usefixtures("whole_suite", "account")
def test_the_rights_used_are_the_rights_granted(
    target: Target, older_log: Sequence[object]
) -> None:
    assert target.audit is not None
    events = [*target.audit(), *older_log]
    assert refused(events) == []
    rights = granted()
    asked = used(events, rights)
    assert sorted(asked - rights) == [], "used without being granted"
    assert sorted(rights - asked - asked_by_admission()) == [], "granted without being used"
