"""A real control plane for tests."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Self

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError, NotStarted
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import AuditRecord, BucketId, Change
from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.controlplane import credentials, servers, tools
from navarchos.testing.controlplane.audit import AuditEvent
from navarchos.testing.controlplane.binaries import Lookup, find_binaries
from navarchos.testing.controlplane.layout import Network
from navarchos.testing.controlplane.subscription import Subscription
from navarchos.testing.definitions import Source, load_definitions

__all__ = ["WATCHED", "ControlPlane"]

WATCHED: Final = (
    BucketId("nodes", ""),
    BucketId("pods", ""),
    BucketId("poddisruptionbudgets", "policy"),
)
"""The kinds that `ControlPlane.subscribe` watches when none are named."""

_MIN_TOKEN_LIFETIME: Final = 600

_log = get_logger(__name__)


class ControlPlane:
    """A real control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

    ```python
    with ControlPlane() as server:
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        client = server.client()
    ```

    The servers listen on loopback. This is the counterpart of controller-runtime's
    envtest with more parts of a cluster: TLS, RBAC, service accounts with real tokens,
    the admission plugins of a kubeadm cluster, an audit log, and on request fake kubelets
    (`kwok`). It has the methods of the in-process `ApiServer`.

    Promises: when `start` returns, all servers are ready and a pod can be created in the
    namespace `default`. After `stop`, and after this process has ended in any way, no
    server and no file is left.

    Does not promise: the features of the in-process server that need the test's own
    process: virtual time, scripted faults, objects that survive `stop`. In contrast to
    that server, `install` sends requests, and the controllers react to the objects.

    Lifecycle: `start` and `stop` may be called repeatedly; each start begins with an empty
    cluster. The object is a context manager. Starting takes some seconds.

    Threads: every method is safe from any thread.

    Args:
        controllers: Whether kube-controller-manager runs. Without it no service accounts
            are created, and pods do not need one.
        scheduler: Whether kube-scheduler runs.
        crds: CustomResourceDefinitions to install: objects, files or folders.
        arguments: Further arguments by program, such as
            `{"kube-apiserver": ["--v=4"]}`; they override the defaults.
        network: The network of the servers, where real nodes reach them; by default they listen
            on this machine's loopback, without nodes. It must be started before, and stopped
            after the control plane.
        timeout: Seconds until each server must be ready. The default is three times
            envtest's, because tests may share a busy machine.
        lookup: Finds the programs.
        stop: Setting this token ends a wait in `start` or `install`.
        clock: The clock for deadlines.

    Raises:
        ConfigError: A setting is out of range.
        ManifestError: A CustomResourceDefinition cannot be read; see `load_definitions`.
    """

    def __init__(
        self,
        *,
        controllers: bool = True,
        scheduler: bool = True,
        crds: Iterable[Source] = (),
        arguments: Mapping[str, Sequence[str]] | None = None,
        network: Network | None = None,
        timeout: float = 180.0,
        lookup: Lookup | None = None,
        stop: StopToken | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if timeout <= 0:
            raise ConfigError("timeout", timeout, "it must be above 0")
        names = [tool.name for tool in tools.TOOLS]
        for name in arguments or ():
            if name not in names:
                raise ConfigError(
                    "arguments", name, f"the program must be one of {', '.join(names)}"
                )
        self._options = servers.ControlPlaneOptions(
            controllers, scheduler, dict(arguments or {}), timeout, network=network
        )
        self._crds = load_definitions(*crds)
        self._lookup = lookup
        self._stop_token = stop if stop is not None else StopToken(clock=clock)
        self._clock = clock
        self._lifecycle_lock = threading.Lock()
        self._running: servers.RunningControlPlane | None = None  # guarded by _lifecycle_lock
        self._subscriptions: list[Subscription] = []  # guarded by _lifecycle_lock

    def start(self) -> Self:
        """Start the servers, wait until all are ready, and return the object itself.

        Does nothing if they are running. After an error no server and no file is left.

        Raises:
            BinariesMissing: Programs were not found.
            PartFailed: A server ended.
            PartNotReady: A server was not ready in time.
            StatusError: A CustomResourceDefinition was rejected.
            Stopped: The stop token is set.
        """
        with self._lifecycle_lock:
            if self._running is None:
                self._running = self._start()
        return self

    def stop(self) -> None:
        """Stop all servers and remove their data. May be called repeatedly."""
        with self._lifecycle_lock:
            running, self._running = self._running, None
            subscriptions, self._subscriptions = self._subscriptions, []
        try:
            for subscription in subscriptions:
                subscription.close()
        finally:
            if running is not None:
                running.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The base address, `https://127.0.0.1:PORT`.

        Raises:
            NotStarted: The control plane is not running.
        """
        return self._now().layout.url

    @property
    def network(self) -> Network | None:
        """The network of the servers, `None` for the network of this machine."""
        return self._options.network

    @property
    def internal_url(self) -> str:
        """The base address for nodes and pods in the network of the servers.

        Raises:
            NotStarted: The control plane is not running.
        """
        return self._now().layout.internal_url

    @property
    def etcd_url(self) -> str:
        """The client address of etcd, without TLS, for tests below the API.

        Raises:
            NotStarted: The control plane is not running.
        """
        return self._now().layout.etcd_url

    @property
    def directory(self) -> Path:
        """The folder of the servers, with a log `NAME.log` each. Removed by `stop`.

        Raises:
            NotStarted: The control plane is not running.
        """
        return self._now().layout.directory

    def kubeconfig(self) -> JsonObject:
        """Return a kubeconfig of the administrator, who has all permissions."""
        running = self._now()
        return credentials.make_kubeconfig(
            running.layout.url,
            running.layout.authority,
            credentials.certificate_user(running.administrator),
        )

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write the kubeconfig to a file that only its owner can read."""
        credentials.write_private(path, self.kubeconfig())

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, lifetime: int = 3600
    ) -> JsonObject:
        """Return a kubeconfig of a service account with a new token.

        Args:
            namespace: The account's namespace, also the default one of the kubeconfig.
            name: The account.
            lifetime: Seconds until the token expires, at least 600.

        Raises:
            ConfigError: The lifetime is less than the API server's minimum.
            StatusError: 404, the account does not exist.
        """
        if lifetime < _MIN_TOKEN_LIFETIME:
            raise ConfigError(
                "lifetime", lifetime, f"it must be at least {_MIN_TOKEN_LIFETIME} seconds"
            )
        running = self._now()
        token = running.access.request_token(namespace, name, lifetime)
        layout = running.layout
        user = credentials.token_user(token)
        return credentials.make_kubeconfig(layout.url, layout.authority, user, namespace=namespace)

    def client(
        self, *, user_agent: str = "navarchos-test", user: str = "", groups: Sequence[str] = ()
    ) -> Client:
        """Return a client with `client_config`; the caller must close it."""
        return Client(self.client_config(user_agent=user_agent, user=user, groups=groups))

    @property
    def clock(self) -> Clock:
        """The system clock, which the servers use."""
        return SYSTEM_CLOCK

    def client_config(
        self, *, user_agent: str = "navarchos-test", user: str = "", groups: Sequence[str] = ()
    ) -> ClientConfig:
        """Return the configuration of a client of the API server.

        Args:
            user_agent: The user agent, by which `requests_by` counts requests.
            user: The user name, for which a certificate is issued; `""` for the
                administrator.
            groups: The user's groups.
        """
        running = self._now()
        pair = running.administrator
        if user:
            pair = running.issue_client(user, groups)
        return running.client_config(pair, user_agent)

    @property
    def authority(self) -> Path:
        """The certificate of the authority that all servers and clients trust."""
        return self._now().layout.authority

    def client_certificate(self, user: str, groups: Sequence[str] = ()) -> credentials.KeyPair:
        """Issue a certificate for a user, such as a kubelet, in these groups."""
        return self._now().issue_client(user, groups)

    def server_certificate(self, hosts: Sequence[str]) -> credentials.KeyPair:
        """Issue a certificate for a server, such as a kubelet, under these names and addresses."""
        return self._now().issue_server(hosts)

    def install(self, *manifests: Mapping[str, object]) -> None:
        """Create objects as the administrator, with strict validation of fields.

        A given `status` is also written if the kind has a status subresource. The call
        waits until a CustomResourceDefinition is served and until a namespace has its
        default service account.

        Raises:
            StatusError: An object was rejected; the objects before it are stored.
            DefinitionNotReady: The names of a CustomResourceDefinition are taken.
            PartNotReady: A created object was not usable in time.
        """
        access = self._now().access
        for manifest in manifests:
            access.install(manifest)

    def get(
        self, plural: str, name: str, namespace: str | None = None, group: str = ""
    ) -> JsonObject:
        """Return an object in the server's preferred version.

        Raises:
            StatusError: 404, the object or the kind does not exist.
        """
        return self._now().access.get(BucketId(plural, group), namespace or "", name)

    def list(self, plural: str, namespace: str | None = None, group: str = "") -> list[JsonObject]:
        """Return the objects of a kind, in key order.

        Raises:
            StatusError: 404, the kind does not exist.
        """
        return self._now().access.list(BucketId(plural, group), namespace or "")

    def subscribe(
        self, listener: Callable[[Change], None], *, kinds: Iterable[BucketId] = WATCHED
    ) -> Callable[[], None]:
        """Call `listener` after every change of some kinds; return a function that ends this.

        In contrast to the in-process server, the changes come from watches on a separate
        connection: shortly after the write, in order per object only, and without the
        request that made the change. The returned function waits until the watches have
        ended.

        Raises:
            StatusError: 404, a kind does not exist.
        """
        running = self._now()
        resources = [running.access.resource(kind) for kind in kinds]
        subscription = Subscription(running.client, resources, listener)
        with self._lifecycle_lock:
            self._subscriptions.append(subscription)
        return lambda: self._unsubscribe(subscription)

    @property
    def requests(self) -> Mapping[str, int]:
        """The number of requests by verb; an eviction counts as `evict` only.

        Requests of the control plane's own servers are included.
        """
        return self._now().audit.requests_by("")

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Like `requests`, of clients whose user agent begins with `agent`."""
        return self._now().audit.requests_by(agent)

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The latest requests, oldest first, at most 10,000. A watch is added when it ends.

        A request may still be missing shortly after its response has arrived.
        """
        return self._now().audit.records

    def audit_events(self) -> Iterator[AuditEvent]:
        """Read the whole audit log: users, requests and decisions, oldest first."""
        return self._now().audit.events()

    def compact(self) -> None:
        """Compact the history in etcd.

        The API server serves watches, and since recent releases also pages of lists, from
        its own cache, which keeps its history until `restart_apiserver`. After a restart,
        requests for earlier resourceVersions are answered with 410.
        """
        servers.compact_etcd(self._now().layout.etcd_url)

    def kwok(self, *, all_nodes: bool = False) -> None:
        """Start kwok, which plays the kubelets: nodes become Ready, pods run and terminate.

        Args:
            all_nodes: Manage all nodes instead of those with the annotation
                `kwok.x-k8s.io/node: fake`.

        Raises:
            BinariesMissing: kwok was not found; the control plane keeps running.
            ControlPlaneError: kwok is already running or failed.
        """
        running = self._now()
        binary = find_binaries([tools.KWOK], self._lookup)[tools.KWOK]
        running.start_kwok(binary, all_nodes=all_nodes)

    def restart_apiserver(self, *, kill: bool = False) -> None:
        """Restart the API server; its address and all objects stay.

        Args:
            kill: Kill it (SIGKILL) instead of letting it finish its requests.
        """
        self.stop_apiserver(kill=kill)
        self.start_apiserver()

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """Stop only the API server, until `start_apiserver`."""
        self._now().stop_apiserver(kill=kill)

    def start_apiserver(self) -> None:
        """Start the API server again, and wait until it is ready."""
        self._now().start_apiserver()

    def paused_etcd(self) -> AbstractContextManager[None]:
        """Pause etcd for the length of a `with` block, so that no write succeeds."""
        return self._now().paused(tools.ETCD)

    def _start(self) -> servers.RunningControlPlane:
        began = self._clock.monotonic()
        binaries = find_binaries(self._options.tools, self._lookup)
        running = servers.start_control_plane(
            binaries, self._options, stop=self._stop_token, clock=self._clock
        )
        try:
            for manifest in self._crds:
                running.access.install(manifest)
        except BaseException:
            running.stop()
            raise
        _log.info(
            "control_plane_ready",
            url=running.layout.url,
            seconds=round(self._clock.monotonic() - began, 2),
        )
        return running

    def _now(self) -> servers.RunningControlPlane:
        with self._lifecycle_lock:
            if self._running is None:
                raise NotStarted("control plane")
            return self._running

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._lifecycle_lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
        subscription.close()
