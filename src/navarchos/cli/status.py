"""`navarchos status`: the progress of rollouts and drains, and what blocks them."""

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, assert_never

import click
import msgspec
from msgspec.structs import replace

from navarchos.cli.controllers import installed
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
from navarchos.client import Client, ClientError, Forbidden
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.operator.api.v1alpha1 import RolloutPhase
from navarchos.operator.systems import StatusPart

__all__ = ["SystemReports", "status"]

_CLEAR: Final = "\033[H\033[J"
"""Move to the upper left corner and clear the terminal below it."""


@click.command()
@click.argument("name", required=False, default="")
@click.option("--watch", "-w", is_flag=True, help="Show every change until the rollout has ended.")
@output_option
@cluster_options
def status(*, name: str, watch: bool, as_json: bool, cluster: TargetCluster) -> int:
    """Show progress, blocked pods and next actions.

    With NAME it shows that rollout, otherwise all rollouts, the drains that belong to
    no rollout, and what other installed systems report. With NAME and --watch it ends with
    the rollout: it exits with 0 if the rollout is Completed, with 1 if it is Halted. With
    --watch alone it ends on Ctrl-C.

    A last line says when the output may be out of date, because the connection is lost
    or no manager is active.
    """
    with cluster.connect() as client:
        # Read before the watches start, so that a missing object is reported in one line.
        summary = replace(read(client, name), out_of_date_because=leader_warning(client))
        systems = SystemReports(client, is_off=bool(name))
        redraws = watch and sys.stdout.isatty()
        printer = _Printer(systems, as_json=as_json, redraws=redraws)
        printer.show(summary)
        if not watch:
            return ExitStatus.OK
        with open_follower(client) as follower:
            return _watch(follower, Freshness(client, follower), name, printer)


class _NotRead(msgspec.Struct, frozen=True, rename="camel"):
    """The report of a system whose objects the user may not read."""

    not_read: str


class SystemReports:
    """What other systems report, read again after `CHECK_INTERVAL` seconds.

    Threads: for one thread.

    Args:
        client: Reads the cluster.
        is_off: Whether nothing is read: the command shows one rollout.
        clock: Time.

    Raises:
        ClientError: The server did not answer. Later reads return the last report instead,
            since the command says by itself that the connection is lost.
    """

    def __init__(
        self, client: Client, *, is_off: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._client = client
        self._clock = clock
        systems = () if is_off else installed(client)
        self._parts = {system.name: system.status for system in systems if system.status}
        self._reports = self._read_all()
        self._read_at = clock.monotonic()

    def read(self) -> Mapping[str, object]:
        """Return the report of each system by its name."""
        now = self._clock.monotonic()
        if self._parts and now - self._read_at >= CHECK_INTERVAL:
            self._read_at = now
            with suppress(ClientError):
                self._reports = self._read_all()
        return self._reports

    def _read_all(self) -> dict[str, object]:
        return {name: self._read_one(part) for name, part in self._parts.items()}

    def _read_one(self, part: StatusPart) -> object:
        try:
            return part.read(self._client)
        except Forbidden as error:
            return _NotRead(str(error))

    def lines(self, reports: Mapping[str, object]) -> list[str]:
        """Return the reports as text."""
        return [line for name, report in reports.items() for line in self._lines_of(name, report)]

    def _lines_of(self, name: str, report: object) -> Iterable[str]:
        if isinstance(report, _NotRead):
            return (f"{name}: not read: {report.not_read}",)
        return self._parts[name].lines(report)


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

    def __init__(self, systems: SystemReports, *, as_json: bool, redraws: bool) -> None:
        self._systems = systems
        self._as_json = as_json
        self._redraws = redraws
        self._last: Summary | None = None

    def show(self, summary: Summary) -> None:
        reports = self._systems.read()
        if reports:
            summary = replace(summary, systems=reports)
        if summary == self._last:
            return
        self._last = summary
        if self._as_json:
            click.echo(msgspec.json.encode(summary))
            return
        lines = summary_lines(summary, datetime.now(UTC), self._systems.lines(reports))
        text = "\n".join(lines)
        click.echo(f"{_CLEAR}{text}" if self._redraws else text)
