"""Where a controller's requests come from: event sources, and the requests of an object."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from navarchos.client import Resource
from navarchos.errors import AlreadyStarted
from navarchos.informers import Registration, SharedInformer, Tombstone
from navarchos.logs import get_logger
from navarchos.meta import KeyFailed, OwnerReference, identity_of
from navarchos.runtime.predicates import Predicate, all_of
from navarchos.runtime.reconciler import Request
from navarchos.stopping import StopToken

__all__ = [
    "LOW_PRIORITY",
    "Channel",
    "ChannelSource",
    "EnqueueMapped",
    "EnqueueObject",
    "EnqueueOwners",
    "InformerSource",
    "RequestMap",
    "RequestQueue",
    "Source",
]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class RequestMap(Protocol[T_contra]):
    """Maps an object to requests; called for the old and the new object of an update."""

    def __call__(self, obj: T_contra, /) -> Iterable[Request]:
        """Return the requests; duplicates within an event count once."""
        ...


class EnqueueObject:
    """Requests the object itself (CT-21)."""

    def __call__(self, obj: object, /) -> Iterable[Request]:
        """Return the key of the object."""
        identity = identity_of(obj)
        return (Request(identity.namespace, identity.name),)


class EnqueueOwners:
    """Requests the owners of one kind (CT-22).

    Group and kind must match; versions may differ.

    Args:
        owner: The kind of the owners.
        controller_only: Only the owner that controls the object.
    """

    def __init__(self, owner: Resource[Any], *, controller_only: bool = True) -> None:
        self._owner = owner
        self._controller_only = controller_only

    def __call__(self, obj: object, /) -> Iterable[Request]:
        """Return the keys of the matching owners."""
        namespace = identity_of(obj).namespace if self._owner.namespaced else ""
        return [
            Request(namespace, reference.name)
            for reference in _owners_of(obj)
            if self._matches(reference)
        ]

    def _matches(self, reference: OwnerReference) -> bool:
        if self._controller_only and not reference.controller:
            return False
        return (reference.group, reference.kind) == (self._owner.group, self._owner.kind)


class EnqueueMapped(Generic[T]):
    """Requests what a function returns (CT-23)."""

    def __init__(self, function: Callable[[T], Iterable[Request]]) -> None:
        self._function = function

    def __call__(self, obj: T, /) -> Iterable[Request]:
        """Call the function."""
        return self._function(obj)


def _owners_of(obj: object) -> Iterable[OwnerReference]:
    if not isinstance(obj, Mapping):
        owners: Iterable[OwnerReference] = getattr(identity_of(obj), "owner_references", ())
        return owners
    references = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return [
        OwnerReference(
            api_version=str(reference.get("apiVersion", "")),
            kind=str(reference.get("kind", "")),
            name=str(reference.get("name", "")),
            uid=str(reference.get("uid", "")),
            controller=bool(reference.get("controller", False)),
        )
        for reference in references
    ]


_log = get_logger(__name__)

LOW_PRIORITY: Final = -100
"""The priority of requests without a change: the initial list, resyncs (CT-17)."""


class RequestQueue(Protocol):
    """The receiving end of a queue."""

    def add(self, key: Request, *, priority: int = 0) -> None:
        """Queue a request."""
        ...


class Source(Protocol):
    """Delivers requests to a queue."""

    @property
    def name(self) -> str:
        """The name in errors, such as when the source does not sync in time."""
        ...

    def start(self, requests: RequestQueue) -> None:
        """Start to deliver requests. Called once, on a thread of this source; must not block.

        Not returning within the controller's cache sync timeout is an error (CT-05).
        """
        ...

    def wait_for_sync(self, timeout: float | None, stop: StopToken) -> bool:
        """Wait until all existing objects have been delivered."""
        ...

    def stop(self) -> None:
        """Stop to deliver requests. Does not wait."""
        ...


class InformerSource(Generic[T]):
    """Filters the events of an informer, then maps them to requests (CT-17, CT-20).

    It is the event handler that it registers with the informer.

    Args:
        informer: Where events come from; started and stopped by its owner.
        mapping: Maps an object to requests.
        predicates: All must pass; called in this order.

    Threads: no lock is needed. A controller's source group calls `start` once, and the other
    methods only after that; events arrive on the handler's thread, which starts after
    `_requests` is set.
    """

    def __init__(
        self, informer: SharedInformer[T], mapping: RequestMap[T], *predicates: Predicate[T]
    ) -> None:
        self.informer = informer
        self._mapping = mapping
        self._predicate = all_of(*predicates)
        self._registration: Registration[T] | None = None
        self._requests: RequestQueue | None = None

    @property
    def resource(self) -> Resource[T]:
        """The kind."""
        return self.informer.resource

    @property
    def name(self) -> str:
        """The informer's name."""
        return self.informer.name

    def start(self, requests: RequestQueue) -> None:
        """Register with the informer.

        Raises:
            AlreadyStarted: Called before.
        """
        if self._registration is not None:
            raise AlreadyStarted(f"source {self.name}")
        self._requests = requests
        self._registration = self.informer.add_handler(self)

    def wait_for_sync(self, timeout: float | None, stop: StopToken) -> bool:
        """Wait until every object of the initial list has been mapped."""
        if self._registration is None:
            return False
        return self._registration.wait_for_sync(timeout, stop)

    def stop(self) -> None:
        """Remove the handler from the informer."""
        if self._registration is not None:
            self._registration.remove()

    def on_add(self, obj: T, is_in_initial_list: bool) -> None:
        """Queue the requests of a new object."""
        if self._predicate.create(obj):
            self._enqueue([obj], LOW_PRIORITY if is_in_initial_list else 0)

    def on_update(self, old: T, new: T) -> None:
        """Queue the requests of a changed object, in its old and in its new state."""
        if self._predicate.update(old, new):
            same = identity_of(old).resource_version == identity_of(new).resource_version
            self._enqueue([old, new], LOW_PRIORITY if same else 0)

    def on_delete(self, obj: T | Tombstone[T]) -> None:
        """Queue the requests of a deleted object."""
        last = obj.obj if isinstance(obj, Tombstone) else obj
        if last is None:
            _log.warning("deleted_object_unknown", source=self.name)
        elif self._predicate.delete(last, state_unknown=isinstance(obj, Tombstone)):
            self._enqueue([last], 0)

    def _enqueue(self, objects: Iterable[T], priority: int) -> None:
        assert self._requests is not None, "events come after start"
        try:
            found = dict.fromkeys(request for obj in objects for request in self._mapping(obj))
        except KeyFailed as error:
            _log.warning("object_without_metadata", source=self.name, error=str(error))
            return
        for request in found:
            self._requests.add(request, priority=priority)


