from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from navarchos.cli.sandbox.observer import LogLine, NodeView, Snapshot
from navarchos.cli.sandbox.view import PlainView, choose_rows, render, style_of
from navarchos.cli.summary import remaining_time, summarize_rollout
from navarchos.meta import ObjectMeta
from navarchos.operator.api.v1alpha1 import (
    NodeRollout,
    NodeRolloutStatus,
    PlannedNode,
    RolloutPhase,
    Step,
)
from navarchos.testing import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str, step: Step | None = None, *, present: bool = True) -> NodeView:
    return NodeView(name, "worker", step, 10 if step else None, 3, cordoned=False, present=present)


def rollout(phase: RolloutPhase, left: float | None = None) -> NodeRollout:
    return NodeRollout(
        metadata=ObjectMeta(name="rollout-x"),
        status=NodeRolloutStatus(
            phase=phase,
            nodes=(PlannedNode("a", "1"), PlannedNode("b", "2")),
            replacements_completed_count=1,
            estimated_completion=None if left is None else NOW + timedelta(seconds=left),
        ),
    )


def snapshot(*nodes: NodeView, log_lines: tuple[LogLine, ...] = ()) -> Snapshot:
    return Snapshot(
        nodes=nodes,
        rollouts=(rollout(RolloutPhase.IN_PROGRESS, 42),),
        replacements=(),
        order=(),
        max_in_flight=0,
        log_lines=log_lines,
    )


def test_rows_show_nodes_in_flight_before_all_others() -> None:
    nodes = [
        node("done", Step.DONE),
        node("fresh"),
        node("next", Step.WAITING),
        node("busy", Step.DRAINING),
        node("bad", Step.FAILED),
    ]
    assert [n.name for n in choose_rows(nodes, 3)] == ["busy", "bad", "next"]


@pytest.mark.parametrize("step", Step)
def test_every_step_has_a_row_and_a_style(step: Step) -> None:
    assert choose_rows([node("a", step)], 1) == [node("a", step)]
    assert style_of(step)


def test_the_table_shows_nodes_steps_and_the_estimate() -> None:
    console = Console(width=100, record=True, force_terminal=False)
    nodes = (
        node("node-1", Step.DRAINING),
        node("node-2", Step.DONE, present=False),
        node("not-ours"),
    )
    console.print(render(snapshot(*nodes), rows=20, now=NOW))
    text = console.export_text()
    assert "new machine" not in text
    for part in ("rollout-x", "1/2", "InProgress", "42 s left", "Draining", "Done, replaced"):
        assert part in text


@pytest.mark.parametrize(
    ("phase", "left", "words"),
    [
        (RolloutPhase.IN_PROGRESS, 90, "about 90 s left"),
        (RolloutPhase.IN_PROGRESS, -5, "about 0 s left"),
        (RolloutPhase.IN_PROGRESS, None, "no estimate yet"),
        (RolloutPhase.COMPLETED, None, ""),
        (RolloutPhase.HALTED, 90, ""),
    ],
)
def test_the_estimate_is_shown_as_text(phase: RolloutPhase, left: float | None, words: str) -> None:
    assert remaining_time(summarize_rollout(rollout(phase, left), (), ()), NOW) == words


def test_without_a_terminal_each_change_is_a_line(fake_clock: FakeClock) -> None:
    lines: list[str] = []
    view = PlainView(lines.append, clock=fake_clock)
    fake_clock.advance(2.5)
    view.show(snapshot(log_lines=(LogLine("node-1: Draining"),)))
    view.show(snapshot())
    assert lines == ["   2.5s  node-1: Draining"]
