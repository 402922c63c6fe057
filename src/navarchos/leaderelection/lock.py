"""The lock that candidates compete for: a Lease, and a watch on it."""

import socket
import uuid
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from navarchos.client import Client, DecodeError, Resource
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.errors import ConfigError, NotStarted
from navarchos.informers import InformerOptions, Scope, SharedInformer
from navarchos.leaderelection.lease import LeaseRecord, read_record

__all__ = ["LEASES", "LeaseLock", "LeaseWatch", "Lock", "lease_rbac", "unique_identity"]

LEASES: Final[Resource[dict[str, object]]] = Resource(
    "coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=dict
)
"""Leases as dicts: updates replace the whole object, so no field may be lost."""


def lease_rbac(name: str) -> tuple[PolicyRule, ...]:
    """Return the permissions that a lock on a Lease needs in the namespace of the Lease.

    `list` and `watch` are for `LeaseWatch`, by which candidates notice a released lease.
    """
    return (
        PolicyRule(LEASES, ("get", "list", "watch", "update"), names=(name,)),
        PolicyRule(LEASES, ("create",)),  # which RBAC cannot limit to a name
    )


def unique_identity() -> str:
    """Return a unique name for this process: host name and UUID (LE-05)."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Lock(Protocol):
    """A record that changes by compare-and-swap (LE-04).

    Timeouts are in seconds for the whole call. Calls raise subclasses of `ClientError`; after
    a failed write the lock may or may not have changed.

    Threads: calls come from one thread at a time.
    """

    @property
    def identity(self) -> str:
        """The name of this candidate."""
        ...

    def describe(self) -> str:
        """Return `namespace/name`."""
        ...

    def get(self, *, timeout: float) -> LeaseRecord:
        """Read the record.

        Raises:
            NotFound: The record does not exist yet.
        """
        ...

    def create(self, record: LeaseRecord, *, timeout: float) -> None:
        """Write the first record.

        Raises:
            AlreadyExists: Another candidate was first.
        """
        ...

    def update(self, record: LeaseRecord, *, timeout: float) -> None:
        """Replace the record that was read or written last.

        Raises:
            Conflict: The record has changed since.
            NotStarted: No record was read or written before.
        """
        ...

    def record_event(self, message: str) -> None:
        """Record an event about the lock for users. Must not block."""
        ...


class LeaseLock:
    """A lock on a `coordination.k8s.io/v1` Lease.

    Args:
        client: Should be used for the lock only, so that other requests do not use up its
            connections or its rate limit (LE-06).
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Of this candidate; see `unique_identity`.
        labels: Set on the Lease; other labels stay.
        on_event: Called with the Lease and a message when leadership starts or ends; for an
            event recorder (LE-21). Must not block.

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
        """The name of this candidate."""
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
                f"the spec of the Lease cannot be decoded: {error}",
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
        """Pass the Lease and the message to `on_event`."""
        if self._on_event is not None:
            bare = {"metadata": {"name": self._name, "namespace": self._namespace}}
            self._on_event(self._seen or bare, message)

    def _labelled(self) -> dict[str, object]:
        metadata = (self._seen or {}).get("metadata")
        fields = dict(metadata) if isinstance(metadata, Mapping) else {}
        labels = {**(fields.get("labels") or {}), **self._labels}
        return fields | {"labels": labels} if labels else fields


class LeaseWatch:
    """Watches one Lease and calls back when it has no holder, or names this candidate.

    client-go does not watch: there a candidate notices a released lease at its next try, by
    default up to 4.4 s later, and a rolling update is that long without a leader. The call is
    only a hint: the candidate then reads the lease and competes for it as always.

    Lifecycle: `start`, then `stop`. Threads: any.

    Args:
        client: Watches the Lease.
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Of this candidate, which the API server may name as the holder.
        on_vacant: Called on a thread of this watch; must not block.
        clock: Time and waiting.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        on_vacant: Callable[[], None],
        *,
        clock: Clock,
    ) -> None:
        self._on_vacant = on_vacant
        self._awaited = {"", identity}
        self._informer = SharedInformer(
            client.resource(LEASES),
            Scope(namespace=namespace, field_selector=f"metadata.name={name}"),
            InformerOptions(name="lease-watch"),
            clock=clock,
        )
        self._informer.add_handler(
            on_add=lambda lease, _: self._check(lease),
            on_update=lambda _, lease: self._check(lease),
        )

    def start(self) -> None:
        """Start to watch."""
        self._informer.start()

    def stop(self, timeout: float | None) -> bool:
        """Stop to watch; return whether its threads have ended within so many seconds."""
        self._informer.stop("no longer waiting for the lease")
        return self._informer.join(timeout)

    def _check(self, lease: dict[str, object]) -> None:
        if read_record(lease.get("spec")).holder_identity in self._awaited:
            self._on_vacant()
