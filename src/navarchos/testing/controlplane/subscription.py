"""Call a listener for every change of some kinds, observed by watches."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from navarchos.client import (
    ApiError,
    Client,
    Resource,
    ResourceClient,
    TransportError,
    WatchBroken,
    WatchExpired,
)
from navarchos.client.options import WatchOptions
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import BucketId, Change
from navarchos.threads import ThreadGroup

__all__ = ["Listener", "Subscription"]

_RETRY_SECONDS: Final = 0.2

_log = get_logger(__name__)

Listener = Callable[[Change], None]
JsonObject = dict[str, Any]


class Subscription:
    """Watches some kinds and calls a listener until closed.

    Promises: the listener is called for every change after construction, one call at a
    time, in order for each object. After an expired watch, the listener is called with
    the differences between the last known state and a new list.

    Does not promise: the order of changes of different kinds; the client that made a
    change (`request` is `None`); states between an expired watch and the new list.

    Args:
        client: Sends the requests; it must stay open as long as the subscription.
        resources: The kinds to watch.
        listener: Called for each change.
        announce_present: Whether to call the listener with `ADDED` for existing objects as
            well, kind by kind in the given order, before the constructor returns.

    Threads: one per kind, `nav-watch-...`; the listener is called on them.
    """

    def __init__(
        self,
        client: Client,
        resources: Sequence[Resource[JsonObject]],
        listener: Listener,
        *,
        announce_present: bool = False,
    ) -> None:
        self._stop = StopToken()
        self._listener = listener
        self._call_lock = threading.Lock()  # held while the listener runs
        self._threads = ThreadGroup("watch", stop=self._stop)
        followers = [
            _Follower(client.resource(each, keep_managed_fields=True), each, self._announce)
            for each in resources
        ]
        for follower in followers:
            follower.relist(announce=announce_present)
        for follower in followers:
            self._threads.start(follower.name, partial(follower.run, self._stop))

    def close(self) -> None:
        """End the watches, and wait for their threads.

        Raises:
            SelfJoin: Called by the listener.
            ThreadCrashed: The listener has failed; it is not called again.
        """
        self._stop.stop("the subscription is closed")
        self._threads.join()
        self._threads.raise_failure()

    def _announce(self, change: Change) -> None:
        with self._call_lock:
            if not self._stop.is_set():
                self._listener(change)


class _Follower:
    """Follows one kind and remembers the last state of each object.

    Threads: not thread-safe; one thread owns it.
    """

    def __init__(
        self,
        client: ResourceClient[JsonObject],
        resource: Resource[JsonObject],
        announce: Listener,
    ) -> None:
        self._client = client
        self._kind = BucketId(resource.plural, resource.group)
        self._announce = announce
        self._known: dict[str, JsonObject] = {}  # by uid: a name may be used again
        self._version = ""

    @property
    def name(self) -> str:
        """The plural name of the kind."""
        return self._kind.plural

    def relist(self, *, announce: bool = True) -> None:
        """Update the known state from a list."""
        found = self._client.list()
        self._version = str(found.resource_version)
        present = {obj["metadata"]["uid"]: obj for obj in found.items}
        for uid in [uid for uid in self._known if uid not in present]:
            self._take("DELETED", self._known[uid], announce=announce)
        for obj in present.values():
            self._take("MODIFIED", obj, announce=announce)

    def run(self, stop: StopToken) -> None:
        """Watch the kind until the token is set."""
        expired = False
        while not stop.is_set():
            try:
                if expired:
                    self.relist()
                    expired = False
                self._watch(stop)
            except WatchExpired:
                expired = True
            except (WatchBroken, ApiError, TransportError) as error:
                _log.debug("subscription_failed", resource=self._kind.plural, error=str(error))
                stop.wait(_RETRY_SECONDS)

    def _watch(self, stop: StopToken) -> None:
        with self._client.watch(
            options=WatchOptions(resource_version=self._version), stop=stop
        ) as events:
            for event in events:
                if event.object is not None and event.type != "BOOKMARK":
                    self._take(event.type, event.object)
                self._version = str(event.resource_version)

    def _take(self, event: str, obj: JsonObject, *, announce: bool = True) -> None:
        uid, version = obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]
        previous = self._known.get(uid)
        if event == "DELETED":
            self._known.pop(uid, None)
        elif previous is not None and previous["metadata"]["resourceVersion"] == version:
            return
        else:
            self._known[uid] = obj
        if announce:
            self._announce(
                Change(
                    type=_type_of(event, previous),
                    resource=self._kind,
                    object=obj,
                    previous=previous,
                    resource_version=int(version),
                    request=None,
                )
            )


def _type_of(event: str, previous: JsonObject | None) -> Any:
    if event == "DELETED":
        return event
    return "ADDED" if previous is None else "MODIFIED"
