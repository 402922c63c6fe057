"""The in-process API server: life cycle, and access without HTTP."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError, NotStarted
from navarchos.logs import get_logger
from navarchos.testing.apiserver.access import AccessControl
from navarchos.testing.apiserver.access.roles import ClusterRoleAggregator, bootstrap_roles
from navarchos.testing.apiserver.access.users import ADMINISTRATOR, AUTHENTICATED, User
from navarchos.testing.apiserver.builtin import builtin_kinds
from navarchos.testing.apiserver.custom import CustomKinds
from navarchos.testing.apiserver.faults import Faults
from navarchos.testing.apiserver.garbage_collector import GarbageCollector
from navarchos.testing.apiserver.http import Certificates, HttpFrontend, HttpServer
from navarchos.testing.apiserver.in_memory import InMemoryTransport, ThreadWatchNotifier
from navarchos.testing.apiserver.kinds import Kind, Kinds
from navarchos.testing.apiserver.objects import JsonObject, meta
from navarchos.testing.apiserver.ownership.managed_fields import readable
from navarchos.testing.apiserver.request_pipeline import AuditLog, AuditRecord, RequestPipeline
from navarchos.testing.apiserver.requests import Target
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.store import Change, Store
from navarchos.testing.apiserver.watches import WatchNotifier
from navarchos.testing.apiserver.writes import Api, WriteOptions, create, require
from navarchos.testing.definitions import Source, load_definitions

__all__ = ["ApiServer"]

_HOST: Final = "127.0.0.1"
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_IN_MEMORY_URL: Final = "http://in-process"
_STOP_TIMEOUT: Final = 5.0

_log = get_logger(__name__)


class ApiServer:
    """A Kubernetes API server in this process, over HTTP on 127.0.0.1.

    Promises: answers what a kube-apiserver answers, for the verbs and kinds
    that it serves; leaves no thread and no file after `stop()`.

    Does not promise: admission webhooks, or durability.

    Everybody may do everything, over plain HTTP, unless `rbac` is asked for.
    Then it speaks TLS, as clients send no tokens otherwise; users are known by the
    tokens of `client_config` and of service accounts, and may do what roles say.

    Lifecycle: `start` and `stop` may be repeated; the objects stay. It is a
    context manager that does both.

    Threads: every method is safe from any thread. The server has one thread of
    its own, `nav-apiserver`, with an event loop.

    Args:
        port: Where to listen; `0` takes a free port.
        bookmark_interval: Seconds between bookmarks of a watch that allows them.
        history: How many events each kind keeps for watches.
        serve_streaming_lists: Whether `sendInitialEvents` is offered.
        crds: CustomResourceDefinitions to begin with: objects, files or folders.
        rbac: Whether users are told apart, and what they may do is looked at. Needs
            the package `cryptography`.
        clock: What time it is for objects, and for all that waits in a `client` that
            needs no network. Connections live in real time, and so do tokens and the
            times in managed fields and definitions.

    Raises:
        ConfigError: A setting is out of range.
        ManifestError: A definition cannot be read; see `load_definitions`.
        StatusError: A definition is invalid.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        bookmark_interval: float = 60.0,
        history: int = 10_000,
        serve_streaming_lists: bool = True,
        crds: Iterable[Source] = (),
        rbac: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if bookmark_interval <= 0:
            raise ConfigError("bookmark_interval", bookmark_interval, "it must be above 0")
        if history < 1:
            raise ConfigError("history", history, "it must be at least 1")
        self._wanted_port = port
        self._bookmark_interval = bookmark_interval
        self._streaming = serve_streaming_lists
        self._store = Store(history=history, clock=clock)
        self._kinds = Kinds(builtin_kinds())
        self._access = AccessControl(self._store, rbac=rbac)
        self._certificates = Certificates() if rbac else None
        self._api = Api(self._store, self._kinds, self._access)
        self._collector = GarbageCollector(self._api)
        self._audit = AuditLog()
        self.faults = Faults()
        """What goes wrong on purpose; see `Fault`."""
        self._pipeline = RequestPipeline(self._api, self._audit, self.faults)
        self._in_memory_notifier = ThreadWatchNotifier()
        self._serves_in_memory = False
        self._lifecycle_lock = threading.Lock()
        self._running: HttpServer | None = None  # guarded by _lifecycle_lock
        self._store.subscribe(CustomKinds(self._store, self._kinds).on_change)
        self._store.subscribe(ClusterRoleAggregator(self._store).on_change)
        self._store.subscribe(self._on_change)
        self._store.subscribe(self._in_memory_notifier.on_change)
        for name in _NAMESPACES:
            self.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if rbac:
            self.install(*bootstrap_roles())
        self.install(*load_definitions(*crds))

    def start(self) -> Self:
        """Begin to listen; returns the server itself. Does nothing when running.

        Objects stay from run to run. Watches do not: those from versions before the
        start get 410, as from a real server, which keeps events in its memory only.
        """
        with self._lifecycle_lock:
            if self._running is None:
                self._store.restart()
                tls = None if self._certificates is None else self._certificates.open(_HOST)
                self._running = HttpServer(self._frontend, _HOST, self._wanted_port, tls)
                self._store.notify_with(self._running.wake)
                self._running.call_soon(self._collector.collect)
                # A restart keeps its address, as far as the system allows.
                self._wanted_port = self._running.port
        return self

    def stop(self) -> None:
        """End open watches, close connections, and join the thread. Repeatable."""
        with self._lifecycle_lock:
            running, self._running = self._running, None
            self._store.notify_with(None)
            if self._certificates is not None:
                self._certificates.close()
        if running is not None:
            running.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The base address, `http://127.0.0.1:PORT`; `https:` with `rbac`.

        Raises:
            NotStarted: The server does not listen.
        """
        with self._lifecycle_lock:
            if self._running is None:
                raise NotStarted("API server")
            scheme = "http" if self._certificates is None else "https"
            return f"{scheme}://{_HOST}:{self._running.port}"

    def client_config(
        self, *, user_agent: str = "navarchos-test", user: str = "", groups: Sequence[str] = ()
    ) -> ClientConfig:
        """Return how a client reaches this server.

        Args:
            user_agent: How `requests_by` tells that client from others.
            user: Whom the server takes it for; `""` for the administrator.
            groups: The groups that user is in, beside that of all who are known.

        Raises:
            ConfigError: A user, without `rbac`.
            NotStarted: The server does not listen.
        """
        if self._certificates is None:
            if user:
                raise _users_need_rbac(user)
            return ClientConfig(self.url, user_agent=user_agent)
        header = self._authorization(user, groups)
        return ClientConfig(
            self.url,
            ca_file=str(self._certificates.authority),
            authorization=lambda: header,
            user_agent=user_agent,
        )

    @property
    def clock(self) -> Clock:
        """The clock that its objects live by."""
        return self._store.clock

    def client(
        self, *, user_agent: str = "navarchos-test", user: str = "", groups: Sequence[str] = ()
    ) -> Client:
        """Return a client with that configuration, to be closed by its user.

        It goes over HTTP while the server listens. Of a server that has not been started
        it needs no network: a request is answered on the thread that asks, as it would be
        over HTTP, and whoever waits in a watch waits in the server's `clock`. So, with a
        `FakeClock`, everything is at rest once that has settled.

        Does not promise, without HTTP: that a request's deadline ends it, as a request
        takes no time; the longest silence of a watch is kept.

        Args:
            user_agent: As for `client_config`.
            user: As for `client_config`.
            groups: As for `client_config`.

        Raises:
            ConfigError: A user, without `rbac`.
        """
        if self._running is not None:
            return Client(
                self.client_config(user_agent=user_agent, user=user, groups=groups),
                clock=self.clock,
            )
        config = ClientConfig(_IN_MEMORY_URL, user_agent=user_agent)
        if self._certificates is not None:
            header = self._authorization(user, groups)
            config = replace(config, authorization=lambda: header)
        elif user:
            raise _users_need_rbac(user)
        self._serves_in_memory = True
        transport = InMemoryTransport(
            self._pipeline,
            self._in_memory_notifier,
            bookmark_interval=self._bookmark_interval,
            streaming=self._streaming,
        )
        return Client(config, clock=self.clock, transport=transport)

    def _authorization(self, user: str, groups: Sequence[str]) -> str:
        known = User(user, (*groups, AUTHENTICATED)) if user else ADMINISTRATOR
        return f"Bearer {self._access.tokens.for_user(known)}"

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, lifetime: int = 3600
    ) -> JsonObject:
        """Return a kubeconfig of a service account, with a token of its own.

        Args:
            namespace: The account's namespace, and the kubeconfig's.
            name: The account.
            lifetime: Seconds until the token expires, at least 600.

        Raises:
            ConfigError: There are no users without `rbac`.
            StatusError: 404, there is no such account; 422, the lifetime is too short.
        """
        if self._certificates is None:
            raise ConfigError("name", name, "users are known only with rbac=True")
        answer = self._access.tokens.request(
            namespace, name, {"spec": {"expirationSeconds": lifetime}}
        )
        return self._certificates.kubeconfig(self.url, answer["status"]["token"], namespace)

    def kubeconfig(self) -> JsonObject:
        """Return a kubeconfig whose current context is this server."""
        if self._certificates is not None:
            token = self._access.tokens.for_user(ADMINISTRATOR)
            return self._certificates.kubeconfig(self.url, token, "default")
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "navarchos", "cluster": {"server": self.url}}],
            "users": [{"name": "navarchos", "user": {}}],
            "contexts": [
                {"name": "navarchos", "context": {"cluster": "navarchos", "user": "navarchos"}}
            ],
            "current-context": "navarchos",
        }

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write the kubeconfig to a file that only its owner can read."""
        import yaml

        target = Path(path)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yaml.safe_dump(self.kubeconfig(), file, sort_keys=False)
        target.chmod(0o600)  # also when the file was there before

    def install(self, *manifests: Mapping[str, object]) -> None:
        """Create objects directly, with defaulting and validation, without HTTP.

        Unlike over HTTP, `status`, `uid` and `creationTimestamp` are kept if given.

        Raises:
            StatusError: An object is refused; those before it are stored.
        """
        for manifest in manifests:
            obj: dict[str, Any] = dict(manifest)
            kind = self._kind_of(obj)
            namespace = (meta(obj).get("namespace") or "default") if kind.namespaced else ""
            create(
                self._api,
                kind,
                namespace,
                obj,
                WriteOptions(field_validation="Strict", keep_status=True),
            )

    def _kind_of(self, obj: JsonObject) -> Kind:
        version, name = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
        kind = self._kinds.by_kind(version, name)
        if kind is None:
            message = f'no matches for kind "{name}" in version "{version}"'
            raise StatusError(404, "NotFound", message)
        return kind

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` after every committed write; returns the undo.

        Calls come in commit order, synchronously, on the writing thread, with
        the store's lock held: the listener may read and write through this
        object (its writes are announced after the change in hand), but must not
        wait for another thread that does.
        """
        return self._store.subscribe(listener)

    def get(
        self, plural: str, name: str, namespace: str | None = None, group: str = ""
    ) -> JsonObject:
        """Return a stored object. Read-only.

        Raises:
            StatusError: 404, for the object or the kind.
        """
        kind = self._resource(plural, group)
        return _decoded(kind.to_served(require(self._api, Target(kind, namespace or "", name)).obj))

    def list(self, plural: str, namespace: str | None = None, group: str = "") -> list[JsonObject]:
        """Return the stored objects of a kind, in key order. Read-only.

        Raises:
            StatusError: 404, for the kind.
        """
        kind = self._resource(plural, group)
        entries = self._store.entries(kind.bucket, namespace or "")
        return [_decoded(kind.to_served(entry.obj)) for entry in entries]

    def _resource(self, plural: str, group: str) -> Kind:
        kind = self._kinds.by_resource(plural, group)
        if kind is None:
            raise StatusError(404, "NotFound", f"no resource {plural!r} in group {group!r}")
        return kind

    def compact(self) -> None:
        """Forget the history: watches and pages from earlier versions get 410."""
        self._store.compact()

    @property
    def requests(self) -> Mapping[str, int]:
        """How many requests came in, by verb; evictions count as `evict` alone."""
        return self._audit.requests

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Like `requests`, of clients whose user agent begins with `agent`."""
        return self._audit.requests_by(agent)

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The latest requests, oldest first; at most 10,000. Watches are added when they end."""
        return self._audit.records

    def _on_change(self, change: Change) -> None:
        if not self._collector.on_change(change):
            return
        running = self._running
        if running is not None:
            running.call_soon(self._collector.collect)
        elif self._serves_in_memory:
            # No loop does it. Here it is part of the write: who waits sees all of it.
            self._collector.collect()

    def _frontend(self, notifier: WatchNotifier) -> HttpFrontend:
        return HttpFrontend(
            self._pipeline,
            notifier,
            bookmark_interval=self._bookmark_interval,
            streaming=self._streaming,
        )


def _users_need_rbac(user: str) -> ConfigError:
    return ConfigError("user", user, "users are known only with rbac=True")


def _decoded(obj: JsonObject) -> JsonObject:
    """Return an object without what is only encoded in the store."""
    if "managedFields" not in meta(obj):
        return obj
    metadata = {**meta(obj), "managedFields": readable(meta(obj)["managedFields"])}
    return {**obj, "metadata": metadata}
