"""Reasons: closed sets whose tables are complete."""

import pytest

from navarchos.operator.reasons import WaitReason


@pytest.mark.parametrize("reason", WaitReason)
def test_every_wait_reason_has_a_message_and_a_delay(reason: WaitReason) -> None:
    assert reason.message
    assert reason.report_delay >= 0.0


def test_messages_of_wait_reasons_are_all_different() -> None:
    assert len({reason.message for reason in WaitReason}) == len(WaitReason)
