"""The table of commands, and the place where errors become exit statuses."""

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
    "approve": ("navarchos.cli.control", "approve"),
    "cancel": ("navarchos.cli.control", "cancel"),
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
    """A group that imports a command only when it runs, so that every command starts fast."""

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
    """Import structlog without rich, which structlog imports if it is installed.

    structlog uses rich for tracebacks that show local variables, and so credentials. The
    import of rich also takes 5 MB, and a tenth of the start-up time of the manager. The
    sandbox imports rich later.

    Threads: call it before another thread starts, because rich cannot be imported meanwhile.
    """
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    hidden = cast("dict[str, ModuleType | None]", sys.modules)
    hidden["rich"] = None  # for the import system, a module that does not exist
    try:
        importlib.import_module("structlog")
    finally:
        del hidden["rich"]


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="navarchos %(version)s")
def cli() -> None:
    """Replace the nodes of a Kubernetes cluster, group by group."""


def run(arguments: Sequence[str], *, name: str = "navarchos") -> int:
    """Run one command and return its exit status (`ExitStatus`).

    Args:
        arguments: The arguments after the name of the program.
        name: The name of the program, as help texts show it.
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
