"""The options of `navarchos sandbox`."""

import signal
import sys
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from rich.console import Console

from navarchos import logs
from navarchos.cli.manifest_files import Manifest, load
from navarchos.cli.sandbox.runner import Sandbox, SandboxOptions, SandboxResult
from navarchos.cli.sandbox.view import LiveView, PlainView, SilentView, View

__all__ = ["sandbox"]


@click.command()
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Manifest with NodeRollouts; repeatable. By default the bundled example.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 5000),
    default=12,
    show_default=True,
    help="Number of nodes of the cluster.",
)
@click.option(
    "--pods-per-node",
    type=click.IntRange(1, 250),
    default=8,
    show_default=True,
    help="Approximate number of pods on each node.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, max=10_000, min_open=True),
    default=20.0,
    show_default=True,
    help="Simulated seconds in a real second, for pods and machines. The manager runs in real "
    "time.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds after which the run fails.",
)
@click.option(
    "--serve", is_flag=True, help="Keep the cluster running until Ctrl-C, for use with kubectl."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port of the API server on loopback; 0 uses a free port.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write the kubeconfig to (mode 0600). By default a temporary file.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json prints one object with documented fields at the end.",
)
def sandbox(
    *, filenames: tuple[Path, ...], serve: bool, output: Literal["text", "json"], **flags: Any
) -> None:
    """Run rollouts on a simulated cluster in this process.

    Exits with 0 if every rollout is Completed, with 1 if a rollout is Halted or the
    timeout has passed. With --serve and without -f no rollout is created: create one with
    kubectl.
    """
    # The manager logs to its own file. Here only errors are shown to the user.
    logs.configure(level="error", style="console")
    manifests = [] if serve and not filenames else _load(filenames)
    console = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with Sandbox(SandboxOptions(**flags)) as run:
        if serve:
            _print_addresses(run)
        if manifests:
            _show_result(run.roll_out(manifests, _view(console, output)), output)
        if serve:
            run.serve(_view(console, output))


def _show_result(result: SandboxResult, output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(result.report.as_json()))
    if result.failure is not None:
        raise result.failure
    if output == "text":
        click.echo(result.report.as_text())


def _load(filenames: tuple[Path, ...]) -> list[Manifest]:
    if filenames:
        return load(filenames)
    with ExitStack() as stack:
        bundled = files("navarchos.cli") / "examples" / "rollout.yml"
        return load([stack.enter_context(as_file(bundled))])


def _view(console: Console, output: str) -> View:
    if output == "json":
        return SilentView()
    return LiveView(console) if console.is_terminal else PlainView(click.echo)


def _print_addresses(run: Sandbox) -> None:
    click.echo(f"server      {run.url}", err=True)
    click.echo(f"kubeconfig  {run.kubeconfig}", err=True)
    click.echo(f"try         kubectl --kubeconfig {run.kubeconfig} get nodes", err=True)
    click.echo("Ctrl-C ends it.", err=True)
