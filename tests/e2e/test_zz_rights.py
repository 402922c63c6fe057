"""Least privilege: the manager used all that it is granted, and nothing else.

Comes last: it reads the audit log of everything that ran before it.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.e2e.rights import asked_by_admission, granted, refused, used
from tests.e2e.target import Target

CASES = {path.name for path in Path(__file__).parent.glob("test_operator_*.py")}


@pytest.fixture
def whole_suite(request: pytest.FixtureRequest) -> None:
    """Skip where only a part of the cases ran: that part need not use everything."""
    ran = {item.path.name for item in request.session.items}
    options = request.config.option
    picked = options.keyword or options.markexpr or any("::" in arg for arg in request.config.args)
    if picked or not ran >= CASES:
        pytest.skip("only the whole suite uses every right")


@pytest.mark.rule("OP-62")
@pytest.mark.usefixtures("whole_suite", "account")
def test_the_rights_used_are_the_rights_granted(
    target: Target, older_log: Sequence[object]
) -> None:
    if target.audit is None:
        pytest.skip("the audit log of this cluster is not ours to read")
    events = [*target.audit(), *older_log]
    assert refused(events) == []
    rights = granted()
    asked = used(events, rights)
    assert sorted(asked - rights) == [], "used without being granted"
    assert sorted(rights - asked - asked_by_admission()) == [], "granted without being used"
