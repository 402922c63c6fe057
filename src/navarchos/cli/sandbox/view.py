"""Views of a run: a live table on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Protocol, Self, assert_never

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from navarchos.cli.sandbox.observer import NodeView, Snapshot
from navarchos.cli.summary import remaining_time, summarize_rollout, wave_line
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.operator.api.v1alpha1 import NodeRollout, RolloutPhase, Step

__all__ = ["LiveView", "PlainView", "SilentView", "View", "choose_rows", "render", "style_of"]

_FRAME: Final = 9  # lines around the rows: title, bar, estimate, header, borders


class View(Protocol):
    """Shows snapshots to the user."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, snapshot: Snapshot) -> None:
        """Show a new snapshot."""
        ...


class _Quiet:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class SilentView(_Quiet):
    """Shows nothing: for `-o json`, where standard output has only the result."""

    def show(self, snapshot: Snapshot) -> None:
        """Ignore the snapshot."""


class PlainView(_Quiet):
    """A line for each change, with the seconds since the start."""

    def __init__(self, write: Callable[[str], None], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._write = write
        self._clock = clock
        self._started = clock.monotonic()

    def show(self, snapshot: Snapshot) -> None:
        """Write the lines of the snapshot."""
        seconds = self._clock.monotonic() - self._started
        for notice in snapshot.log_lines:
            self._write(f"{seconds:6.1f}s  {notice.text}")


class LiveView:
    """A table of nodes, a progress bar and an estimate, redrawn in place."""

    def __init__(self, console: Console, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._console = console
        self._clock = clock
        self._live = Live(console=console, refresh_per_second=8, transient=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Redraw the table."""
        height = max(self._console.height - _FRAME, 5)
        self._live.update(render(snapshot, rows=height, now=self._clock.now()))


def render(snapshot: Snapshot, *, rows: int, now: datetime) -> RenderableType:
    """Draw a snapshot with at most `rows` nodes."""
    parts: list[RenderableType] = [
        _rollout_line(rollout, now)
        for rollout in sorted(snapshot.rollouts, key=lambda r: r.metadata.name)
    ]
    parts.append(_table(choose_rows(snapshot.nodes, rows), len(snapshot.nodes)))
    return Group(*parts)


def _rollout_line(rollout: NodeRollout, now: datetime) -> RenderableType:
    seen = summarize_rollout(rollout, (), ())
    grid = Table.grid(padding=(0, 1))
    grid.add_row(
        Text(seen.name, style="bold"),
        ProgressBar(total=max(seen.nodes, 1), completed=seen.completed, width=30),
        f"{seen.completed}/{seen.nodes}",
        Text(seen.phase, style="bold red" if seen.phase is RolloutPhase.HALTED else "bold"),
        remaining_time(seen, now),
        f"wave {wave_line(seen.wave, now)}" if seen.wave is not None else "",
    )
    return grid


def choose_rows(nodes: Iterable[NodeView], rows: int) -> list[NodeView]:
    """Choose the nodes to show: nodes in flight first, then failed and waiting nodes."""
    return sorted(nodes, key=_row_order)[:rows]


def _row_order(node: NodeView) -> tuple[int, int, str]:
    if node.step is None:
        return (3 if node.joined else 5, 0, node.name)
    return (_rank(node.step), -(node.priority or 0), node.name)


def _rank(step: Step) -> int:
    match step:
        case (
            Step.RESERVED
            | Step.PREPARING
            | Step.CORDONED
            | Step.DRAINING
            | Step.ACTING
            | Step.TERMINATING
            | Step.AWAITING_REPLACEMENT
            | Step.VERIFYING
            | Step.RETURNING
            | Step.RELEASING
        ):
            return 0
        case Step.FAILED:
            return 1
        case Step.WAITING:
            return 2
        case Step.DONE | Step.CANCELLED:
            return 4
        case _:
            assert_never(step)


def style_of(step: Step) -> str:
    """Return the rich style of a step."""
    match step:
        case Step.WAITING | Step.CANCELLED:
            style = "dim"
        case Step.RESERVED | Step.PREPARING | Step.CORDONED:
            style = "cyan"
        case Step.DRAINING:
            style = "yellow"
        case Step.ACTING | Step.TERMINATING | Step.AWAITING_REPLACEMENT:
            style = "blue"
        case Step.VERIFYING | Step.RETURNING:
            style = "cyan"
        case Step.RELEASING:
            style = "magenta"
        case Step.DONE:
            style = "green"
        case Step.FAILED:
            style = "bold red"
        case _:
            assert_never(step)
    return style


def _table(nodes: list[NodeView], total: int) -> Table:
    caption = f"{len(nodes)} of {total} nodes" if len(nodes) < total else None
    table = Table(caption=caption, expand=False)
    for column in ("NODE", "ROLE", "PRIORITY", "STEP"):
        table.add_column(column)
    table.add_column("PODS", justify="right")
    for node in nodes:
        table.add_row(
            node.name,
            node.role,
            "" if node.priority is None else str(node.priority),
            _step_text(node),
            str(node.pods) if node.present else "",
        )
    return table


def _step_text(node: NodeView) -> Text:
    if node.step is None:
        return Text("new machine" if node.joined else "", style="blue")
    if node.step is Step.DONE and not node.present:
        return Text("Done, replaced", style="green")
    return Text(node.step, style=style_of(node.step))
