import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.runtime import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("15s", 15.0),
        ("500ms", 0.5),
        ("+2s", 2.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("1h1m1s1ms1us1ns", 3661.001001001),
        ("3µs", 3e-6),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "+", "5", "m", "5 m", "5mm", "-5s", "1h30", "1d", "٣s", ".s", "1e3s", "5m "]
)
def test_durations_that_go_refuses_are_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 5m, 1h30m, 15s or 500ms"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1.5, "1.5s"),
        (60, "1m0s"),
        (5400, "1h30m0s"),
        (3661.25, "1h1m1.25s"),
        (0.5, "500ms"),
        (0.0015, "1.5ms"),
        (2e-6, "2us"),
        (3e-9, "3ns"),
    ],
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 10**15))
def test_a_formatted_duration_can_be_parsed_again(nanoseconds: int) -> None:
    seconds = nanoseconds / 1e9
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=2e-9)
