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
from navarchos.testing.controlplane.audit import AuditEvent
from navarchos.testing.controlplane.binaries import Lookup, find_binaries
from navarchos.testing.controlplane.credentials import (
    certificate_user,
    make_kubeconfig,
    token_user,
    write_private,
)
from navarchos.testing.controlplane.servers import (
    ControlPlaneOptions,
    RunningControlPlane,
    compact_etcd,
    start_control_plane,
)
from navarchos.testing.controlplane.subscription import Subscription
from navarchos.testing.controlplane.tools import ETCD, KWOK, TOOLS
from navarchos.testing.definitions import Source, load_definitions

__all__ = ["WATCHED", "ControlPlane"]

WATCHED: Final = (
    BucketId("nodes", ""),
    BucketId("pods", ""),
    BucketId("poddisruptionbudgets", "policy"),
)
"""The kinds that `ControlPlane.subscribe` watches when none are named."""

_SHORTEST_TOKEN: Final = 600

_log = get_logger(__name__)


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback.

    ```python
    with ControlPlane() as server:
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        client = server.client()
    ```

    The counterpart of controller-runtime's envtest, with more of a cluster: TLS,
    RBAC, service accounts with real tokens, the admission plugins of a kubeadm
    cluster, an audit log, and fake kubelets when asked for (`kwok`). It has the
    methods of the in-process `ApiServer`, and answers as a cluster does because it is
    one.

    Promises: when `start` returns, all parts are ready and a pod can be created in the
    namespace `default`; after `stop`, and after the end of this process in any way, no
    process and no file is left.

    Does not promise: what the in-process server can do because it is in the process:
    a clock of the test's own, scripted faults, objects that survive `stop`. Other than
    there, `install` goes over HTTP and the controllers react to it.

    Lifecycle: `start` and `stop` may be repeated; each start begins empty. It is a
    context manager that does both. Starting takes some seconds.

    Threads: every method is safe from any thread.

    Args:
        controllers: Whether kube-controller-manager runs. Without it nothing makes
            service accounts, so pods need none.
        scheduler: Whether kube-scheduler runs.
        crds: CustomResourceDefinitions to begin with: objects, files or folders.
        arguments: Further arguments by program, such as
            `{"kube-apiserver": ["--v=4"]}`; they win over ours.
        timeout: Seconds that each server may take to become ready. Three times
            envtest's, as tests share machines; only what never comes up takes so long.
        lookup: Where the programs are looked for.
        stop: Setting it frees who waits in `start` or `install`.
        clock: Source of deadlines.

    Raises:
        ConfigError: A setting is out of range.
        ManifestError: A definition cannot be read; see `load_definitions`.
    """

    def __init__(
        self,
        *,
        controllers: bool = True,
        scheduler: bool = True,
        crds: Iterable[Source] = (),
        arguments: Mapping[str, Sequence[str]] | None = None,
        timeout: float = 180.0,
        lookup: Lookup | None = None,
        stop: StopToken | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if timeout <= 0:
            raise ConfigError("timeout", timeout, "it must be above 0")
        names = [tool.name for tool in TOOLS]
        for name in arguments or ():
            if name not in names:
                raise ConfigError(
                    "arguments", name, f"the program must be one of {', '.join(names)}"
                )
        self._options = ControlPlaneOptions(controllers, scheduler, dict(arguments or {}), timeout)
        self._crds = load_definitions(*crds)
        self._lookup = lookup
        self._stop_token = stop if stop is not None else StopToken(clock=clock)
        self._clock = clock
        self._lifecycle_lock = threading.Lock()
        self._running: RunningControlPlane | None = None  # guarded by _lifecycle_lock
        self._subscriptions: list[Subscription] = []  # guarded by _lifecycle_lock

    def start(self) -> Self:
        """Start the servers and wait until all are ready; returns the object itself.

        Does nothing when they run.

        Raises:
            BinariesMissing: There is no program to start; nothing was.
            PartFailed: A server ended; nothing is left of any.
            PartNotReady: A server was not ready in time; nothing is left of any.
            StatusError: A definition is refused; nothing is left.
            Stopped: The stop token is set.
        """
        with self._lifecycle_lock:
            if self._running is None:
                self._running = self._start()
        return self

    def stop(self) -> None:
        """Stop all servers and remove their data. Repeatable."""
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
            NotStarted: Nothing runs.
        """
        return self._now().layout.url

    @property
    def etcd_url(self) -> str:
        """Where etcd serves on loopback, in the clear, for who looks below the API.

        Raises:
            NotStarted: Nothing runs.
        """
        return self._now().layout.etcd_url

    @property
    def directory(self) -> Path:
        """Where the servers run; the log of each is in `NAME.log`. Gone after `stop`.

        Raises:
            NotStarted: Nothing runs.
        """
        return self._now().layout.directory

    def kubeconfig(self) -> JsonObject:
        """Return a kubeconfig of the administrator, who may do everything."""
        running = self._now()
        return make_kubeconfig(
            running.layout.url,
            running.layout.authority,
            certificate_user(running.administrator),
        )

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write the kubeconfig to a file that only its owner can read."""
        write_private(path, self.kubeconfig())

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, lifetime: int = 3600
    ) -> JsonObject:
        """Return a kubeconfig of a service account, with a token of its own.

        Args:
            namespace: The account's namespace, and the kubeconfig's.
            name: The account.
            lifetime: Seconds until the token expires, at least 600.

        Raises:
            ConfigError: The lifetime is too short; the API server sets the limit.
            StatusError: 404, there is no such account.
        """
        if lifetime < _SHORTEST_TOKEN:
            raise ConfigError(
                "lifetime", lifetime, f"it must be at least {_SHORTEST_TOKEN} seconds"
            )
        running = self._now()
        token = running.access.request_token(namespace, name, lifetime)
        layout = running.layout
        user = token_user(token)
        return make_kubeconfig(layout.url, layout.authority, user, namespace=namespace)

    def client(
        self, *, user_agent: str = "navarchos-test", user: str = "", groups: Sequence[str] = ()
    ) -> Client:
        """Return a client with that configuration, to be closed by its user."""
        return Client(self.client_config(user_agent=user_agent, user=user, groups=groups))

    @property
    def clock(self) -> Clock:
        """The machine's: programs of their own know no other."""
        return SYSTEM_CLOCK

    def client_config(
        self, *, user_agent: str = "navarchos-test", user: str = "", groups: Sequence[str] = ()
    ) -> ClientConfig:
        """Return how a client reaches the API server.

        Args:
            user_agent: How `requests_by` tells it from others.
            user: Whom the API server takes it for, by a certificate made for this;
                `""` for the administrator.
            groups: The groups that user is in.
        """
        running = self._now()
        pair = running.administrator
        if user:
            pair = running.issue_client(user, groups)
        return running.client_config(pair, user_agent)

    def install(self, *manifests: Mapping[str, object]) -> None:
        """Create objects as the administrator, with strict validation of fields.

        A `status` that is given is written, too, where the kind has one. A definition
        is waited for until it is served; a namespace, until it has its account.

        Raises:
            StatusError: An object is refused; those before it are stored.
            DefinitionNotReady: A definition's names are taken.
            PartNotReady: What was created is not usable in time.
        """
        access = self._now().access
        for manifest in manifests:
            access.install(manifest)

    def get(
        self, plural: str, name: str, namespace: str | None = None, group: str = ""
    ) -> JsonObject:
        """Return an object, in the version that the server prefers.

        Raises:
            StatusError: 404, for the object or the kind.
        """
        return self._now().access.get(BucketId(plural, group), namespace or "", name)

    def list(self, plural: str, namespace: str | None = None, group: str = "") -> list[JsonObject]:
        """Return the objects of a kind, in key order.

        Raises:
            StatusError: 404, for the kind.
        """
        return self._now().access.list(BucketId(plural, group), namespace or "")

    def subscribe(
        self, listener: Callable[[Change], None], *, kinds: Iterable[BucketId] = WATCHED
    ) -> Callable[[], None]:
        """Call `listener` after every change of some kinds; returns the undo.

        Other than with the in-process server the calls come a moment after the write,
        from watches on a connection of their own, in order per object only, and do not
        say who made a change. The undo waits for the watches to end.

        Raises:
            StatusError: 404, for a kind.
        """
        running = self._now()
        resources = [running.access.resource(kind) for kind in kinds]
        subscription = Subscription(running.client, resources, listener)
        with self._lifecycle_lock:
            self._subscriptions.append(subscription)
        return lambda: self._unsubscribe(subscription)

    @property
    def requests(self) -> Mapping[str, int]:
        """How many requests came in, by verb; evictions count as `evict` alone.

        Those of the control plane's own parts are among them.
        """
        return self._now().audit.requests_by("")

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Like `requests`, of clients whose user agent begins with `agent`."""
        return self._now().audit.requests_by(agent)

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The latest requests, oldest first; at most 10,000. Watches are added when they end.

        A request may be missing for a moment after its answer has come.
        """
        return self._now().audit.records

    def audit_events(self) -> Iterator[AuditEvent]:
        """Read the whole audit log: who asked for what, and was it granted."""
        return self._now().audit.events()

    def compact(self) -> None:
        """Make etcd forget its history.

        Watches and, of late, pages are served from the API server's own memory, which
        keeps its part of the history until `restart_apiserver`; after that, those from
        earlier versions get 410.
        """
        compact_etcd(self._now().layout.etcd_url)

    def kwok(self, *, all_nodes: bool = False) -> None:
        """Run kubelets for nodes that have none: nodes become Ready, pods run and end.

        Args:
            all_nodes: For all nodes, instead of for those with the annotation
                `kwok.x-k8s.io/node: fake`.

        Raises:
            BinariesMissing: There is no kwok; all else goes on.
            ControlPlaneError: It runs already, or failed.
        """
        running = self._now()
        binary = find_binaries([KWOK], self._lookup)[KWOK]
        running.start_kwok(binary, all_nodes=all_nodes)

    def restart_apiserver(self, *, kill: bool = False) -> None:
        """Stop the API server and start it again; address and objects stay.

        Args:
            kill: Do not let it finish what it has in hand.
        """
        self.stop_apiserver(kill=kill)
        self.start_apiserver()

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """Stop the API server alone, until `start_apiserver`."""
        self._now().stop_apiserver(kill=kill)

    def start_apiserver(self) -> None:
        """Start the API server again, and wait until it is ready."""
        self._now().start_apiserver()

    def paused_etcd(self) -> AbstractContextManager[None]:
        """Hold etcd still for the length of a `with` block: nothing can be written."""
        return self._now().paused(ETCD)

    def _start(self) -> RunningControlPlane:
        began = self._clock.monotonic()
        binaries = find_binaries(self._options.tools, self._lookup)
        running = start_control_plane(
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

    def _now(self) -> RunningControlPlane:
        with self._lifecycle_lock:
            if self._running is None:
                raise NotStarted("control plane")
            return self._running

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._lifecycle_lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
        subscription.close()