class Channel:
    """Lets any code of the process request a reconcile (CT-19).

    Requests that are sent before a controller listens are kept until it does, once each.
    Sending never blocks: the limit is the number of different requests, not 1024 events as in
    controller-runtime.

    Does not promise: to serve more than one controller; each needs a separate channel.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._early_lock = threading.Lock()
        self._early: dict[Request, int] = {}  # guarded by _early_lock; highest priority
        self._requests: RequestQueue | None = None  # guarded by _early_lock

    def send(self, request: Request, *, priority: int = 0) -> None:
        """Request a reconcile."""
        with self._early_lock:
            requests = self._requests
            if requests is None:
                self._early[request] = max(priority, self._early.get(request, priority))
                return
        requests.add(request, priority=priority)

    def connect(self, requests: RequestQueue | None) -> None:
        """Deliver to a queue from now on, kept requests first; `None` keeps requests.

        Raises:
            AlreadyStarted: The channel delivers to another queue.
        """
        with self._early_lock:
            if requests is not None and self._requests is not None:
                raise AlreadyStarted("channel")
            self._requests = requests
            if requests is None:
                return
            kept, self._early = self._early, {}
        for request, priority in kept.items():
            requests.add(request, priority=priority)


class ChannelSource:
    """Delivers the requests that are sent into a `Channel`."""

    def __init__(self, channel: Channel, name: str = "channel") -> None:
        self._channel = channel
        self._name = name

    @property
    def name(self) -> str:
        """The name in errors."""
        return self._name

    def start(self, requests: RequestQueue) -> None:
        """Connect the channel."""
        self._channel.connect(requests)

    def wait_for_sync(self, timeout: float | None, stop: StopToken) -> bool:
        """Return True at once."""
        return True

    def stop(self) -> None:
        """Keep requests that are sent from now on."""
        self._channel.connect(None)
