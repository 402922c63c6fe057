"""The command group, and the one place where errors become exit statuses."""

import importlib
from collections.abc import Sequence
from typing import Final

import click

from navarchos._version import __version__
from navarchos.cli.failure import Failure
from navarchos.cli.main import INTERRUPTED, USAGE_ERROR
from navarchos.errors import ConfigError

__all__ = ["cli", "run"]

_COMMANDS: Final = {
    "crds": ("navarchos.cli.crds", "crds"),
    "manager": ("navarchos.cli.manager", "manager"),
    "manifests": ("navarchos.cli.manifests", "manifests"),
    "sandbox": ("navarchos.cli.sandbox.command", "sandbox"),
}


class _LazyGroup(click.Group):
    """Imports a command when it is asked for: starting up is part of the product."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="navarchos %(version)s")
def cli() -> None:
    """Návarchos replaces the nodes of a Kubernetes cluster, group by group."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status.

    0 is success, 1 means that it did not come to its end, 2 is bad usage, 130 is
    Ctrl-C.
    """
    try:
        status = cli.main(args=list(arguments), prog_name="navarchos", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        return _refuse(_one_line(error), USAGE_ERROR)
    except ConfigError as error:
        return _refuse(str(error), USAGE_ERROR)
    except Failure as error:
        return _refuse(str(error), error.status)
    except KeyboardInterrupt:
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _one_line(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if context is None:
        return message
    return f"{message} Try '{context.command_path} --help'."


def _refuse(message: str, status: int) -> int:
    click.echo(f"navarchos: {' '.join(message.split())}", err=True)
    return status
