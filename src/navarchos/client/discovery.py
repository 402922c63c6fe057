"""Which kinds a server serves, asked lazily, group by group."""

import threading
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from navarchos.client.calls import Call, Caller
from navarchos.client.errors import DecodeError, NotFound
from navarchos.client.nulls import without_nulls
from navarchos.client.resource import Resource
from navarchos.clock import Clock

__all__ = ["ApiResource", "Discovery"]

D = TypeVar("D")

_FRESH: Final = 30.0


class ApiResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A kind, or a subresource of one, that a server serves.

    Attributes:
        name: Plural; `plural/subresource` for subresources.
        kind: Kind of the objects.
        namespaced: Whether they live in namespaces.
        verbs: What can be done with them.
        short_names: What kubectl takes for the name.
    """

    name: str
    kind: str
    namespaced: bool = False
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()


class _ApiResources(msgspec.Struct, frozen=True):
    resources: tuple[ApiResource, ...] = ()


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


class Discovery:
    """What the server says it serves.

    An answer is kept for half a minute, but only a "yes" is taken from it: a kind
    that is missing is asked for again, so that a CRD installed after start is
    found (CL-16).

    Threads: safe from any thread; two may ask the server the same thing at once.
    """

    def __init__(self, caller: Caller, *, clock: Clock) -> None:
        self._caller = caller
        self._clock = clock
        self._known_lock = threading.Lock()
        # Until when an answer is fresh, and the answer; guarded by _known_lock.
        self._known: dict[str, tuple[float, tuple[ApiResource, ...]]] = {}

    def server_version(self) -> str:
        """Return the server's version."""
        return self._fetch("/version", _Version).git_version

    def resources(self, group: str, version: str) -> Sequence[ApiResource]:
        """Return what a group and version has; nothing if the server lacks it."""
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        known = self._lookup(path)
        return known if known is not None else self._load(path)

    def has_kind(self, resource: Resource[Any]) -> bool:
        """Tell whether the server serves this kind."""
        path = resource.path().rpartition("/")[0]
        if _serves(self._lookup(path) or (), resource):
            return True
        return _serves(self._load(path), resource)

    def _lookup(self, path: str) -> tuple[ApiResource, ...] | None:
        with self._known_lock:
            until, known = self._known.get(path, (0.0, ()))
        return known if self._clock.monotonic() < until else None

    def _load(self, path: str) -> tuple[ApiResource, ...]:
        try:
            found = self._fetch(path, _ApiResources).resources
        except NotFound:
            with self._known_lock:
                self._known.pop(path, None)
            return ()
        with self._known_lock:
            self._known[path] = (self._clock.monotonic() + _FRESH, found)
        return found

    def _fetch(self, path: str, kind: type[D]) -> D:
        body = self._caller.checked(Call("discover", "GET", path, path.strip("/"))).body
        try:
            return msgspec.convert(without_nulls(msgspec.json.decode(body)), kind)
        except msgspec.DecodeError as error:
            raise DecodeError(
                f"the answer is no discovery document: {error}", verb="discover", resource=path
            ) from error


def _serves(known: Sequence[ApiResource], resource: Resource[Any]) -> bool:
    return any(entry.name == resource.plural and entry.kind == resource.kind for entry in known)
