"""Options that several commands share: kubectl's options, and the option types of Go programs."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from navarchos._version import __version__
from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.client import BadRequest, Client, ClientError, ClientSettings, Invalid, NotFound
from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS
from navarchos.runtime.durations import parse_duration

__all__ = ["ADDRESS", "DURATION", "GO_BOOL", "TargetCluster", "cluster_options", "output_option"]


class _Duration(click.ParamType[float]):
    """A Go duration (`5m`, `1h30m`, `15s`) as seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class _Address(click.ParamType[str]):
    """A listen address: `:8080`, `127.0.0.1:8080`, or `0` for off."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        if text in {"", "0"}:
            return "0"
        _, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            self.fail(
                f"{text!r} is not an address: use host:port, :port, or 0 for off.", param, ctx
            )
        return text


class _GoBool(click.ParamType[bool]):
    """A Go boolean flag: `--flag`, `--flag=true`, `--flag=false`."""

    name = "bool"
    _words: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> bool:
        word = self._words.get(str(value).lower())
        if word is None:
            self.fail(f"{value!r} is neither true nor false.", param, ctx)
        return word


DURATION: Final = _Duration()
ADDRESS: Final = _Address()
GO_BOOL: Final = _GoBool()


F = TypeVar("F", bound=Callable[..., Any])

_INSTALL: Final = (
    "the CustomResourceDefinitions are not installed; run: navarchos crds | kubectl create -f -"
)


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """The cluster that kubectl's options select."""

    kubeconfig: Path | None
    context: str | None

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """Open a client. This sends no request to the server.

        Raises:
            CommandError: A request inside the block failed.
        """
        with Client.from_config(
            kubeconfig=self.kubeconfig,
            context=self.context,
            settings=ClientSettings(user_agent=f"navarchos-cli/{__version__}"),
        ) as client:
            try:
                yield client
            except (BadRequest, Invalid) as error:
                raise CommandError(str(error), status=ExitStatus.USAGE) from error
            except NotFound as error:
                raise _not_found(client, error) from error
            except ClientError as error:
                raise CommandError(str(error), status=ExitStatus.UNREACHABLE) from error


def _not_found(client: Client, error: NotFound) -> CommandError:
    try:
        installed = client.has_kind(NODE_ROLLOUTS)
    except ClientError as unreachable:
        return CommandError(str(unreachable), status=ExitStatus.UNREACHABLE)
    if not installed:
        why = f"{client.config.host} does not serve {NODE_ROLLOUTS.kind}: {_INSTALL}"
        return CommandError(why, status=ExitStatus.UNREACHABLE)
    return CommandError(error.message or str(error), status=ExitStatus.NOT_FOUND)


def cluster_options(function: F) -> F:
    """Add kubectl's `--kubeconfig`, `--context` and `-n` to a command, as one `cluster`."""

    @functools.wraps(function)
    def call(*, kubeconfig: Path | None, context: str | None, **rest: object) -> object:
        return function(cluster=TargetCluster(kubeconfig, context), **rest)

    namespace = click.option(
        "-n",
        "--namespace",
        expose_value=False,
        help="Accepted for compatibility with kubectl; nodes and rollouts have no namespace.",
    )
    at = click.option(
        "--context", help="Context of the kubeconfig. By default the current context of the file."
    )
    path = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        help="By default KUBECONFIG, then the cluster of this process, then ~/.kube/config.",
    )
    return cast("F", path(at(namespace(call))))


def output_option(function: F) -> F:
    """Add `-o text` and `-o json` to a command, as `as_json`."""
    return click.option(
        "-o",
        "--output",
        "as_json",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        callback=lambda _context, _parameter, value: value == "json",
        help="json prints one object on one line, with documented fields.",
    )(function)
