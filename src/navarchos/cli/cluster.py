"""The cluster that a command works on: kubectl's options, one client, errors as one line."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from navarchos._version import __version__
from navarchos.cli.exits import ExitStatus
from navarchos.cli.failure import Failure
from navarchos.client import BadRequest, Client, ClientError, Invalid, NotFound
from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS

__all__ = ["Cluster", "cluster_options", "output_option"]

F = TypeVar("F", bound=Callable[..., Any])

_INSTALL: Final = "its definitions are not installed: navarchos crds | kubectl create -f -"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster is meant, as kubectl's options say it."""

    kubeconfig: Path | None
    context: str | None

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """Open a client; nothing is asked of the server yet.

        Raises:
            Failure: Whatever the server refused inside, as one line with its status.
        """
        with Client.from_config(
            kubeconfig=self.kubeconfig,
            context=self.context,
            user_agent=f"navarchos-cli/{__version__}",
        ) as client:
            try:
                yield client
            except (BadRequest, Invalid) as error:
                raise Failure(str(error), status=ExitStatus.USAGE) from error
            except NotFound as error:
                raise _missing(client, error) from error
            except ClientError as error:
                raise Failure(str(error), status=ExitStatus.UNREACHABLE) from error


def _missing(client: Client, error: NotFound) -> Failure:
    try:
        installed = client.has_kind(NODE_ROLLOUTS)
    except ClientError as unreachable:
        return Failure(str(unreachable), status=ExitStatus.UNREACHABLE)
    if not installed:
        why = f"{client.config.host} does not serve {NODE_ROLLOUTS.kind}: {_INSTALL}"
        return Failure(why, status=ExitStatus.UNREACHABLE)
    return Failure(error.message or str(error), status=ExitStatus.NOT_FOUND)


def cluster_options(function: F) -> F:
    """Give a command kubectl's `--kubeconfig`, `--context` and `-n`, as one `cluster`."""

    @functools.wraps(function)
    def call(*, kubeconfig: Path | None, context: str | None, **rest: object) -> object:
        return function(cluster=Cluster(kubeconfig, context), **rest)

    namespace = click.option(
        "-n",
        "--namespace",
        expose_value=False,
        help="Accepted as everywhere in kubectl; nodes and rollouts have no namespace.",
    )
    at = click.option("--context", help="Context of the kubeconfig; its current one by default.")
    path = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        help="By default KUBECONFIG, then the cluster we run in, then ~/.kube/config.",
    )
    return cast("F", path(at(namespace(call))))


def output_option(function: F) -> F:
    """Give a command `-o text` and `-o json`, as `as_json`."""
    return click.option(
        "-o",
        "--output",
        "as_json",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        callback=lambda _context, _parameter, value: value == "json",
        help="json is one object on a line, of a documented shape.",
    )(function)
