"""`navarchos manager`: the process that the Deployment runs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from navarchos import logs
from navarchos._version import __version__
from navarchos.cli.controllers import controllers_option, flags
from navarchos.cli.errors import CommandError
from navarchos.cli.options import ADDRESS, DURATION, GO_BOOL
from navarchos.client import Client, ClientSettings
from navarchos.errors import ConfigError
from navarchos.instrument import Instruments
from navarchos.leaderelection import LeaseLost, LeaseTiming
from navarchos.operator.systems import System, add_systems, cached_kinds
from navarchos.runtime import LeaderElectionOptions, Manager, ManagerOptions, MetricsSecurity
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["ManagerSettings", "manager"]

F = TypeVar("F", bound=Callable[..., Any])


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `navarchos manager`, one field for each."""

    systems: tuple[System, ...]
    leader_election: bool
    leader_election_id: str
    leader_election_namespace: str
    lease_duration: float
    renew_deadline: float
    retry_period: float
    sync_period: float
    metrics_addr: str
    metrics_secure: bool
    metrics_cert_path: Path | None
    metrics_cert_name: str
    metrics_cert_key: str
    profiling_addr: str
    health_addr: str
    kubeconfig: Path | None
    context: str | None
    workers: int
    qps: float | None
    burst: int | None
    log_level: str
    log_format: logs.LogFormat
    until_stdin_closes: bool
    verbosity: int
    logtostderr: bool
    """Accepted because it was published in 2019. Logs always go to standard error."""


def _go_bool(name: str, *, default: bool, about: str, hidden: bool = False) -> Callable[[F], F]:
    """Declare a boolean flag in the form of Go programs: `--x`, `--x=true`, `--x=false`."""
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
@controllers_option("The controllers to run.")
@_go_bool("--leader-election", default=False, about="Act only while holding a Lease.")
@click.option("--leader-election-id", default="", help="Name of the Lease.")
@click.option(
    "--leader-election-namespace",
    default="",
    help="Namespace of the Lease. By default the namespace of the manager.",
)
@click.option(
    "--lease-duration",
    type=DURATION,
    default="15s",
    show_default=True,
    help="Time after which another replica can take a Lease that is not renewed.",
)
@click.option(
    "--renew-deadline",
    type=DURATION,
    default="10s",
    show_default=True,
    help="Time after which a leader that cannot renew the Lease steps down.",
)
@click.option(
    "--retry-period",
    type=DURATION,
    default="2s",
    show_default=True,
    help="Time between two attempts to acquire or renew the Lease.",
)
@click.option(
    "--sync-period",
    type=DURATION,
    default="5m",
    show_default=True,
    help="Reconcile every object at least this often.",
)
@click.option(
    "--metrics-addr",
    type=ADDRESS,
    default=":8080",
    show_default=True,
    help="Address of the Prometheus metrics; 0 turns them off.",
)
@_go_bool(
    "--metrics-secure",
    default=False,
    about="Serve metrics over TLS, to clients that may `get` the nonResourceURL /metrics.",
)
@click.option(
    "--metrics-cert-path",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the certificate for --metrics-secure. A renewed certificate is reloaded.",
)
@click.option(
    "--metrics-cert-name",
    default="tls.crt",
    show_default=True,
    help="File name of the certificate.",
)
@click.option(
    "--metrics-cert-key", default="tls.key", show_default=True, help="File name of the key."
)
@click.option(
    "--profiling-addr",
    type=ADDRESS,
    default="0",
    show_default=True,
    help="Address of thread dumps and CPU profiles, without authentication: use a loopback "
    "address such as 127.0.0.1:6060; 0 turns them off.",
)
@click.option(
    "--health-addr",
    type=ADDRESS,
    default=":8081",
    show_default=True,
    help="Address of the probes /healthz and /readyz; 0 turns them off.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="By default KUBECONFIG, then the cluster that the manager runs in, then ~/.kube/config.",
)
@click.option(
    "--context", help="Context of the kubeconfig. By default the current context of the file."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Number of drains that are reconciled concurrently.",
)
@click.option(
    "--qps",
    type=click.FloatRange(min=0, min_open=True),
    help="Requests per second to the API server. By default the client has no limit.",
)
@click.option(
    "--burst", type=click.IntRange(min=1), help="Requests that may exceed --qps at one time."
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    show_default=True,
    help="Lowest level of the logs.",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "console"]),
    default="json",
    show_default=True,
    help="Format of the logs.",
)
@click.option(
    "--until-stdin-closes", is_flag=True, hidden=True, help="Exit when standard input is closed."
)
@click.option("--v", "-v", "verbosity", type=int, default=0, hidden=True)
@_go_bool("--logtostderr", default=True, about="", hidden=True)
@click.version_option(__version__, message="navarchos %(version)s")
def manager(**given: Any) -> None:
    """Run the controllers of rollouts, replacements and drains, or those of --controllers.

    The flags published in 2019 keep their meaning.
    """
    settings = ManagerSettings(**given)
    debug = settings.verbosity > 0
    logs.configure(level="debug" if debug else settings.log_level, style=settings.log_format)
    # The client and the manager share one registry, so that /metrics also has the requests.
    instruments = Instruments()
    with Client.from_config(
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        instruments=instruments,
        settings=ClientSettings(
            qps=settings.qps, burst=settings.burst, user_agent=f"navarchos-manager/{__version__}"
        ),
    ) as client:
        options = _manager_options(settings, client)
        process = Manager(client, options=options, instruments=instruments)
        add_systems(process, settings.systems, workers=settings.workers)
        stop = _stdin_token() if settings.until_stdin_closes else None
        try:
            process.run(stop, install_signals=True)
        except LeaseLost as error:
            why = f"{error}; exiting so that only the new leader acts"
            raise CommandError(why) from error


