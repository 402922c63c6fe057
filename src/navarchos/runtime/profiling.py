"""What the threads of this process do: pages for somebody who looks for lost time (MG-17)."""

import math
import sys
import threading
import traceback
from collections import Counter
from types import FrameType
from typing import Final

from navarchos.clock import Clock
from navarchos.runtime.httpserver import Answer, Query
from navarchos.stopping import StopToken

__all__ = ["Profiling"]

_INDEX: Final = """\
/debug/threads              stacks of all threads
/debug/profile?seconds=10   where they are, a hundred times a second, as folded stacks:
                            what flamegraph.pl, speedscope and inferno read
"""
_SECONDS: Final = 10.0
_LONGEST: Final = 60.0
_PERIOD: Final = 0.01


class Profiling:
    """The counterpart of controller-runtime's pprof server, without its binary formats.

    Stacks name files, lines and functions, never values. A profile counts where threads
    are, waiting included: Python cannot tell one from the other.

    Threads: safe from any thread. One profile at a time; a second is answered with 409.

    Args:
        stop: Ends a profile that is being taken; it is answered with what it has.
        clock: Time and waiting.
    """

    def __init__(self, stop: StopToken, clock: Clock) -> None:
        self._stop = stop
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def route(self, path: str, query: Query) -> Answer:
        """Answer a request."""
        if path == "/debug/threads":
            return Answer.text(200, _threads())
        if path == "/debug/profile":
            return self._profile(query)
        return Answer.text(404 if path.strip("/") not in {"", "debug"} else 200, _INDEX)

    def _profile(self, query: Query) -> Answer:
        text = query.get("seconds", [str(_SECONDS)])[-1]
        seconds = _number(text)
        if not 0 < seconds <= _LONGEST:
            return Answer.text(400, f"seconds={text}: a number up to {_LONGEST:g}\n")
        if not self._one_at_a_time.acquire(blocking=False):
            return Answer.text(409, "a profile is being taken\n")
        try:
            return Answer.text(200, self._sample(seconds))
        finally:
            self._one_at_a_time.release()

    def _sample(self, seconds: float) -> str:
        found: Counter[str] = Counter()
        until = self._clock.monotonic() + seconds
        while self._clock.monotonic() < until and not self._stop.wait(_PERIOD):
            found.update(";".join(_folded(name, frame)) for name, frame in _frames())
        return "".join(f"{stack} {count}\n" for stack, count in sorted(found.items()))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _frames() -> list[tuple[str, FrameType]]:
    """Return name and innermost frame of all threads but this."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    mine = threading.get_ident()
    return sorted(
        (
            (names.get(ident, str(ident)), frame)
            for ident, frame in sys._current_frames().items()  # noqa: SLF001 - documented, in spite of its name
            if ident != mine
        ),
        key=lambda entry: entry[0],
    )


def _threads() -> str:
    return "\n".join(
        f"{name}\n{''.join(traceback.format_stack(frame))}" for name, frame in _frames()
    )


def _folded(name: str, frame: FrameType | None) -> list[str]:
    """Return the thread, then its functions from the outermost on."""
    found: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        found.append(f"{module}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return [name.replace(";", ","), *reversed(found)]
