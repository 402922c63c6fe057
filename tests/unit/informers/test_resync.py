from typing import Any

import pytest
import structlog

from navarchos.informers import FilteringHandler, Tombstone
from navarchos.informers.processor import ResyncTimer, clamp_period


@pytest.mark.rule("SI-17")
def test_a_late_check_puts_the_next_time_off_instead_of_catching_up() -> None:
    timer = ResyncTimer(10, now=0)
    assert timer.check(25)
    assert [now for now in range(26, 60) if timer.check(now)] == [35, 45, 55]


@pytest.mark.rule("SI-17")
@pytest.mark.parametrize(
    ("wanted", "check_period", "given", "warned"),
    [(30, 10, 30, False), (5, 10, 10, True), (5, 0, 0, True), (0, 10, 0, False)],
)
def test_a_period_is_no_shorter_than_the_check_and_whoever_gets_another_is_told(
    wanted: float, check_period: float, given: float, warned: bool
) -> None:
    with structlog.testing.capture_logs() as logs:
        assert clamp_period(wanted, check_period, handler="mine") == given
    assert [line["handler"] for line in logs] == ["mine"] * warned


@pytest.mark.rule("SI-08")
def test_a_filter_lets_the_end_of_what_nobody_knows_pass(recorder: Any) -> None:
    handler = FilteringHandler(recorder, passes=lambda obj: False)
    handler.on_delete(Tombstone("ns/a"))
    assert recorder.take() == [("gone", "ns/a")]
