"""Commands that change the cluster: pause, resume, cancel and abort a rollout, drain a node."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Final

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
from navarchos.client import (
    ApiError,
    Client,
    NotFound,
    Propagation,
    Resource,
    retry_on_conflict,
)
from navarchos.meta import Object, controller_of, format_micro_time
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import APPROVE_ANNOTATION, RESUME_ANNOTATION
from navarchos.operator.nodes import NODES
from navarchos.operator.waves import ApprovalRequest, pending_approval
from navarchos.runtime import list_all

__all__ = ["abort", "approve", "cancel", "drain", "pause", "resume"]

_NO_MANAGER_AFTER: Final = 10.0
"""Seconds until a warning that no manager has reconciled the new drain."""


class _UserInfo(msgspec.Struct, frozen=True, rename="camel"):
    username: str = ""


class _SelfReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _SelfSubjectReview(Object, frozen=True):
    status: _SelfReviewStatus = _SelfReviewStatus()


_SELF_REVIEWS: Final = Resource(
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    "SelfSubjectReview",
    namespaced=False,
    type=_SelfSubjectReview,
)


class _ActionResult(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The result of a command on a rollout, as `-o json` prints it.

    `nodes` has the nodes that were in flight, each with its step or its final state.
    """

    name: str
    action: str
    changed: bool
    nodes: dict[str, str]

    def show(self, text: str, *, as_json: bool) -> None:
        click.echo(msgspec.json.encode(self) if as_json else text)


@click.command()
@click.argument("name")
@output_option
@cluster_options
def pause(*, name: str, as_json: bool, cluster: TargetCluster) -> None:
    """Pause a rollout.

    No further node starts and no further pod is evicted. Nodes in flight stay cordoned.
    Pods that were evicted before continue to terminate. Exits with 1 if the rollout is
    Completed.
    """
    with cluster.connect() as client:
        rollout = client.resource(api.NODE_ROLLOUTS).get(name)
        _refuse_completed(rollout)
        _warn_if_no_leader(client)
        changed = not rollout.spec.paused
        if changed:
            client.resource(api.NODE_ROLLOUTS).patch(
                name, {"spec": {"paused": True}}, uid=rollout.metadata.uid
            )
        held = _in_flight(client, rollout)
    nodes = ", ".join(f"{node} ({step})" for node, step in held.items())
    done = "is paused" if changed else "was paused already"
    _ActionResult(name=name, action="Paused", changed=changed, nodes=held).show(
        f"{name} {done}; nodes in flight: {nodes or 'none'}", as_json=as_json
    )


@click.command()
@click.argument("name")
@output_option
@cluster_options
def resume(*, name: str, as_json: bool, cluster: TargetCluster) -> None:
    """Resume a paused or halted rollout.

    If the rollout has halted, its failed attempts no longer count, and its failed nodes
    are tried again. Exits with 1 if the rollout is Completed.
    """
    with cluster.connect() as client:
        _warn_if_no_leader(client)
        rollout, done = retry_on_conflict(lambda: _resume(client, name))
        in_flight = _in_flight(client, rollout)
    _ActionResult(name=name, action="Resumed", changed=bool(done), nodes=in_flight).show(
        f"{name} is resumed: {' and '.join(done) or 'it was neither paused nor halted'}",
        as_json=as_json,
    )


def _resume(client: Client, name: str) -> tuple[api.NodeRollout, list[str]]:
    """End the pause or the halt of a rollout, and describe the changes.

    The write depends on the version that was read, because failures are reset only if
    the rollout has halted, not if it was merely paused.
    """
    rollouts = client.resource(api.NODE_ROLLOUTS)
    rollout = rollouts.get(name)
    _refuse_completed(rollout)
    body: dict[str, object] = {}
    done = []
    if rollout.spec.paused:
        body["spec"] = {"paused": False}
        done.append("the pause is over")
    if rollout.status.phase is api.RolloutPhase.HALTED:
        token = format_micro_time(datetime.now(UTC))
        body["metadata"] = {"annotations": {RESUME_ANNOTATION: token}}
        done.append("failed nodes are tried again")
    if body:
        version = rollout.metadata.resource_version
        rollout = rollouts.patch(name, body, resource_version=version)
    return rollout, done


