"""Measure the API server for tests: requests and events per second of processor time."""

import sys
from typing import Final

from benchmarks.contests import AT_LEAST, Outcome, Run, Target, contest
from benchmarks.processes import Subject
from benchmarks.sizes import Sizes

__all__ = ["apiserver"]

_GETS, _LISTED, _WATCHES, _EVENTS = 5_000, 10_000, 500, 20
_OURS: Final = "ApiServer and its clients"


def apiserver(sizes: Sizes) -> Outcome:
    """Get one object many times, list many objects, and deliver events to many watches."""
    figures = contest(sizes.slow_rounds, {_OURS: _serve})
    found = figures[_OURS]
    return Outcome(
        row="test-server",
        title="the API server for tests",
        sizes={"gets": _GETS, "listed": _LISTED, "watches": _WATCHES, "events": _EVENTS},
        figures=figures,
        targets=(
            Target("small gets", 2_000, found.median("gets_per_second"), "1/s", AT_LEAST),
            Target(f"list of {_LISTED:,} objects", 1.0, found.median("list_seconds"), "s"),
        ),
    )


def _serve() -> Run:
    numbers = map(str, (_GETS, _LISTED, _WATCHES, _EVENTS))
    with Subject((sys.executable, "-m", "benchmarks.subjects.api_server", *numbers)) as subject:
        got, listed = subject.report("got"), subject.report("listed")
        followed = subject.report("followed")
    return {
        "gets_per_second": _GETS / got["cpu"],
        "list_seconds": listed["cpu"],
        "events_per_second": _WATCHES * _EVENTS / followed["cpu"],
    }
