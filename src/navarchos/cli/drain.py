"""`navarchos drain`: one node, by hand."""

from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from navarchos.cli.cluster import Cluster, cluster_options, output_option
from navarchos.cli.exits import ExitStatus
from navarchos.cli.failure import Failure
from navarchos.cli.options import DURATION
from navarchos.cli.progress.following import Follower, following
from navarchos.cli.progress.freshness import EVERY, Freshness, Notice
from navarchos.cli.progress.summary import DrainSummary, summarize_drain
from navarchos.cli.progress.text import drain_lines
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, DrainPhase, NodeDrain
from navarchos.operator.nodes import NODES

__all__ = ["drain"]

_TAKEN_UP: Final = 10.0
"""Seconds after which a drain that nobody has looked at is worth a word."""


@click.command()
@click.argument("node")
@click.option("--force", is_flag=True, help="Also remove pods that no controller brings back.")
@click.option(
    "--timeout",
    type=DURATION,
    default="15m",
    show_default=True,
    help="Longest drain, counted from the first eviction; 0s is no limit.",
)
@click.option(
    "--hold", is_flag=True, help="When the time is up keep trying, instead of giving the drain up."
)
@click.option(
    "--grace-period",
    type=click.IntRange(min=-1),
    default=-1,
    show_default=True,
    help="Seconds that pods get to end; -1 is the pod's own.",
)
@output_option
@cluster_options
def drain(
    *,
    node: str,
    force: bool,
    timeout: float,
    hold: bool,
    grace_period: int,
    as_json: bool,
    cluster: Cluster,
) -> int:
    """Cordon NODE and empty it with a NodeDrain, wait, and report.

    Exits 0 when the node is empty, 1 when the drain failed. Ctrl-C ends the waiting and
    not the drain: that lives in the cluster, and goes on. Deleting the NodeDrain ends
    it and gives the node back. It says when what it shows may be out of date.
    """
    with cluster.connect() as client:
        uid = client.resource(NODES).get(node).metadata.uid
        spec = {
            "nodeName": node,
            "nodeUID": uid,
            "force": force,
            "timeoutSeconds": round(timeout),
            "onTimeout": "Hold" if hold else "Fail",
            "gracePeriodSeconds": grace_period,
        }
        made = client.resource(NODE_DRAINS).create(
            {"metadata": {"generateName": f"{node}-"}, "spec": spec}
        )
        try:
            with following(client) as follower:
                notice = Notice(
                    Freshness(client, follower), lambda text: click.echo(text, err=True)
                )
                ended = _follow(follower, notice, made, as_json=as_json)
        except KeyboardInterrupt:
            click.echo(_left_running(made.metadata.name), err=True)
            return ExitStatus.INTERRUPTED
    return ExitStatus.OK if ended.phase is DrainPhase.COMPLETED else ExitStatus.NO


def _follow(follower: Follower, notice: Notice, made: NodeDrain, *, as_json: bool) -> DrainSummary:
    last: list[DrainSummary] = []

    def look() -> bool:
        notice.look()
        seen = summarize_drain(_find(follower, made))
        if seen not in last[-1:]:
            last.append(seen)
            _tell(seen, as_json=as_json)
        return seen.phase in {DrainPhase.COMPLETED, DrainPhase.FAILED}

    def taken_up() -> bool:
        return look() or _find(follower, made).status.phase is not None

    if not follower.wait_until(taken_up, _TAKEN_UP):
        click.echo("nobody has taken it up yet: is navarchos manager running?", err=True)
    follower.wait_until(look, every=EVERY)
    return last[-1]


def _find(follower: Follower, made: NodeDrain) -> NodeDrain:
    for each in follower.drains:
        if each.metadata.uid == made.metadata.uid:
            return each
    raise Failure(f"drain {made.metadata.name} has been deleted", status=ExitStatus.NOT_FOUND)


def _tell(seen: DrainSummary, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(seen))
    else:
        click.echo("\n".join(drain_lines(seen, datetime.now(UTC))))


def _left_running(name: str) -> str:
    return f"drain {name} goes on; to end it and give the node back: kubectl delete ndrain {name}"