def _refuse_completed(rollout: api.NodeRollout) -> None:
    if rollout.status.phase is api.RolloutPhase.COMPLETED:
        name = rollout.metadata.name
        raise CommandError(
            f"rollout {name} is Completed and cannot be paused, resumed or cancelled"
        )


@click.command()
@click.argument("name")
@output_option
@cluster_options
def cancel(*, name: str, as_json: bool, cluster: TargetCluster) -> None:
    """Cancel the nodes of a rollout that have not started.

    Nodes in flight finish their attempt, and then the rollout is Completed. Drained nodes
    stay cordoned and labelled. A cancelled node cannot be resumed: create another rollout
    for it. Exits with 1 if the rollout is Completed.
    """
    with cluster.connect() as client:
        rollout = client.resource(api.NODE_ROLLOUTS).get(name)
        _refuse_completed(rollout)
        _warn_if_no_leader(client)
        changed = not rollout.spec.cancel
        if changed:
            client.resource(api.NODE_ROLLOUTS).patch(
                name, {"spec": {"cancel": True}}, uid=rollout.metadata.uid
            )
        running = _in_flight(client, rollout)
    nodes = ", ".join(f"{node} ({step})" for node, step in running.items())
    done = "is cancelled" if changed else "was cancelled already"
    _ActionResult(name=name, action="Cancelled", changed=changed, nodes=running).show(
        f"{name} {done}; nodes in flight, which finish: {nodes or 'none'}", as_json=as_json
    )


@click.command()
@click.argument("name")
@click.option(
    "--wave",
    type=click.IntRange(min=1),
    help="The number of the wave; refused if another wave waits.",
)
@output_option
@cluster_options
def approve(*, name: str, wave: int | None, as_json: bool, cluster: TargetCluster) -> None:
    """Approve the current wave of a rollout.

    The nodes beyond the wave start. Exits with 1 if no wave waits for an approval, or
    another one than --wave.
    """
    with cluster.connect() as client:
        rollout = client.resource(api.NODE_ROLLOUTS).get(name)
        number = _wave_to_approve(rollout, wave)
        _warn_if_no_leader(client)
        changed = pending_approval(rollout) != number
        by = _write_approval(client, rollout, number) if changed else ""
        running = _in_flight(client, rollout)
    done = f"is approved{by}" if changed else "was approved already; no manager has seen it yet"
    _ActionResult(name=name, action="Approved", changed=changed, nodes=running).show(
        f"wave {number} of {name} {done}", as_json=as_json
    )


def _write_approval(client: Client, rollout: api.NodeRollout, number: int) -> str:
    """Annotate the rollout, and return by whom, in words."""
    at = format_micro_time(datetime.now(UTC))
    request = ApprovalRequest(wave=number, by=_user_name(client), at=at)
    text = msgspec.json.encode(request).decode()
    client.resource(api.NODE_ROLLOUTS).patch(
        rollout.metadata.name,
        {"metadata": {"annotations": {APPROVE_ANNOTATION: text}}},
        uid=rollout.metadata.uid,
    )
    return f" by {request.by}" if request.by else ""


