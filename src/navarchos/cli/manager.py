"""`navarchos manager`: the process that the Deployment runs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from navarchos import logs
from navarchos._version import __version__
from navarchos.cli.errors import CommandError
from navarchos.cli.options import ADDRESS, DURATION, GO_BOOL
from navarchos.client import Client
from navarchos.errors import ConfigError
from navarchos.instrument import Instruments
from navarchos.leaderelection import LeaseLost
from navarchos.operator import setup
from navarchos.runtime import LeaderElectionOptions, Manager, ManagerOptions, MetricsSecurity
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["manager"]

F = TypeVar("F", bound=Callable[..., Any])


def _go_bool(name: str, *, default: bool, about: str, hidden: bool = False) -> Callable[[F], F]:
    """Declare a boolean flag as Go programs have it: `--x`, `--x=true`, `--x=false`."""
    return click.option(
        name,
        type=GO_BOOL,
        is_flag=False,
        flag_value="true",
        default=str(default).lower(),
        show_default=True,
        help=about,
        hidden=hidden,
    )


@click.command()
@_go_bool("--leader-election", default=False, about="Act only while holding a Lease.")
@click.option("--leader-election-id", default="", help="Name of the Lease.")
@click.option(
    "--leader-election-namespace", default="", help="Namespace of the Lease; ours in a cluster."
)
@click.option("--lease-duration", type=DURATION, default="15s", show_default=True)
@click.option("--renew-deadline", type=DURATION, default="10s", show_default=True)
@click.option("--retry-period", type=DURATION, default="2s", show_default=True)
@click.option(
    "--sync-period",
    type=DURATION,
    default="5m",
    show_default=True,
    help="Every object is looked at again at least this often.",
)
@click.option(
    "--metrics-addr", type=ADDRESS, default=":8080", show_default=True, help="0 turns it off."
)
@_go_bool(
    "--metrics-secure",
    default=False,
    about="Metrics by TLS, and only for tokens that may `get` the nonResourceURL /metrics.",
)
@click.option(
    "--metrics-cert-path",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the certificate for --metrics-secure; renewals are noticed.",
)
@click.option("--metrics-cert-name", default="tls.crt", show_default=True)
@click.option("--metrics-cert-key", default="tls.key", show_default=True)
@click.option(
    "--profiling-addr",
    type=ADDRESS,
    default="0",
    show_default=True,
    help="Stacks and profiles, for anybody who gets there: 127.0.0.1:6060.",
)
@click.option(
    "--health-addr", type=ADDRESS, default=":8081", show_default=True, help="0 turns it off."
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="By default KUBECONFIG, then the cluster we run in, then ~/.kube/config.",
)
@click.option("--context", help="Context of the kubeconfig; its current one by default.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Drains that are worked on at the same moment.",
)
@click.option("--qps", type=click.FloatRange(min=0, min_open=True), help="Requests a second.")
@click.option("--burst", type=click.IntRange(min=1), help="Requests above --qps in one go.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
@click.option(
    "--log-format", type=click.Choice(["json", "console"]), default="json", show_default=True
)
@click.option(
    "--until-stdin-closes",
    is_flag=True,
    hidden=True,
    help="End when standard input does, and so with whoever holds its other end.",
)
@click.option("--v", "-v", "verbosity", type=int, default=0, hidden=True, help="As published.")
@_go_bool("--logtostderr", default=True, about="As published.", hidden=True)
@click.version_option(__version__, message="navarchos %(version)s")
def manager(
    *,
    leader_election: bool,
    leader_election_id: str,
    leader_election_namespace: str,
    lease_duration: float,
    renew_deadline: float,
    retry_period: float,
    sync_period: float,
    metrics_addr: str,
    metrics_secure: bool,
    metrics_cert_path: Path | None,
    metrics_cert_name: str,
    metrics_cert_key: str,
    profiling_addr: str,
    health_addr: str,
    kubeconfig: Path | None,
    context: str | None,
    workers: int,
    qps: float | None,
    burst: int | None,
    log_level: str,
    log_format: logs.LogFormat,
    until_stdin_closes: bool,
    verbosity: int,
    logtostderr: bool,  # noqa: ARG001 - accepted as published; logs always go there
) -> None:
    """Watch the cluster and carry out its rollouts, drains and replacements.

    The flags published in 2019 keep their meaning.
    """
    logs.configure(level="debug" if verbosity > 0 else log_level, style=log_format)
    # One registry, so that /metrics has the client's requests, too.
    instruments = Instruments()
    client = Client.from_config(
        kubeconfig=kubeconfig,
        context=context,
        qps=qps,
        burst=burst,
        instruments=instruments,
        user_agent=f"navarchos-manager/{__version__}",
    )
    election = None
    if leader_election:
        if not leader_election_id:
            raise ConfigError(
                "--leader-election-id",
                leader_election_id,
                "--leader-election requires the name of the Lease",
            )
        election = LeaderElectionOptions(
            name=leader_election_id,
            namespace=leader_election_namespace or client.config.namespace,
            lease_duration=lease_duration,
            renew_deadline=renew_deadline,
            retry_period=retry_period,
        )
    security = None
    if metrics_secure:
        if metrics_cert_path is None:
            raise ConfigError(
                "--metrics-cert-path",
                "",
                "--metrics-secure requires this option; no self-signed certificate is generated",
            )
        security = MetricsSecurity(
            metrics_cert_path / metrics_cert_name, metrics_cert_path / metrics_cert_key
        )
    options = ManagerOptions(
        metrics_address=metrics_addr,
        metrics_security=security,
        profiling_address=profiling_addr,
        health_address=health_addr,
        sync_period=sync_period,
        kinds=setup.KINDS,
        leader_election=election,
        missing_kinds_hint="install the definitions: kubectl create -f config/crds",
    )
    with client:
        process = Manager(client, options=options, instruments=instruments)
        setup.add_operator(process, workers=workers)
        try:
            process.run(_stdin_token() if until_stdin_closes else None, install_signals=True)
        except LeaseLost as error:
            raise CommandError(f"{error}; exiting so that another replica acts alone") from error


def _stdin_token() -> StopToken:
    """Return a token that is set when standard input ends."""
    stop = StopToken()

    def wait_for_the_end() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        stop.stop("standard input has been closed")

    ThreadGroup("stdin", stop=StopToken()).start("", wait_for_the_end)
    return stop
