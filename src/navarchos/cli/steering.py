"""`navarchos pause`, `resume` and `abort`: a person steers a rollout."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from navarchos.cli.cluster import Cluster, cluster_options, output_option
from navarchos.cli.failure import Failure
from navarchos.cli.options import DURATION
from navarchos.cli.progress.following import Follower, following
from navarchos.cli.progress.freshness import EVERY, Freshness, Notice, why_not_current
from navarchos.client import Client, NotFound, Propagation, retry_on_conflict
from navarchos.meta import controller_of, format_micro_time
from navarchos.operator.api.v1alpha1 import (
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
    RolloutPhase,
    Step,
)
from navarchos.operator.kinds import all_of
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.operator.nodes import NODES

__all__ = ["abort", "pause", "resume"]

_PATIENCE: Final = "1m"


class _Steered(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
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
def pause(*, name: str, as_json: bool, cluster: Cluster) -> None:
    """Hold a rollout: no further node starts, no further eviction is sent.

    Nodes in flight stay as they are, cordoned; pods that were evicted already go.
    Exits 1 when the rollout is Completed.
    """
    with cluster.connect() as client:
        rollout = client.resource(NODE_ROLLOUTS).get(name)
        _refuse_completed(rollout)
        _tell_who_is_missing(client)
        changed = not rollout.spec.paused
        if changed:
            client.resource(NODE_ROLLOUTS).patch(
                name, {"spec": {"paused": True}}, uid=rollout.metadata.uid
            )
        held = _in_flight(client, rollout)
    nodes = ", ".join(f"{node} ({step})" for node, step in held.items())
    said = "is paused" if changed else "was paused already"
    _Steered(name=name, action="Paused", changed=changed, nodes=held).tell(
        f"{name} {said}; in flight and held: {nodes or 'no node'}", as_json=as_json
    )


@click.command()
@click.argument("name")
@output_option
@cluster_options
def resume(*, name: str, as_json: bool, cluster: Cluster) -> None:
    """Let a rollout go on that was paused, or that has halted.

    One that has halted is forgiven the attempts that failed so far: its failed nodes
    are tried again. Exits 1 when the rollout is Completed.
    """
    with cluster.connect() as client:
        _tell_who_is_missing(client)
        rollout, done = retry_on_conflict(lambda: _let_go_on(client, name))
        flying = _in_flight(client, rollout)
    _Steered(name=name, action="Resumed", changed=bool(done), nodes=flying).tell(
        f"{name} goes on: {' and '.join(done) or 'nothing held it'}", as_json=as_json
    )


def _let_go_on(client: Client, name: str) -> tuple[NodeRollout, list[str]]:
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
        raise Failure(f"rollout {rollout.metadata.name} is Completed: there is nothing to steer")


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
def abort(*, name: str, timeout: float, as_json: bool, cluster: Cluster) -> None:
    """End a rollout for good: it is deleted, and nodes that are not empty are given back.

    Nodes that have been drained stay cordoned and labelled. Ends when every node in
    flight is in one of these states; exits 1 when that takes longer than --timeout.
    """
    with cluster.connect() as client:
        rollout = client.resource(NODE_ROLLOUTS).get(name)
        with following(client) as follower:
            flying = list(_in_flight(client, rollout))
            children = {r.metadata.uid for r in _children(rollout, follower.replacements)}
            client.resource(NODE_ROLLOUTS).delete(
                name, uid=rollout.metadata.uid, propagation=Propagation.BACKGROUND
            )
            uid = rollout.metadata.uid
            notice = Notice(Freshness(client, follower), _warn)

            def is_done() -> bool:
                notice.look()
                return not _left(follower, uid, children)

            if not follower.wait_until(is_done, timeout, every=EVERY):
                left = ", ".join(sorted(_left(follower, uid, children)))
                raise Failure(
                    f"rollout {name} is deleted, but not given back in {timeout:g} s: {left}; "
                    "is a manager running?"
                )
        ends = {node: _state(client, node) for node in flying}
    lines = [f"{name} is aborted", *(f"  {node}  {state}" for node, state in ends.items())]
    _Steered(name=name, action="Aborted", changed=True, nodes=ends).tell(
        "\n".join(lines), as_json=as_json
    )


def _tell_who_is_missing(client: Client) -> None:
    """Say before anything is changed that nobody may be at work who would obey."""
    why = why_not_current(client)
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
    return "Cordoned" if node.spec.unschedulable else "GivenBack"


def _in_flight(client: Client, rollout: NodeRollout) -> dict[str, str]:
    children = _children(rollout, all_of(client, NODE_REPLACEMENTS))
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
