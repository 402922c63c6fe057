"""`navarchos status`: the progress of rollouts and drains, and what blocks them."""

import sys
from datetime import UTC, datetime
from typing import Final, assert_never

import click
import msgspec
from msgspec.structs import replace

from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.cli.follower import (
    CHECK_INTERVAL,
    Follower,
    Freshness,
    leader_warning,
    open_follower,
    read,
)
from navarchos.cli.options import TargetCluster, cluster_options, output_option
from navarchos.cli.summary import Summary, summarize, summary_lines
from navarchos.operator.api.v1alpha1 import RolloutPhase

__all__ = ["status"]

_CLEAR: Final = "\033[H\033[J"
"""Move to the upper left corner and clear the terminal below it."""


@click.command()
@click.argument("name", required=False, default="")
@click.option("--watch", "-w", is_flag=True, help="Show every change until the rollout has ended.")
@output_option
@cluster_options
def status(*, name: str, watch: bool, as_json: bool, cluster: TargetCluster) -> int:
    """Show progress, blocked pods and next actions.

    With NAME it shows that rollout, otherwise all rollouts and the drains that belong to
    no rollout. With NAME and --watch it ends with the rollout: it exits with 0 if the
    rollout is Completed, with 1 if it is Halted. With --watch alone it ends on Ctrl-C.

    A last line says when the output may be out of date, because the connection is lost
    or no manager is active.
    """
    printer = _Printer(as_json=as_json, redraws=watch and sys.stdout.isatty())
    with cluster.connect() as client:
        # Read before the watches start, so that a missing object is reported in one line.
        summary = replace(read(client, name), out_of_date_because=leader_warning(client))
        printer.show(summary)
        if not watch:
            return ExitStatus.OK
        with open_follower(client) as follower:
            return _watch(follower, Freshness(client, follower), name, printer)


def _watch(follower: Follower, freshness: Freshness, name: str, printer: "_Printer") -> int:
    ended: list[ExitStatus] = []

    def has_ended() -> bool:
        rollouts = [r for r in follower.rollouts if name in {"", r.metadata.name}]
        because = freshness.out_of_date_because()
        if name and not rollouts:
            raise CommandError(f"rollout {name} was deleted", status=ExitStatus.NOT_FOUND)
        seen = summarize(rollouts, follower.replacements, follower.drains)
        drains = () if name else seen.drains
        printer.show(Summary(rollouts=seen.rollouts, drains=drains, out_of_date_because=because))
        match seen.rollouts[0].phase if name else None:
            case RolloutPhase.COMPLETED:
                ended.append(ExitStatus.OK)
            case RolloutPhase.HALTED:
                ended.append(ExitStatus.FAILED)
            case RolloutPhase.NEW | RolloutPhase.IN_PROGRESS | None:
                pass
            case phase:
                assert_never(phase)
        return bool(ended)

    follower.wait_until(has_ended, every=CHECK_INTERVAL)
    return ended[0]


class _Printer:
    """Prints a summary if it differs from the previous one."""

    def __init__(self, *, as_json: bool, redraws: bool) -> None:
        self._as_json = as_json
        self._redraws = redraws
        self._last: Summary | None = None

    def show(self, summary: Summary) -> None:
        if summary == self._last:
            return
        self._last = summary
        if self._as_json:
            click.echo(msgspec.json.encode(summary))
            return
        text = "\n".join(summary_lines(summary, datetime.now(UTC)))
        click.echo(f"{_CLEAR}{text}" if self._redraws else text)