def _wave_to_approve(rollout: api.NodeRollout, wanted: int | None) -> int:
    name, wave = rollout.metadata.name, rollout.status.wave
    if not rollout.spec.strategy.waves:
        raise CommandError(f"rollout {name} has no waves, so that nothing waits for an approval")
    if rollout.status.phase is api.RolloutPhase.COMPLETED:
        raise CommandError(f"rollout {name} is Completed, so that nothing waits for an approval")
    if wave is None:
        raise CommandError(f"no wave of rollout {name} waits for an approval: it has not started")
    if wave.state is not api.WaveState.AWAITING_APPROVAL:
        now = f"wave {wave.number} of {wave.of} is {wave.state}"
        raise CommandError(f"no wave of rollout {name} waits for an approval: {now}")
    if wanted not in {None, wave.number}:
        raise CommandError(
            f"wave {wanted} of rollout {name} does not wait for an approval: "
            f"wave {wave.number} does"
        )
    return wave.number


def _user_name(client: Client) -> str:
    """Return who the API server says that we are; empty if it does not."""
    try:
        return client.resource(_SELF_REVIEWS).create({}).status.user_info.username
    except ApiError as error:
        _warn(f"the API server does not say who you are, so the approval has no name: {error}")
        return ""


@click.command()
@click.argument("name")
@click.option(
    "--timeout",
    type=DURATION,
    default="1m",
    show_default=True,
    help="Maximum time to wait until the nodes in flight are released.",
)
@output_option
@cluster_options
def abort(*, name: str, timeout: float, as_json: bool, cluster: TargetCluster) -> None:
    """Delete a rollout and release its nodes.

    Waits until the nodes in flight that are not drained are uncordoned. Drained nodes
    stay cordoned and labelled. Exits with 1 if the nodes in flight are not released
    within --timeout.
    """
    with cluster.connect() as client:
        rollout = client.resource(api.NODE_ROLLOUTS).get(name)
        uid = rollout.metadata.uid
        with open_follower(client) as follower:
            in_flight = list(_in_flight(client, rollout))
            children = {r.metadata.uid for r in _children(rollout, follower.replacements)}
            client.resource(api.NODE_ROLLOUTS).delete(
                name, uid=uid, propagation=Propagation.BACKGROUND
            )
            notifier = FreshnessNotifier(Freshness(client, follower), _warn)

            def is_done() -> bool:
                notifier.poll()
                return not _left(follower, uid, children)

            if not follower.wait_until(is_done, timeout, every=CHECK_INTERVAL):
                left = ", ".join(sorted(_left(follower, uid, children)))
                raise CommandError(
                    f"rollout {name} is deleted, but these nodes are not released after "
                    f"{timeout:g} s: {left}; is navarchos manager running?"
                )
        states = {node: _final_state(client, node) for node in in_flight}
    lines = [f"{name} is aborted", *(f"  {node}  {state}" for node, state in states.items())]
    _ActionResult(name=name, action="Aborted", changed=True, nodes=states).show(
        "\n".join(lines), as_json=as_json
    )


def _warn_if_no_leader(client: Client) -> None:
    """Warn before a change that no manager may be running to act on it."""
    why = leader_warning(client)
    if why:
        _warn(why)


def _warn(text: str) -> None:
    click.echo(text, err=True)


def _left(follower: Follower, rollout: str, children: Collection[str]) -> set[str]:
    """Return the nodes that still have a NodeReplacement or NodeDrain of the rollout."""
    owners = {rollout, *children}
    remains: list[api.NodeReplacement | api.NodeDrain] = [*follower.replacements, *follower.drains]
    return {
        obj.spec.node_name
        for obj in remains
        if (owner := controller_of(obj.metadata)) is not None and owner.uid in owners
    }


def _final_state(client: Client, name: str) -> str:
    try:
        node = client.resource(NODES).get(name)
    except NotFound:
        return "Gone"
    return "Cordoned" if node.spec.unschedulable else "Uncordoned"


def _in_flight(client: Client, rollout: api.NodeRollout) -> dict[str, str]:
    children = _children(rollout, list_all(client, api.NODE_REPLACEMENTS))
    steps: dict[str, api.Step] = {r.spec.node_name: r.status.current for r in children}
    return {node: str(steps[node]) for node in sorted(steps) if steps[node].in_flight}


