"""The in-process API server: lifecycle, clients, and access without HTTP."""

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
from navarchos.testing.apiserver import (
    custom,
    faults,
    garbage_collector,
    http,
    in_memory,
    kinds,
    objects,
    request_pipeline,
    store,
    watches,
    writes,
)
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.access import AccessControl, roles, users
from navarchos.testing.apiserver.builtin import builtin_kinds
from navarchos.testing.apiserver.ownership.managed_fields import readable
from navarchos.testing.apiserver.requests import Target
from navarchos.testing.definitions import Source, load_definitions

__all__ = ["ApiServer"]

_HOST: Final = "127.0.0.1"
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_IN_MEMORY_URL: Final = "http://in-process"

_log = get_logger(__name__)


class ApiServer:
    """A Kubernetes API server in this process, over HTTP on 127.0.0.1.

    Promises: responds as a kube-apiserver does, for the verbs and kinds that it serves; leaves no
    thread and no file after `stop()`.

    Does not promise: admission webhooks, or durability.

    By default every client may do everything, over plain HTTP. With `rbac` the server uses TLS,
    because clients send no tokens over plain HTTP. It knows users by the tokens of `client_config`
    and of service accounts, and roles decide about their permissions.

    Lifecycle: `start` and `stop` may be repeated; the objects stay. As a context manager the server
    is started and stopped.

    Threads: every method is safe from any thread. The server runs one thread, `nav-apiserver`, with
    an event loop.

    Args:
        port: The port; `0` takes a free one.
        bookmark_interval: Seconds between the bookmarks of a watch that allows them.
        history: How many events the server keeps for watches, per kind.
        serve_streaming_lists: Whether the server offers `sendInitialEvents`.
        crds: The CustomResourceDefinitions to begin with: objects, files or folders.
        rbac: Whether the server knows users and checks their permissions. Needs the package
            `cryptography`.
        clock: The clock of objects, and of the waits of a `client` without a network. Connections,
            tokens, and the times in managed fields and definitions use real time.

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
        self._store = store.ObjectStore(history=history, clock=clock)
        self._kinds = kinds.Kinds(builtin_kinds())
        self._access = AccessControl(self._store, rbac=rbac)
        self._certificates = http.Certificates() if rbac else None
        self._api = writes.Api(self._store, self._kinds, self._access)
        self._collector = garbage_collector.GarbageCollector(self._api)
        self._audit = request_pipeline.AuditLog()
        self.faults = faults.Faults()
        """The faults that hit requests; see `Fault`."""
        self._pipeline = request_pipeline.RequestPipeline(self._api, self._audit, self.faults)
        self._in_memory_notifier = in_memory.ThreadWatchNotifier()
        self._serves_in_memory = False
        self._lifecycle_lock = threading.Lock()
        self._running: http.ApiHttpServer | None = None  # guarded by _lifecycle_lock
        self._store.subscribe(custom.CustomKinds(self._store, self._kinds).on_change)
        self._store.subscribe(roles.ClusterRoleAggregator(self._store).on_change)
        self._store.subscribe(self._on_change)
        self._store.subscribe(self._in_memory_notifier.on_change)
        for name in _NAMESPACES:
            self.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if rbac:
            self.install(*roles.bootstrap_roles())
        self.install(*load_definitions(*crds))

    def start(self) -> Self:
        """Begin to listen; return the server itself. Do nothing if it is running.

        Objects survive a restart. Watches do not: a watch from a version before the start gets 410,
        as from a real server, which keeps events only in memory.
        """
        with self._lifecycle_lock:
            if self._running is None:
                self._store.restart()
                tls = None if self._certificates is None else self._certificates.open(_HOST)
                self._running = http.ApiHttpServer(self._frontend, _HOST, self._wanted_port, tls)
                self._store.set_notifier(self._running.wake)
                self._running.call_soon(self._collector.collect)
                # The next start uses the same port, if it is still free.
                self._wanted_port = self._running.port
        return self

    def stop(self) -> None:
        """End open watches, close connections, and join the thread. May be repeated."""
        with self._lifecycle_lock:
            running, self._running = self._running, None
            self._store.set_notifier(None)
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
        """Return the configuration of a client of this server.

        Args:
            user_agent: Identifies the client in `requests_by`.
            user: The user of the client; `""` for the administrator.
            groups: Further groups of the user; `system:authenticated` is always one.

        Raises:
            ConfigError: There is a user, but no `rbac`.
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
        """The clock of the objects."""
        return self._store.clock

    def client(
        self, *, user_agent: str = "navarchos-test", user: str = "", groups: Sequence[str] = ()
    ) -> Client:
        """Return a client with that configuration; the caller closes it.

        The client uses HTTP while the server listens. If the server has not been started, the
        client needs no network: its thread serves the request itself, and a client that waits for a
        watch waits on the server's `clock`. With a `FakeClock`, all threads are waiting once the
        clock has settled.

        Does not promise, without HTTP: that the deadline of a request ends it, because a request
        takes no time. The idle timeout of a watch works.

        Args:
            user_agent: As for `client_config`.
            user: As for `client_config`.
            groups: As for `client_config`.

        Raises:
            ConfigError: There is a user, but no `rbac`.
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
        transport = in_memory.InMemoryTransport(
            self._pipeline,
            self._in_memory_notifier,
            bookmark_interval=self._bookmark_interval,
            streaming=self._streaming,
        )
        return Client(config, clock=self.clock, transport=transport)

    def _authorization(self, user: str, groups: Sequence[str]) -> str:
        known = users.User(user, (*groups, users.AUTHENTICATED)) if user else users.ADMINISTRATOR
        return f"Bearer {self._access.tokens.for_user(known)}"

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, lifetime: int = 3600
    ) -> objects.JsonObject:
        """Return a kubeconfig of a service account, with a new token.

        Args:
            namespace: The namespace of the account, and of the kubeconfig.
            name: The service account.
            lifetime: Seconds until the token expires, at least 600.

        Raises:
            ConfigError: The server has no `rbac`.
            StatusError: 404 for an unknown account; 422 for a lifetime that is too short.
        """
        if self._certificates is None:
            raise ConfigError("name", name, "users are known only with rbac=True")
        answer = self._access.tokens.request(
            namespace, name, {"spec": {"expirationSeconds": lifetime}}
        )
        return self._certificates.kubeconfig(self.url, answer["status"]["token"], namespace)

    def kubeconfig(self) -> objects.JsonObject:
        """Return a kubeconfig whose current context is this server."""
        if self._certificates is not None:
            token = self._access.tokens.for_user(users.ADMINISTRATOR)
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
        target.chmod(0o600)  # the file may have existed with other permissions

    def install(self, *manifests: Mapping[str, object]) -> None:
        """Create objects directly, with defaulting and validation, without HTTP.

        Unlike a request, this keeps `status`, `uid` and `creationTimestamp` of the manifests.

        Raises:
            StatusError: An object is refused; those before it are stored.
        """
        for manifest in manifests:
            obj: dict[str, Any] = dict(manifest)
            kind = self._kind_of(obj)
            namespace = (objects.meta(obj).get("namespace") or "default") if kind.namespaced else ""
            writes.create(
                self._api,
                kind,
                namespace,
                obj,
                writes.WriteOptions(field_validation="Strict", keep_status=True),
            )

    def _kind_of(self, obj: objects.JsonObject) -> kinds.Kind:
        version, name = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
        kind = self._kinds.by_kind(version, name)
        if kind is None:
            message = f'no matches for kind "{name}" in version "{version}"'
            raise statuses.StatusError(404, "NotFound", message)
        return kind

    def subscribe(self, listener: Callable[[store.Change], None]) -> Callable[[], None]:
        """Call `listener` after every committed write; return a function that undoes this.

        Calls come in commit order, synchronously, on the writing thread, with the store's lock
        held. The listener may read and write through this server; its writes are announced after
        the current change. It must not wait for another thread that uses the server.
        """
        return self._store.subscribe(listener)

    def get(
        self, plural: str, name: str, namespace: str | None = None, group: str = ""
    ) -> objects.JsonObject:
        """Return a stored object. Read-only.

        Raises:
            StatusError: 404, the object or the kind does not exist.
        """
        kind = self._resource(plural, group)
        return _decoded(
            kind.to_served(writes.require(self._api, Target(kind, namespace or "", name)).obj)
        )

    def list(
        self, plural: str, namespace: str | None = None, group: str = ""
    ) -> list[objects.JsonObject]:
        """Return the stored objects of a kind, in key order. Read-only.

        Raises:
            StatusError: 404, the kind does not exist.
        """
        kind = self._resource(plural, group)
        entries = self._store.entries(kind.bucket, namespace or "")
        return [_decoded(kind.to_served(entry.obj)) for entry in entries]

    def _resource(self, plural: str, group: str) -> kinds.Kind:
        kind = self._kinds.by_resource(plural, group)
        if kind is None:
            raise statuses.StatusError(
                404, "NotFound", f"no resource {plural!r} in group {group!r}"
            )
        return kind

    def compact(self) -> None:
        """Forget the history: watches and pages from earlier versions get 410."""
        self._store.compact()

    @property
    def requests(self) -> Mapping[str, int]:
        """The number of received requests by verb; an eviction counts only as `evict`."""
        return self._audit.requests

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Return `requests` of the clients whose user agent begins with `agent`."""
        return self._audit.requests_by(agent)

    @property
    def audit(self) -> Sequence[request_pipeline.AuditRecord]:
        """The latest requests, oldest first; at most 10,000. A watch is added when it ends."""
        return self._audit.records

    def _on_change(self, change: store.Change) -> None:
        if not self._collector.on_change(change):
            return
        running = self._running
        if running is not None:
            running.call_soon(self._collector.collect)
        elif self._serves_in_memory:
            # Without an event loop, collection is a part of the write.
            self._collector.collect()

    def _frontend(self, notifier: watches.WatchNotifier) -> http.HttpFrontend:
        return http.HttpFrontend(
            self._pipeline,
            notifier,
            bookmark_interval=self._bookmark_interval,
            streaming=self._streaming,
        )


def _users_need_rbac(user: str) -> ConfigError:
    return ConfigError("user", user, "users are known only with rbac=True")


def _decoded(obj: objects.JsonObject) -> objects.JsonObject:
    """Return an object with the parts decoded that the store keeps encoded."""
    if "managedFields" not in objects.meta(obj):
        return obj
    metadata = {**objects.meta(obj), "managedFields": readable(objects.meta(obj)["managedFields"])}
    return {**obj, "metadata": metadata}
