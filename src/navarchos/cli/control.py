"""`navarchos pause`, `resume` and `abort`: a person steers a rollout."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.cli.follower import (
    CHECK_INTERVAL,
    Follower,
    Freshness,
    FreshnessNotifier,
    leader_warning,
    open_follower,
)
from navarchos.cli.options import DURATION, TargetCluster, cluster_options, output_option
from navarchos.cli.summary import DrainSummary, drain_lines, summarize_drain
from navarchos.client import Client, NotFound, Propagation, retry_on_conflict
from navarchos.meta import controller_of, format_micro_time
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    DrainPhase,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
    RolloutPhase,
    Step,
)
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.operator.nodes import NODES
from navarchos.runtime import list_all

__all__ = ["abort", "drain", "pause", "resume"]

_PATIENCE: Final = "1m"


class _ActionResult(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a command did. `nodes` are those that were in flight, with what they are now."""

    name: str
    action: str
    changed: bool
    nodes: dict[str, str]

    def tell(self, text: str, *, as_json: bool) -> None:
        click.echo(msgspec.json.encode(self) if as_json else text)


@click.command()
@click.argument("name")
@output_option
@cluster_options
def pause(*, name: str, as_json: bool, cluster: TargetCluster) -> None:
    """Hold a rollout: no further node starts, no further eviction is sent.

    Nodes in flight stay as they are, cordoned; pods that were evicted already go.
    Exits 1 when the rollout is Completed.
    """
    with cluster.connect() as client:
        rollout = client.resource(NODE_ROLLOUTS).get(name)
        _refuse_completed(rollout)
        _warn_if_no_leader(client)
        changed = not rollout.spec.paused
        if changed:
            client.resource(NODE_ROLLOUTS).patch(
                name, {"spec": {"paused": True}}, uid=rollout.metadata.uid
            )
        held = _in_flight(client, rollout)
    nodes = ", ".join(f"{node} ({step})" for node, step in held.items())
    said = "is paused" if changed else "was paused already"
    _ActionResult(name=name, action="Paused", changed=changed, nodes=held).tell(
        f"{name} {said}; in flight and held: {nodes or 'no node'}", as_json=as_json
    )


@click.command()
@click.argument("name")
@output_option
@cluster_options
def resume(*, name: str, as_json: bool, cluster: TargetCluster) -> None:
    """Let a rollout go on that was paused, or that has halted.

    One that has halted is forgiven the attempts that failed so far: its failed nodes
    are tried again. Exits 1 when the rollout is Completed.
    """
    with cluster.connect() as client:
        _warn_if_no_leader(client)
        rollout, done = retry_on_conflict(lambda: _resume(client, name))
        in_flight = _in_flight(client, rollout)
    _ActionResult(name=name, action="Resumed", changed=bool(done), nodes=in_flight).tell(
        f"{name} goes on: {' and '.join(done) or 'nothing held it'}", as_json=as_json
    )


def _resume(client: Client, name: str) -> tuple[NodeRollout, list[str]]:
    """Undo what holds the rollout, on condition that it is what was read.

    Whether attempts are forgiven depends on it: merely paused, they are not.
    """
    rollouts = client.resource(NODE_ROLLOUTS)
    rollout = rollouts.get(name)
    _refuse_completed(rollout)
    body: dict[str, object] = {}
    done = []
    if rollout.spec.paused:
        body["spec"] = {"paused": False}
        done.append("no longer paused")
    if rollout.status.phase is RolloutPhase.HALTED:
        token = format_micro_time(datetime.now(UTC))
        body["metadata"] = {"annotations": {RESUME_ANNOTATION: token}}
        done.append("failed attempts are forgiven")
    if body:
        version = rollout.metadata.resource_version
        rollout = rollouts.patch(name, body, resource_version=version)
    return rollout, done


def _refuse_completed(rollout: NodeRollout) -> None:
    if rollout.status.phase is RolloutPhase.COMPLETED:
        raise CommandError(
            f"rollout {rollout.metadata.name} is Completed: there is nothing to steer"
        )


