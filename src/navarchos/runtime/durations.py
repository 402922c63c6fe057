"""Durations in Go's notation: `5m`, `1h30m`, `15s`, `500ms`.

`durationpy`, which comes with the official client, differs from Go's flags: it accepts `1d`,
`5mm` and text between the parts, rounds to microseconds, and writes `1m` for `1m0s`.
"""

import re
from typing import Final

__all__ = ["format_duration", "parse_duration"]

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_HINT: Final = "write it like 5m, 1h30m, 15s or 500ms"


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration, which must not be negative.

    Raises:
        ValueError: The text is not a duration; the message shows the notation.
    """
    if text in {"0", "+0"}:
        return 0.0
    rest, seconds = text.removeprefix("+"), 0.0
    if not rest:
        raise ValueError(f"{text!r} is not a duration: {_HINT}")
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise ValueError(f"{text!r} is not a duration: {_HINT}")
        seconds += float(part[1]) * _UNITS[part[2]]
        rest = rest[part.end() :]
    return seconds


def format_duration(seconds: float) -> str:
    """Return seconds as Go's `Duration.String` writes them (`1h30m0s`, `1.5s`)."""
    if seconds == 0:
        return "0s"
    if seconds < 1:
        unit = next(unit for unit in ("ms", "us", "ns") if seconds >= _UNITS[unit] or unit == "ns")
        return f"{_number(seconds / _UNITS[unit])}{unit}"
    minutes, rest = divmod(seconds, 60.0)
    hours, minutes = divmod(int(minutes), 60)
    tail = f"{_number(rest)}s"
    if hours:
        return f"{hours}h{minutes}m{tail}"
    return f"{minutes}m{tail}" if minutes else tail


def _number(value: float) -> str:
    return f"{round(value, 9):.9f}".rstrip("0").rstrip(".")
