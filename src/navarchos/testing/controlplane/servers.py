"""Start and stop the servers of one control plane."""

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from navarchos.client import Client, ClientConfig
from navarchos.clock import Clock
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import BucketId
from navarchos.testing.controlplane import access, audit, credentials, errors, health, kwok, tools
from navarchos.testing.controlplane.binaries import Binary
from navarchos.testing.controlplane.guard import Guard
from navarchos.testing.controlplane.layout import HOST, Layout, Network, Ports

__all__ = [
    "AUDIT_POLICY",
    "NODE_ANNOTATION",
    "ControlPlaneOptions",
    "RunningControlPlane",
    "apiserver_arguments",
    "compact_etcd",
    "controller_manager_arguments",
    "etcd_arguments",
    "kwok_arguments",
    "scheduler_arguments",
    "start_control_plane",
]

NODE_ANNOTATION: Final = "kwok.x-k8s.io/node=fake"
"""The annotation of nodes that kwok manages."""

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "Metadata"},
    ],
}
"""Log every request except health checks, without bodies."""

_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_SERVICE_RANGE: Final = "10.96.0.0/16"
_SERVICE_ADDRESS: Final = "10.96.0.1"  # of the service `kubernetes`: the first of the range
_POD_RANGE: Final = "10.244.0.0/16"
_UNLIMITED: Final = ("--kube-api-qps=1000", "--kube-api-burst=2000")
_NODE_LEASE_SECONDS: Final = 40  # a kubelet's default


def etcd_arguments(layout: Layout) -> Sequence[str]:
    """Return the arguments of a single etcd that does not sync to disk."""
    return (
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls=http://{HOST}:0",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def apiserver_arguments(layout: Layout, *, service_accounts: bool = True) -> Sequence[str]:
    """Return the arguments of an API server with RBAC and an audit log.

    Args:
        layout: Files and ports.
        service_accounts: Whether pods must have a service account, which only the
            controller manager creates.
    """
    certificates = layout.certificates
    admission = () if service_accounts else ("--disable-admission-plugins=ServiceAccount",)
    return (
        *(_on_loopback() if not layout.address else _for_nodes(layout)),
        f"--secure-port={layout.ports.apiserver}",
        f"--etcd-servers={layout.etcd_url}",
        f"--cert-dir={certificates}",
        f"--tls-cert-file={certificates / 'server.crt'}",
        f"--tls-private-key-file={certificates / 'server.key'}",
        f"--client-ca-file={layout.authority}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        *admission,
        "--allow-privileged=true",
        f"--service-cluster-ip-range={_SERVICE_RANGE}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={certificates / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={certificates / 'service-accounts.key'}",
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        # In megabytes. The default rotates the log after 100 MB.
        "--audit-log-maxsize=100000",
        # Otherwise open watches delay the shutdown by a minute.
        "--shutdown-watch-termination-grace-period=1s",
    )


def _on_loopback() -> Sequence[str]:
    return (
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        # An endpoint address must not be loopback, so the server cannot publish its own.
        "--endpoint-reconciler-type=none",
    )


def _for_nodes(layout: Layout) -> Sequence[str]:
    """Return the arguments with which kubelets and pods reach the server, and it the kubelets."""
    certificates = layout.certificates
    return (
        "--bind-address=0.0.0.0",
        f"--advertise-address={layout.address}",
        "--endpoint-reconciler-type=lease",
        f"--kubelet-client-certificate={certificates / 'administrator.crt'}",
        f"--kubelet-client-key={certificates / 'administrator.key'}",
        f"--kubelet-certificate-authority={layout.authority}",
        # No name service knows the names of nodes.
        "--kubelet-preferred-address-types=InternalIP",
    )


def controller_manager_arguments(layout: Layout) -> Sequence[str]:
    """Return the arguments of a controller manager."""
    certificates = layout.certificates
    return (
        *_component(layout, "kube-controller-manager", layout.ports.controller_manager),
        f"--root-ca-file={layout.authority}",
        f"--service-account-private-key-file={certificates / 'service-accounts.key'}",
        f"--cluster-signing-cert-file={layout.authority}",
        f"--cluster-signing-key-file={certificates / 'ca.key'}",
        "--use-service-account-credentials=true",
        "--controllers=*,bootstrapsigner,tokencleaner",
        # The controller manager creates this folder; the default is outside our directory.
        f"--flex-volume-plugin-dir={layout.directory / 'volume-plugins'}",
    )


def scheduler_arguments(layout: Layout) -> Sequence[str]:
    """Return the arguments of a scheduler."""
    return _component(layout, "kube-scheduler", layout.ports.scheduler)


def kwok_arguments(layout: Layout, *, all_nodes: bool) -> Sequence[str]:
    """Return the arguments of kwok, for all nodes or for annotated ones only."""
    nodes = (
        ("--manage-all-nodes=true",)
        if all_nodes
        else (
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={NODE_ANNOTATION}",
        )
    )
    return (
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={layout.kwok_config}",
        f"--server-address={HOST}:{layout.ports.kwok}",
        f"--node-lease-duration-seconds={_NODE_LEASE_SECONDS}",
        f"--cidr={_POD_RANGE}",
        f"--node-ip={HOST}",
        *nodes,
    )


def _component(layout: Layout, name: str, port: int) -> Sequence[str]:
    kubeconfig: Path = layout.kubeconfig(name)
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        # There is no aggregation layer, so there are no request-header users to look up.
        "--authentication-skip-lookup=true",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.certificates / 'server.crt'}",
        f"--tls-private-key-file={layout.certificates / 'server.key'}",
        "--leader-elect=false",
        *_UNLIMITED,
    )