@click.command()
@click.argument("name")
@click.option(
    "--timeout",
    type=DURATION,
    default=_PATIENCE,
    show_default=True,
    help="Longest wait until every node is given back.",
)
@output_option
@cluster_options
def abort(*, name: str, timeout: float, as_json: bool, cluster: TargetCluster) -> None:
    """End a rollout for good: it is deleted, and nodes that are not empty are given back.

    Nodes that have been drained stay cordoned and labelled. Ends when every node in
    flight is in one of these states; exits 1 when that takes longer than --timeout.
    """
    with cluster.connect() as client:
        rollout = client.resource(NODE_ROLLOUTS).get(name)
        with open_follower(client) as follower:
            in_flight = list(_in_flight(client, rollout))
            children = {r.metadata.uid for r in _children(rollout, follower.replacements)}
            client.resource(NODE_ROLLOUTS).delete(
                name, uid=rollout.metadata.uid, propagation=Propagation.BACKGROUND
            )
            uid = rollout.metadata.uid
            notice = FreshnessNotifier(Freshness(client, follower), _warn)

            def is_done() -> bool:
                notice.poll()
                return not _left(follower, uid, children)

            if not follower.wait_until(is_done, timeout, every=CHECK_INTERVAL):
                left = ", ".join(sorted(_left(follower, uid, children)))
                raise CommandError(
                    f"rollout {name} is deleted, but not given back in {timeout:g} s: {left}; "
                    "is a manager running?"
                )
        ends = {node: _state(client, node) for node in in_flight}
    lines = [f"{name} is aborted", *(f"  {node}  {state}" for node, state in ends.items())]
    _ActionResult(name=name, action="Aborted", changed=True, nodes=ends).tell(
        "\n".join(lines), as_json=as_json
    )


def _warn_if_no_leader(client: Client) -> None:
    """Say before anything is changed that nobody may be at work who would obey."""
    why = leader_warning(client)
    if why:
        _warn(why)


def _warn(text: str) -> None:
    click.echo(text, err=True)


def _left(follower: Follower, rollout: str, children: Collection[str]) -> set[str]:
    """Return the nodes on which something of the rollout is still to be tidied up."""
    owners = {rollout, *children}
    remains: list[NodeReplacement | NodeDrain] = [*follower.replacements, *follower.drains]
    return {
        obj.spec.node_name
        for obj in remains
        if (owner := controller_of(obj.metadata)) is not None and owner.uid in owners
    }


def _state(client: Client, name: str) -> str:
    try:
        node = client.resource(NODES).get(name)
    except NotFound:
        return "Gone"
    return "Cordoned" if node.spec.unschedulable else "Uncordoned"


def _in_flight(client: Client, rollout: NodeRollout) -> dict[str, str]:
    children = _children(rollout, list_all(client, NODE_REPLACEMENTS))
    steps: dict[str, Step] = {r.spec.node_name: r.status.current for r in children}
    return {node: str(steps[node]) for node in sorted(steps) if steps[node].in_flight}


def _children(
    rollout: NodeRollout, replacements: Iterable[NodeReplacement]
) -> list[NodeReplacement]:
    return [
        replacement
        for replacement in replacements
        if (owner := controller_of(replacement.metadata)) is not None
        and owner.uid == rollout.metadata.uid
    ]


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
    cluster: TargetCluster,
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
            with open_follower(client) as follower:
                notice = FreshnessNotifier(
                    Freshness(client, follower), lambda text: click.echo(text, err=True)
                )
                ended = _follow(follower, notice, made, as_json=as_json)
        except KeyboardInterrupt:
            click.echo(_left_running(made.metadata.name), err=True)
            return ExitStatus.INTERRUPTED
    return ExitStatus.OK if ended.phase is DrainPhase.COMPLETED else ExitStatus.FAILED


def _follow(
    follower: Follower, notice: FreshnessNotifier, made: NodeDrain, *, as_json: bool
) -> DrainSummary:
    last: list[DrainSummary] = []

    def poll() -> bool:
        notice.poll()
        seen = summarize_drain(_find(follower, made))
        if seen not in last[-1:]:
            last.append(seen)
            _tell(seen, as_json=as_json)
        return seen.phase.is_final

    def taken_up() -> bool:
        return poll() or _find(follower, made).status.phase is not None

    if not follower.wait_until(taken_up, _TAKEN_UP):
        click.echo("nobody has taken it up yet: is navarchos manager running?", err=True)
    follower.wait_until(poll, every=CHECK_INTERVAL)
    return last[-1]


def _find(follower: Follower, made: NodeDrain) -> NodeDrain:
    for each in follower.drains:
        if each.metadata.uid == made.metadata.uid:
            return each
    raise CommandError(f"drain {made.metadata.name} has been deleted", status=ExitStatus.NOT_FOUND)


def _tell(seen: DrainSummary, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(seen))
    else:
        click.echo("\n".join(drain_lines(seen, datetime.now(UTC))))


def _left_running(name: str) -> str:
    return f"drain {name} goes on; to end it and give the node back: kubectl delete ndrain {name}"
