"""The command group, and the one place where errors become exit statuses."""

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final, cast

import click

from navarchos._version import __version__
from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.errors import ConfigError

__all__ = ["cli", "run"]

_COMMANDS: Final = {
    "abort": ("navarchos.cli.control", "abort"),
    "crds": ("navarchos.cli.manifests", "crds"),
    "drain": ("navarchos.cli.control", "drain"),
    "manager": ("navarchos.cli.manager", "manager"),
    "manifests": ("navarchos.cli.manifests", "manifests"),
    "pause": ("navarchos.cli.control", "pause"),
    "plan": ("navarchos.cli.plan", "plan"),
    "resume": ("navarchos.cli.control", "resume"),
    "sandbox": ("navarchos.cli.sandbox.command", "sandbox"),
    "status": ("navarchos.cli.status", "status"),
}


class _LazyGroup(click.Group):
    """Imports a command when it is asked for: starting up is part of the product."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        _import_structlog()
        module, name = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


def _import_structlog() -> None:
    """Import structlog without rich, which it imports where it is installed.

    Nobody here wants its tracebacks: they show local variables, and so credentials. To import
    it takes 5 MB, and a tenth of the time until a manager runs. The sandbox imports it later.

    Threads: before there are others; for them, rich would be missing meanwhile.
    """
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    hidden = cast("dict[str, ModuleType | None]", sys.modules)
    hidden["rich"] = None  # which the import system takes for a module that is not there
    try:
        importlib.import_module("structlog")
    finally:
        del hidden["rich"]


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="navarchos %(version)s")
def cli() -> None:
    """Návarchos replaces the nodes of a Kubernetes cluster, group by group."""


def run(arguments: Sequence[str], *, name: str = "navarchos") -> int:
    """Run one command and return its exit status (`ExitStatus`).

    Args:
        arguments: What was typed after the name.
        name: What was typed for it; help texts show it.
    """
    try:
        status = cli.main(args=list(arguments), prog_name=name, standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return ExitStatus.INTERRUPTED
    except click.ClickException as error:
        return _refuse(_one_line(error), ExitStatus.USAGE)
    except ConfigError as error:
        return _refuse(str(error), ExitStatus.USAGE)
    except CommandError as error:
        return _refuse(str(error), error.status)
    return status if isinstance(status, int) else ExitStatus.OK


def _one_line(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if context is None:
        return message
    return f"{message} Try '{context.command_path} --help'."


def _refuse(message: str, status: int) -> int:
    click.echo(f"navarchos: {' '.join(message.split())}", err=True)
    return status
