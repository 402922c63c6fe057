"""`navarchos plan`: the predicted course of rollouts, and what would block them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from navarchos.cli.controllers import DEFAULT, installed
from navarchos.cli.errors import ExitStatus
from navarchos.cli.manifest_files import Manifest, check, load
from navarchos.cli.options import TargetCluster, cluster_options, output_option
from navarchos.cli.summary import MAX_LINES
from navarchos.client import Client, Forbidden
from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS, NodeRollout
from navarchos.operator.preflight import (
    ClusterState,
    FindingReason,
    PlanFinding,
    PredictedRollout,
    Severity,
    collect,
    predict,
    with_findings,
)
from navarchos.operator.systems import System

__all__ = ["plan"]


class _PlanResult(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    rollouts: tuple[PredictedRollout, ...]
    is_blocked: bool


@click.command()
@click.argument("name", required=False)
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Manifest with NodeRollouts; repeatable.",
)
@output_option
@cluster_options
def plan(
    *, name: str | None, filenames: tuple[Path, ...], as_json: bool, cluster: TargetCluster
) -> int:
    """Predict the course of a rollout.

    The rollout is in a manifest file, or it exists and has the name NAME. The command
    shows the nodes in order, how many of their pods are evicted, and everything that
    would block or delay the rollout. Nothing is written: the server validates files in
    a dry run. Exits with 1 if something would block.
    """
    if (name is None) == (not filenames):
        raise click.UsageError("give either the NAME of a rollout or -f FILE")
    manifests = load(filenames) if filenames else []
    for manifest in manifests:
        if manifest.kind != NODE_ROLLOUTS.kind:
            raise manifest.refuse("plan accepts only NodeRollouts")
    with cluster.connect() as client:
        if name is not None:
            rollouts = [client.resource(NODE_ROLLOUTS).get(name)]
        else:
            rollouts = _from_files(client, manifests)
        now = datetime.now(UTC)
        systems = installed(client)
        state = _with_slots(client, systems, collect(client, rollouts, now))
        predicted = _with_findings(client, systems, predict(rollouts, state, now))
    is_blocked = any(each.is_blocked for each in predicted)
    if as_json:
        click.echo(msgspec.json.encode(_PlanResult(rollouts=predicted, is_blocked=is_blocked)))
    else:
        click.echo("\n".join(line for each in predicted for line in _lines(each)))
    return ExitStatus.FAILED if is_blocked else ExitStatus.OK


def _from_files(client: Client, manifests: list[Manifest]) -> list[NodeRollout]:
    return [msgspec.convert(checked, NodeRollout) for checked in check(client, manifests)]


def _with_slots(client: Client, systems: Sequence[System], state: ClusterState) -> ClusterState:
    """Add the nodes that other installed systems hold or need."""
    holders, objections = dict(state.holders), dict(state.objections)
    general = list(state.general)
    for system in systems:
        if system.slots is None:
            continue
        try:
            reported = system.slots(client)
        except Forbidden as error:
            general.append(_not_read(system, error))
        else:
            holders |= reported.holders
            objections |= reported.objections
    controllers = frozenset({*DEFAULT, *(system.name for system in systems)})
    return replace(
        state,
        holders=holders,
        objections=objections,
        controllers=controllers,
        general=tuple(general),
    )


def _with_findings(
    client: Client, systems: Sequence[System], predicted: tuple[PredictedRollout, ...]
) -> tuple[PredictedRollout, ...]:
    """Add what other installed systems find out about the nodes."""
    names = {node.name for rollout in predicted for node in rollout.nodes}
    for system in systems:
        if system.plan is None:
            continue
        try:
            found = system.plan(client, names)
        except Forbidden as error:
            note = (_not_read(system, error),)
            predicted = tuple(
                msgspec.structs.replace(each, findings=(*each.findings, *note))
                for each in predicted
            )
        else:
            predicted = tuple(with_findings(rollout, found) for rollout in predicted)
    return predicted


def _not_read(system: System, error: Forbidden) -> PlanFinding:
    return PlanFinding(
        severity=Severity.NOTE,
        reason=FindingReason.NOT_CHECKED,
        message=f"the objects of {system.name} were not read: {error}",
        next_action="run the plan with an account that has the permission",
    )


def _lines(rollout: PredictedRollout) -> Iterable[str]:
    verdict = "something would block" if rollout.is_blocked else "nothing would block"
    yield f"{rollout.name}  {len(rollout.nodes)} nodes, {verdict}"
    yield from _findings(rollout.findings)
    for node in rollout.nodes:
        pods = node.pods
        counts = [f"{pods.evict} pods to evict", f"{pods.ignore} ignored"]
        counts += [f"{pods.wait} terminating"] if pods.wait else []
        counts += [f"{pods.refuse} refused"] if pods.refuse else []
        head = f"{node.order:>4}  {node.name}  priority {node.priority}  {node.starts}"
        yield f"{head}  {', '.join(counts)}"
        if node.message:
            yield f"      {node.message}"
        yield from _findings(node.findings, node.name)
    for budget in rollout.budgets:
        if budget.is_blocking:
            allowed = f"{budget.disruptions_allowed} allowed now"
            yield f"budget {budget.name}: {allowed}, {budget.pods} pods to evict"


def _findings(findings: tuple[PlanFinding, ...], node: str = "") -> Iterable[str]:
    for finding in findings[:MAX_LINES]:
        what = " ".join((finding.reason, *finding.budgets))
        where = " on ".join(part for part in (finding.pod, node) if part)
        said = "; ".join(part for part in (finding.message, finding.next_action) if part)
        head = "  ".join(part for part in (f"{finding.severity:<6}", what, where) if part)
        yield f"      {head}: {said}"
    if len(findings) > MAX_LINES:
        yield f"      and {len(findings) - MAX_LINES} more"
