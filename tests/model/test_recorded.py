"""A rollout without the later fields sends what it sent before these fields existed."""

import pytest
from tests.model.programs import play


@pytest.mark.rule("NP-06")
def test_a_rollout_without_later_fields_sends_the_recorded_requests() -> None:
    status, said = play("--compare")
    assert status == 0, said
