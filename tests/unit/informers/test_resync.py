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
def test_a_period_is_not_shorter_than_the_check_and_a_change_is_logged(
    wanted: float, check_period: float, given: float, warned: bool
) -> None:
    with structlog.testing.capture_logs() as logs:
        assert clamp_period(wanted, check_period, handler="mine") == given
    assert [line["handler"] for line in logs] == ["mine"] * warned


@pytest.mark.rule("SI-08")
def test_a_filter_passes_on_a_tombstone_without_an_object(recorder: Any) -> None:
    handler = FilteringHandler(recorder, passes=lambda obj: False)
    handler.on_delete(Tombstone("ns/a"))
    assert recorder.take() == [("gone", "ns/a")]
