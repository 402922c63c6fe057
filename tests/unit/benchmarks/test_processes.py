"""Measured programs report stages; a failing program is described."""

import sys

import pytest
from benchmarks.processes import Subject, SubjectFailed

TWO_STAGES = """
from benchmarks.subjects.reporting import Reporter
reporter = Reporter()
reporter.begin()
sum(range(300_000))
reporter.end("summed", total=7)
while (order := reporter.order()) is not None:
    reporter.begin()
    reporter.end("ordered", order=order)
"""


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_program_reports_its_stages_and_follows_orders() -> None:
    with Subject(program(TWO_STAGES)) as subject:
        summed = subject.report("summed")
        subject.order("17")
        ordered = subject.report("ordered")
    assert summed["total"] == 7
    assert 0 < summed["cpu"] <= summed["cpu_process"]
    assert 0 < summed["resident"] <= summed["peak"]
    assert ordered["order"] == "17"


def test_the_error_for_a_failing_program_contains_its_output() -> None:
    failing = program("raise SystemExit('no such server')")
    with pytest.raises(SubjectFailed, match="no such server") as failed, Subject(failing) as run:
        run.report("synced")
    assert "ended with 1 before 'synced'" in failed.value.why


def test_a_program_that_is_silent_for_too_long_is_killed() -> None:
    silent = Subject(program("import sys; sys.stdin.read()"), timeout=0.2)
    with pytest.raises(SubjectFailed, match="ended with -9 before 'synced'"), silent as run:
        run.report("synced")


def test_an_unexpected_stage_is_an_error() -> None:
    with (
        pytest.raises(SubjectFailed, match="is at 'summed' instead of 'synced'"),
        Subject(program(TWO_STAGES)) as subject,
    ):
        subject.report("synced")
