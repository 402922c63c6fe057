"""The object that candidates compete for."""

import socket
import uuid
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from navarchos.client import Client, DecodeError, Resource
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.errors import ConfigError, NotStarted
from navarchos.informers import SharedInformer
from navarchos.leaderelection.lease import LeaseRecord, read_record

__all__ = ["LEASES", "LeaseLock", "LeaseWatch", "Lock", "lease_rbac", "unique_identity"]

LEASES: Final[Resource[dict[str, object]]] = Resource(
    "coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=dict
)
"""Leases as they are: they are written back whole, so nothing may be left out."""


def lease_rbac(name: str) -> tuple[PolicyRule, ...]:
    """Return what a lock on the Lease of that name asks of the server, in its namespace.

    To list and watch it is for candidates, who hear by it that it was given back.
    """
    return (
        PolicyRule(LEASES, ("get", "list", "watch", "update"), names=(name,)),
        PolicyRule(LEASES, ("create",)),  # which RBAC cannot limit to a name
    )


def unique_identity() -> str:
    """Return a name for this process that no other has: host name and uuid (LE-05)."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Lock(Protocol):
    """A record that changes by compare-and-swap (LE-04).

    Timeouts are in seconds for the whole call. Calls raise `ClientError` in its
    forms; after a failed write the lock may or may not have changed.

    Threads: calls come from one thread at a time.
    """

    @property
    def identity(self) -> str:
        """Who we are."""
        ...

    def describe(self) -> str:
        """Return `namespace/name`."""
        ...

    def get(self, *, timeout: float) -> LeaseRecord:
        """Read the record.

        Raises:
            NotFound: There is none yet.
        """
        ...

    def create(self, record: LeaseRecord, *, timeout: float) -> None:
        """Write the first record.

        Raises:
            AlreadyExists: Somebody else did.
        """
        ...

    def update(self, record: LeaseRecord, *, timeout: float) -> None:
        """Replace the record that was read or written last.

        Raises:
            Conflict: It is no longer that one.
            NotStarted: None was read or written yet.
        """
        ...

    def record_event(self, message: str) -> None:
        """Tell people what became of the lock. Must not block."""
        ...


class LeaseLock:
    """A lock on a `coordination.k8s.io/v1` Lease.

    Args:
        client: Best one of its own, so that nothing else uses up its connections
            or its rate (LE-06).
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Ours; see `unique_identity`.
        labels: Put on the Lease; labels of others stay.
        on_event: Called with the Lease and a message when leadership begins or
            ends; for an event recorder (LE-21). Must not block.

    Raises:
        ConfigError: Namespace, name or identity is empty.

    Threads: calls come from one thread at a time.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        labels: Mapping[str, str] | None = None,
        *,
        on_event: Callable[[Mapping[str, object], str], None] | None = None,
    ) -> None:
        for what, value in (("namespace", namespace), ("name", name), ("identity", identity)):
            if not value:
                raise ConfigError(what, value, "a lease lock requires it")
        self._leases = client.resource(LEASES)
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._labels = dict(labels or {})
        self._on_event = on_event
        self._seen: Mapping[str, object] | None = None

    @property
    def identity(self) -> str:
        """Who we are."""
        return self._identity

    def describe(self) -> str:
        """Return `namespace/name`."""
        return f"{self._namespace}/{self._name}"

    def get(self, *, timeout: float) -> LeaseRecord:
        """Read the record."""
        self._seen = self._leases.get(self._name, self._namespace, timeout=timeout)
        try:
            return read_record(self._seen.get("spec"))
        except msgspec.ValidationError as error:
            raise DecodeError(
                f"not a lease we can read: {error}",
                verb="get",
                resource=str(LEASES),
                namespace=self._namespace,
                name=self._name,
            ) from error

    def create(self, record: LeaseRecord, *, timeout: float) -> None:
        """Write the first record."""
        metadata: dict[str, object] = {"name": self._name, "namespace": self._namespace}
        if self._labels:
            metadata["labels"] = self._labels
        body = {"metadata": metadata, "spec": record.body()}
        self._seen = self._leases.create(body, self._namespace, timeout=timeout)

    def update(self, record: LeaseRecord, *, timeout: float) -> None:
        """Replace the record that was read or written last."""
        if self._seen is None:
            raise NotStarted(f"lease {self.describe()}, before a get or create,")
        # The resourceVersion in the metadata makes this a compare-and-swap.
        body = {**self._seen, "metadata": self._labelled(), "spec": record.body()}
        self._seen = self._leases.replace(self._name, body, self._namespace, timeout=timeout)

    def record_event(self, message: str) -> None:
        """Hand the message on, with the Lease."""
        if self._on_event is not None:
            bare = {"metadata": {"name": self._name, "namespace": self._namespace}}
            self._on_event(self._seen or bare, message)

    def _labelled(self) -> dict[str, object]:
        metadata = (self._seen or {}).get("metadata")
        fields = dict(metadata) if isinstance(metadata, Mapping) else {}
        labels = {**(fields.get("labels") or {}), **self._labels}
        return fields | {"labels": labels} if labels else fields


class LeaseWatch:
    """Watches one Lease and tells when it names nobody, or us.

    Upstream has no such thing: there a candidate finds out at its next try, up to 4.4 s
    later by default, and a rolling update is as long without a leader. This is news and
    no proof: the candidate reads the lease as ever, and competes for it.

    Lifecycle: `start`, then `stop`. Threads: any.

    Args:
        client: Watches.
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Ours: where the API server elects, that name is news.
        tell: Called on a thread of this watch; must not block.
        clock: Time and waiting.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        tell: Callable[[], None],
        *,
        clock: Clock,
    ) -> None:
        self._tell = tell
        self._awaited = {"", identity}
        self._informer = SharedInformer(
            client.resource(LEASES),
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            clock=clock,
            name="vacancy",
        )
        self._informer.add_handler(
            on_add=lambda lease, _: self._look(lease), on_update=lambda _, lease: self._look(lease)
        )

    def start(self) -> None:
        """Begin to watch."""
        self._informer.start()

    def stop(self, timeout: float | None) -> bool:
        """End it; return whether its threads have ended within so many seconds."""
        self._informer.stop("no longer waiting for the lease")
        return self._informer.join(timeout)

    def _look(self, lease: dict[str, object]) -> None:
        if read_record(lease.get("spec")).holder_identity in self._awaited:
            self._tell()
