"""`navarchos status`: how far rollouts are, and what keeps them."""

import sys
from datetime import UTC, datetime
from typing import Final

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
"""To the upper left corner, and nothing below it: a terminal is drawn over."""


@click.command()
@click.argument("name", required=False, default="")
@click.option("--watch", "-w", is_flag=True, help="Show every change until the rollout has ended.")
@output_option
@cluster_options
def status(*, name: str, watch: bool, as_json: bool, cluster: TargetCluster) -> int:
    """Show rollouts: phase, progress, nodes in flight, what blocks and what helps.

    With a NAME that rollout, otherwise all, and drains made by hand.
    With --watch and a NAME it ends with the rollout: 0 when that is Completed, 1
    when it is Halted. Without a NAME it ends with Ctrl-C. It says when what it shows may be
    out of date: the connection is lost, or no manager is at work.
    """
    show = _Shown(as_json=as_json, over=watch and sys.stdout.isatty())
    with cluster.connect() as client:
        # Asked first, so that what is missing is said in one line and no watch begins.
        show.show(replace(read(client, name), out_of_date_because=leader_warning(client)))
        if not watch:
            return ExitStatus.OK
        with open_follower(client) as follower:
            return _watch(follower, Freshness(client, follower), name, show)


def _watch(follower: Follower, freshness: Freshness, name: str, show: "_Shown") -> int:
    ended: list[ExitStatus] = []

    def look() -> bool:
        rollouts = [r for r in follower.rollouts if name in {"", r.metadata.name}]
        out_of_date_because = freshness.out_of_date_because()
        if name and not rollouts:
            raise CommandError(f"rollout {name} has been deleted", status=ExitStatus.NOT_FOUND)
        seen = summarize(rollouts, follower.replacements, follower.drains)
        drains = () if name else seen.drains
        show.show(
            Summary(rollouts=seen.rollouts, drains=drains, out_of_date_because=out_of_date_because)
        )
        match seen.rollouts[0].phase if name else None:
            case RolloutPhase.COMPLETED:
                ended.append(ExitStatus.OK)
            case RolloutPhase.HALTED:
                ended.append(ExitStatus.FAILED)
            case _:
                pass
        return bool(ended)

    follower.wait_until(look, every=CHECK_INTERVAL)
    return ended[0]


class _Shown:
    """Writes a summary when it differs from the one before."""

    def __init__(self, *, as_json: bool, over: bool) -> None:
        self._as_json = as_json
        self._over = over
        self._last: Summary | None = None

    def show(self, summary: Summary) -> None:
        if summary == self._last:
            return
        self._last = summary
        if self._as_json:
            click.echo(msgspec.json.encode(summary))
            return
        text = "\n".join(summary_lines(summary, datetime.now(UTC)))
        click.echo(f"{_CLEAR}{text}" if self._over else text)