def _manager_options(settings: ManagerSettings, client: Client) -> ManagerOptions:
    return ManagerOptions(
        metrics_address=settings.metrics_addr,
        metrics_security=_metrics_security(settings) if settings.metrics_secure else None,
        profiling_address=settings.profiling_addr,
        health_address=settings.health_addr,
        sync_period=settings.sync_period,
        kinds=cached_kinds(settings.systems),
        leader_election=_leader_election(settings, client) if settings.leader_election else None,
        missing_kinds_hint="install the CustomResourceDefinitions: kubectl create -f config/crds",
        missing_permissions_hint=f"grant its permissions: {_manifests(settings)} | "
        "kubectl apply -f -",
    )


def _manifests(settings: ManagerSettings) -> str:
    return " ".join(["navarchos manifests", *flags(each.name for each in settings.systems)])


def _leader_election(settings: ManagerSettings, client: Client) -> LeaderElectionOptions:
    if not settings.leader_election_id:
        raise ConfigError(
            "--leader-election-id",
            settings.leader_election_id,
            "--leader-election requires the name of the Lease",
        )
    return LeaderElectionOptions(
        name=settings.leader_election_id,
        namespace=settings.leader_election_namespace or client.config.namespace,
        timing=LeaseTiming(settings.lease_duration, settings.renew_deadline, settings.retry_period),
    )


def _metrics_security(settings: ManagerSettings) -> MetricsSecurity:
    path = settings.metrics_cert_path
    if path is None:
        raise ConfigError(
            "--metrics-cert-path",
            "",
            "--metrics-secure requires this option; no self-signed certificate is generated",
        )
    return MetricsSecurity(path / settings.metrics_cert_name, path / settings.metrics_cert_key)


def _stdin_token() -> StopToken:
    """Return a token that is set when standard input is closed."""
    stop = StopToken()

    def wait_for_close() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        stop.stop("standard input was closed")

    ThreadGroup("stdin", stop=StopToken()).start("", wait_for_close)
    return stop