def _children(
    rollout: api.NodeRollout, replacements: Iterable[api.NodeReplacement]
) -> list[api.NodeReplacement]:
    return [
        replacement
        for replacement in replacements
        if (owner := controller_of(replacement.metadata)) is not None
        and owner.uid == rollout.metadata.uid
    ]


class _DrainFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `navarchos drain` that become the spec of the NodeDrain."""

    force: bool
    timeout: float
    hold: bool
    grace_period: int

    def spec(self, node: str, uid: str) -> dict[str, object]:
        return {
            "nodeName": node,
            "nodeUID": uid,
            "force": self.force,
            "timeoutSeconds": round(self.timeout),
            "onTimeout": "Hold" if self.hold else "Fail",
            "gracePeriodSeconds": self.grace_period,
        }


@click.command()
@click.argument("node")
@click.option("--force", is_flag=True, help="Also delete pods that no controller re-creates.")
@click.option(
    "--timeout",
    type=DURATION,
    default="15m",
    show_default=True,
    help="Maximum duration of the drain, from the first eviction; 0s means no limit.",
)
@click.option(
    "--hold", is_flag=True, help="Keep trying after the timeout, instead of failing the drain."
)
@click.option(
    "--grace-period",
    type=click.IntRange(min=-1),
    default=-1,
    show_default=True,
    help="Seconds that a pod gets to terminate; -1 uses the grace period of the pod.",
)
@output_option
@cluster_options
def drain(*, node: str, as_json: bool, cluster: TargetCluster, **flags: Any) -> int:
    """Cordon and drain NODE.

    Creates a NodeDrain, waits until it has ended, and reports. Exits with 0 if the node
    is drained, with 1 if the drain failed. Ctrl-C ends only the command: the NodeDrain
    stays in the cluster and continues. To end the drain and uncordon the node, delete
    the NodeDrain.
    """
    with cluster.connect() as client:
        uid = client.resource(NODES).get(node).metadata.uid
        spec = _DrainFlags(**flags).spec(node, uid)
        created = client.resource(api.NODE_DRAINS).create(
            {"metadata": {"generateName": f"{node}-"}, "spec": spec}
        )
        try:
            with open_follower(client) as follower:
                notifier = FreshnessNotifier(Freshness(client, follower), _warn)
                ended = _follow(follower, notifier, created, as_json=as_json)
        except KeyboardInterrupt:
            name = created.metadata.name
            _warn(
                f"drain {name} continues; to end it and uncordon the node: "
                f"kubectl delete ndrain {name}"
            )
            return ExitStatus.INTERRUPTED
    return ExitStatus.OK if ended.phase is api.DrainPhase.COMPLETED else ExitStatus.FAILED


def _follow(
    follower: Follower, notifier: FreshnessNotifier, created: api.NodeDrain, *, as_json: bool
) -> DrainSummary:
    """Print every change of a drain until it has ended, and return its last summary."""
    shown: list[DrainSummary] = []

    def has_ended() -> bool:
        notifier.poll()
        seen = summarize_drain(_find(follower, created))
        if seen not in shown[-1:]:
            shown.append(seen)
            _show(seen, as_json=as_json)
        return seen.phase.is_final

    def has_started() -> bool:
        return has_ended() or _find(follower, created).status.phase is not None

    if not follower.wait_until(has_started, _NO_MANAGER_AFTER):
        _warn("no manager has started the drain yet; is navarchos manager running?")
    follower.wait_until(has_ended, every=CHECK_INTERVAL)
    return shown[-1]


def _find(follower: Follower, created: api.NodeDrain) -> api.NodeDrain:
    for each in follower.drains:
        if each.metadata.uid == created.metadata.uid:
            return each
    name = created.metadata.name
    raise CommandError(f"drain {name} was deleted", status=ExitStatus.NOT_FOUND)


def _show(seen: DrainSummary, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(seen))
    else:
        click.echo("\n".join(drain_lines(seen, datetime.now(UTC))))
