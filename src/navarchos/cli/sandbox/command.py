"""The options of `navarchos sandbox`."""

import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.abc import Traversable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final, Literal

import click
import msgspec
from click.core import ParameterSource
from rich.console import Console

from navarchos import logs
from navarchos.cli.controllers import controllers_option
from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.cli.manifest_files import Manifest, load
from navarchos.cli.sandbox.clusters import SandboxCluster, SimulatedCluster
from navarchos.cli.sandbox.runner import Sandbox, SandboxOptions, SandboxResult
from navarchos.cli.sandbox.view import LiveView, PlainView, SilentView, View

__all__ = ["sandbox"]

_DEFAULT_EXAMPLE: Final = "rollout.yml"


def _examples() -> dict[str, Traversable]:
    """Return the bundled examples by name."""
    folder = files("navarchos.cli") / "examples"
    return {each.name: each for each in folder.iterdir() if each.name.endswith(".yml")}


def _list_examples(context: click.Context, _parameter: object, value: bool) -> None:
    if value:
        for name, example in sorted(_examples().items()):
            first = example.read_text(encoding="utf-8").partition("\n")[0]
            click.echo(f"{name:<16}{first.removeprefix('#').strip()}")
        context.exit()


@click.command()
@controllers_option("The controllers to run, and what they need from the simulated cluster.")
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Manifest with NodeRollouts, or the name of a bundled example; repeatable. By default "
    f"the example {_DEFAULT_EXAMPLE}.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_examples,
    help="List the bundled examples.",
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
    "--real-nodes",
    type=click.IntRange(1, 20),
    metavar="N",
    help="Run N real nodes instead: kubelets and containers on this machine. Requires Linux, root "
    "and the programs of `python -m navarchos.testing.nodes`.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="OCI archive of an image for pods on real nodes; repeatable.",
)
@click.option(
    "--no-manager",
    is_flag=True,
    help="Run no manager, to deploy one with kubectl; with --serve.",
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
    *,
    filenames: tuple[Path, ...],
    serve: bool,
    output: Literal["text", "json"],
    **flags: Any,
) -> None:
    """Run rollouts on a simulated cluster in this process, or on real nodes.

    Exits with 0 if every rollout is Completed, with 1 if a rollout is Halted or the
    timeout has passed. With --serve and without -f no rollout is created: create one with
    kubectl.
    """
    if flags["no_manager"] and (not serve or filenames):
        raise click.UsageError("--no-manager requires --serve, and excludes -f")
    # The manager logs to its own file. Here only errors are shown to the user.
    logs.configure(level="error", style="console")
    manifests = [] if serve and not filenames else _load(filenames)
    console = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = SandboxOptions(
        timeout=flags["timeout"],
        kubeconfig=flags["kubeconfig"],
        systems=flags["systems"],
        runs_manager=not flags["no_manager"],
    )
    with Sandbox(_cluster(flags), options) as run:
        if serve:
            _print_addresses(run)
        if manifests:
            _show_result(run.roll_out(manifests, _view(console, output)), output)
        if serve:
            run.serve(_view(console, output))


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


def _cluster(flags: Mapping[str, Any]) -> SandboxCluster:
    if flags["real_nodes"] is None:
        if flags["images"]:
            raise click.UsageError("--image requires --real-nodes")
        sizes = (flags["nodes"], flags["pods_per_node"], flags["speed"])
        return SimulatedCluster.of_size(*sizes, port=flags["port"], systems=flags["systems"])
    for name in ("nodes", "speed", "port"):
        if _is_given(name):
            raise click.UsageError(f"--{name} is for the simulated cluster, not for --real-nodes")
    for system in flags["systems"]:
        if system.simulate is not None:
            why = f"--controllers={system.name} needs the simulated cluster, not --real-nodes"
            raise click.UsageError(why)
    try:
        from navarchos.cli.sandbox.real_nodes import RealCluster
    except ImportError as error:
        why = f"--real-nodes needs {error.name}; run `pip install 'navarchos[controlplane]'`"
        raise CommandError(why, status=ExitStatus.USAGE) from error
    return RealCluster(
        flags["real_nodes"],
        flags["pods_per_node"],
        images=flags["images"],
        systems=flags["systems"],
        report=lambda line: click.echo(line, err=True),
    )


def _show_result(result: SandboxResult, output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(result.report.as_json()))
    if result.failure is not None:
        raise result.failure
    if output == "text":
        click.echo(result.report.as_text())


def _load(filenames: tuple[Path, ...]) -> list[Manifest]:
    examples = _examples()
    with ExitStack() as stack:
        found = []
        for filename in filenames or (Path(_DEFAULT_EXAMPLE),):
            example = examples.get(str(filename))
            if example is not None and not (filenames and filename.exists()):
                found.append(stack.enter_context(as_file(example)))
            elif filename.exists():
                found.append(filename)
            else:
                names = ", ".join(sorted(examples))
                why = f"{filename}: cannot be read: no such file; the bundled examples are {names}"
                raise CommandError(why, status=ExitStatus.USAGE)
        return load(found)


def _view(console: Console, output: str) -> View:
    if output == "json":
        return SilentView()
    return LiveView(console) if console.is_terminal else PlainView(click.echo)


def _print_addresses(run: Sandbox) -> None:
    click.echo(f"server      {run.url}", err=True)
    click.echo(f"kubeconfig  {run.kubeconfig}", err=True)
    click.echo(f"try         kubectl --kubeconfig {run.kubeconfig} get nodes", err=True)
    click.echo("Ctrl-C ends it.", err=True)