_ATTEMPTS: Final = 5  # as in envtest: another process may take a port first
_PORT_TAKEN: Final = "address already in use"
_ADMINISTRATORS: Final = "system:masters"
_AGENT: Final = "navarchos-control-plane"
_SERVER_NAMES: Final = (HOST, "localhost", "kubernetes", "kubernetes.default.svc")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ControlPlaneOptions:
    """The settings of a control plane.

    Attributes:
        controllers: Whether kube-controller-manager runs.
        scheduler: Whether kube-scheduler runs.
        arguments: Further arguments by program; they override the defaults.
        timeout: Seconds until each server must be ready.
        choose_ports: Returns the ports of the servers; called for each attempt.
        network: The network of the servers; `None` for the network of this machine.
    """

    controllers: bool = True
    scheduler: bool = True
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timeout: float = 180.0
    choose_ports: Callable[[], Ports] = Ports.choose
    network: Network | None = None

    @property
    def tools(self) -> Sequence[tools.Tool]:
        """The programs that these settings need."""
        optional = ((tools.CONTROLLER_MANAGER, self.controllers), (tools.SCHEDULER, self.scheduler))
        return (tools.ETCD, tools.APISERVER, *(tool for tool, wanted in optional if wanted))


def start_control_plane(
    binaries: Mapping[tools.Tool, Binary],
    options: ControlPlaneOptions,
    *,
    stop: StopToken,
    clock: Clock,
) -> "RunningControlPlane":
    """Start a control plane and wait until all servers are ready.

    Raises:
        ControlPlaneError: A server failed. All servers and files are removed.
        Stopped: The stop token was set. All servers and files are removed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _start_once(binaries, options, stop, clock)
        except errors.PartFailed as error:
            if _PORT_TAKEN not in error.tail or attempt == _ATTEMPTS:
                raise
            _log.warning("control_plane_port_taken", part=error.part, attempt=attempt)
    raise AssertionError("the last attempt returns or raises")


def _start_once(
    binaries: Mapping[tools.Tool, Binary],
    options: ControlPlaneOptions,
    stop: StopToken,
    clock: Clock,
) -> "RunningControlPlane":
    with ExitStack() as cleanup:
        guard = Guard(options.network)
        cleanup.callback(guard.stop)
        ports = options.choose_ports()
        cleanup.callback(ports.release)
        running = RunningControlPlane(guard, ports, binaries, options, stop=stop, clock=clock)
        cleanup.callback(running.stop)
        running.start()
        cleanup.pop_all()
    return running


class RunningControlPlane:
    """A control plane's processes, files and administrator.

    Lifecycle: `start` once, `stop`.
    Threads: safe from any thread after `start`.

    Attributes:
        layout: Files and ports.
        authority: Issues certificates that the API server accepts.
        administrator: The certificate of the administrator, who has all permissions.
        audit: The API server's audit log.
        access: Reads and creates objects.
        client: The administrator's client.
    """

    def __init__(
        self,
        guard: Guard,
        ports: Ports,
        binaries: Mapping[tools.Tool, Binary],
        options: ControlPlaneOptions,
        *,
        stop: StopToken,
        clock: Clock,
    ) -> None:
        self._binaries = binaries
        self._options = options
        self._guard = guard
        self._waiter = health.ReadinessWaiter(
            self._guard, stop=stop, timeout=options.timeout, clock=clock
        )
        address = options.network.address if options.network is not None else ""
        self.layout = Layout(self._guard.directory, ports, address)
        self.layout.certificates.mkdir()
        self.authority = credentials.Authority(self.layout.certificates, clock=clock)
        self.administrator = self.authority.issue_client(
            "administrator", "kubernetes-admin", [_ADMINISTRATORS]
        )
        self._users = count(1)
        self._end_forwarding: Callable[[], None] = lambda: None
        self.audit = audit.AuditLogFile(self.layout.audit_log)
        self.client = Client(self.client_config(self.administrator, _AGENT))
        self.access = access.Access(
            self.client,
            wait=lambda check: self._waiter.until(tools.APISERVER.name, check),
            service_accounts=options.controllers,
        )

    def start(self) -> None:
        """Start the servers and wait until they are ready."""
        if self._options.network is not None:
            self._end_forwarding = self._options.network.forward(self.layout.ports.numbers)
        self._write_files()
        self._launch(tools.ETCD, etcd_arguments(self.layout))
        port = self.layout.ports.etcd
        self._waiter.until(tools.ETCD.name, lambda: health.http_health(port, "/health"))
        self.start_apiserver()
        if self._options.controllers:
            self._launch(tools.CONTROLLER_MANAGER, controller_manager_arguments(self.layout))
        if self._options.scheduler:
            self._launch(tools.SCHEDULER, scheduler_arguments(self.layout))
        self._wait_for_the_rest()

    def stop(self) -> None:
        """Stop the servers, remove their files and release their ports."""
        self.client.close()
        self._guard.stop()
        self._end_forwarding()
        self.layout.ports.release()

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
        arguments = apiserver_arguments(self.layout, service_accounts=self._options.controllers)
        self._launch(tools.APISERVER, arguments)
        ports, authority = self.layout.ports, self.layout.authority
        self._waiter.until(
            tools.APISERVER.name, lambda: health.http_health(ports.apiserver, "/readyz", authority)
        )

    def stop_apiserver(self, *, kill: bool) -> None:
        """Stop the API server; its port and its data stay reserved for a restart."""
        if kill:
            self._guard.signal(tools.APISERVER.name, signal.SIGKILL)
        self._guard.stop_server(tools.APISERVER.name)

    def start_kwok(self, binary: Binary, *, all_nodes: bool) -> None:
        """Start fake kubelets and wait until they are ready."""
        self.layout.kwok_config.write_text(kwok.kwok_config(), encoding="utf-8")
        self._write_kubeconfig(tools.KWOK.name, "kwok", [_ADMINISTRATORS])
        arguments = kwok_arguments(self.layout, all_nodes=all_nodes)
        self._guard.start(tools.KWOK.name, str(binary.path), *arguments, *self._further(tools.KWOK))
        port = self.layout.ports.kwok
        self._waiter.until(tools.KWOK.name, lambda: health.http_health(port, "/healthz"))

    @contextmanager
    def paused(self, tool: tools.Tool) -> Iterator[None]:
        """Pause a server (SIGSTOP) for the length of a `with` block."""
        self._guard.signal(tool.name, signal.SIGSTOP)
        try:
            yield
        finally:
            self._guard.signal(tool.name, signal.SIGCONT)

    def client_config(self, user: credentials.KeyPair, user_agent: str) -> ClientConfig:
        """Return a client configuration that uses this certificate."""
        return ClientConfig(
            self.layout.url,
            ca_file=str(self.layout.authority),
            cert_file=str(user.certificate),
            key_file=str(user.key),
            user_agent=user_agent,
        )

    def issue_client(self, user: str, groups: Sequence[str]) -> credentials.KeyPair:
        """Return a new certificate for a user."""
        return self.authority.issue_client(f"user-{next(self._users)}", user, groups)

    def issue_server(self, hosts: Sequence[str]) -> credentials.KeyPair:
        """Return a new certificate for a server under these names and addresses."""
        return self.authority.issue_server(f"server-{next(self._users)}", hosts)

    def _wait_for_the_rest(self) -> None:
        ports, authority = self.layout.ports, self.layout.authority
        # The API server creates the namespace shortly after it reports readiness.
        self._waiter.until(tools.APISERVER.name, self._missing("namespaces", ""))
        if self._options.controllers:
            port = ports.controller_manager
            self._waiter.until(
                tools.CONTROLLER_MANAGER.name,
                lambda: health.http_health(port, "/healthz", authority),
            )
            # Pods cannot be created before the namespace has its default service account.
            self._waiter.until(
                tools.CONTROLLER_MANAGER.name, self._missing("serviceaccounts", "default")
            )
        if self._options.scheduler:
            self._waiter.until(
                tools.SCHEDULER.name,
                lambda: health.http_health(ports.scheduler, "/readyz", authority),
            )

    def _missing(self, plural: str, namespace: str) -> Callable[[], str]:
        return lambda: self.access.missing(BucketId(plural, ""), namespace, "default")

    def _launch(self, tool: tools.Tool, arguments: Sequence[str]) -> None:
        path = str(self._binaries[tool].path)
        self._guard.start(tool.name, path, *arguments, *self._further(tool))

    def _further(self, tool: tools.Tool) -> Sequence[str]:
        return self._options.arguments.get(tool.name, ())

    def _write_files(self) -> None:
        credentials.make_signing_keys(self.layout.certificates, "service-accounts")
        names = (*_SERVER_NAMES, *self._names_for_nodes())
        self.authority.issue_server("server", names)
        credentials.write_private(self.layout.audit_policy, AUDIT_POLICY)
        for tool in (tools.CONTROLLER_MANAGER, tools.SCHEDULER):
            self._write_kubeconfig(tool.name, f"system:{tool.name}", ())

    def _names_for_nodes(self) -> Sequence[str]:
        address = self.layout.address
        return (address, _SERVICE_ADDRESS, "kubernetes.default") if address else ()

    def _write_kubeconfig(self, name: str, user: str, groups: Sequence[str]) -> None:
        pair = self.authority.issue_client(name, user, groups)
        config = credentials.make_kubeconfig(
            self.layout.url, self.layout.authority, credentials.certificate_user(pair)
        )
        credentials.write_private(self.layout.kubeconfig(name), config)


_TIMEOUT: Final = 10.0
_KEY: Final = "AA=="  # any; the answer's header is what counts


def compact_etcd(url: str) -> int:
    """Compact etcd's history up to now and return the remaining revision.

    Args:
        url: The client address of etcd.

    Raises:
        OSError: etcd does not answer.
    """
    revision = _call(f"{url}/v3/kv/range", {"key": _KEY})["header"]["revision"]
    _call(f"{url}/v3/kv/compaction", {"revision": revision, "physical": True})
    return int(revision)


def _call(url: str, body: dict[str, object]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")  # noqa: S310
    # The address is loopback: ignore proxy settings.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_TIMEOUT) as response:
        answer: dict[str, Any] = json.load(response)
    return answer
