"""Discovery of the kinds that a server serves: all groups at once, or each group."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from navarchos.client.errors import DecodeError, Forbidden, NotFound
from navarchos.client.executor import RequestExecutor
from navarchos.client.resource import Resource
from navarchos.client.transport import Call, RawResponse
from navarchos.clock import Clock
from navarchos.structs import prepare_decoding, without_nulls

__all__ = ["ApiResource", "Discovery"]

D = TypeVar("D")
Resources = tuple["ApiResource", ...]

_CACHE_SECONDS: Final = 30.0
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ApiResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A kind, or a subresource of one, that a server serves.

    Attributes:
        name: The plural; `plural/subresource` for a subresource.
        kind: The kind of the objects.
        namespaced: Whether the objects have a namespace.
        verbs: The supported verbs.
        short_names: The abbreviations that kubectl accepts.
    """

    name: str
    kind: str
    namespaced: bool = False
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()


@prepare_decoding
class _ApiResources(msgspec.Struct, frozen=True):
    resources: tuple[ApiResource, ...] = ()


@prepare_decoding
class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


class _Subresource(msgspec.Struct, frozen=True, rename="camel"):
    subresource: str
    response_kind: _Kind = _Kind()
    verbs: tuple[str, ...] = ()


class _Resource(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    scope: str = ""
    response_kind: _Kind = _Kind()
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    subresources: tuple[_Subresource, ...] = ()


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str
    resources: tuple[_Resource, ...] = ()
    freshness: str = ""


class _GroupMeta(msgspec.Struct, frozen=True):
    name: str = ""


class _Group(msgspec.Struct, frozen=True):
    metadata: _GroupMeta = _GroupMeta()
    versions: tuple[_GroupVersion, ...] = ()


@prepare_decoding
class _Groups(msgspec.Struct, frozen=True):
    """An `APIGroupDiscoveryList`; older forms of the response have no items."""

    items: tuple[_Group, ...] = ()


class Discovery:
    """The kinds that a server serves.

    All groups are requested in one aggregated response (Kubernetes 1.30 and later), which
    is cached for half a minute. A kind that it does not contain is looked up by the path of
    its group and version. This covers servers without aggregated discovery, a
    CustomResourceDefinition that was installed after the start (CL-16), and an aggregated
    API server that could not be reached. So a positive result may be half a minute old; a
    negative result is never cached.

    Threads: safe from any thread; two threads may send the same request at once.
    """

    def __init__(self, executor: RequestExecutor, *, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._known_lock = threading.Lock()
        # Time of expiry and resources, by path; guarded by _known_lock.
        self._known: dict[str, tuple[float, Resources]] = {}
        # Time at which all groups may be requested again, by path; guarded by _known_lock.
        self._asked: dict[str, float] = {}

    def server_version(self) -> str:
        """Return the server's version."""
        return _decoded(self._fetch("/version"), "/version", _Version).git_version

    def resources(self, group: str, version: str) -> Sequence[ApiResource]:
        """Return the resources of a group and version; empty if the server lacks it."""
        path = _path(group, version)
        known = self._lookup(path)
        return known if known is not None else self._load(path)

    def has_kind(self, resource: Resource[Any]) -> bool:
        """Return whether the server serves this kind."""
        path = _path(resource.group, resource.version)
        if _serves(self._lookup(path) or (), resource):
            return True
        return _serves(self._load(path), resource)

    def _lookup(self, path: str) -> Resources | None:
        """Return the cached resources, after requesting all groups if they have expired."""
        if (known := self._fresh(path)) is None and self._may_ask(root := _root(path)):
            self._keep(self._load_all(root))
            known = self._fresh(path)
        return known

    def _fresh(self, path: str) -> Resources | None:
        with self._known_lock:
            until, known = self._known.get(path, (0.0, ()))
        return known if self._clock.monotonic() < until else None

    def _may_ask(self, root: str) -> bool:
        now = self._clock.monotonic()
        with self._known_lock:
            due = now >= self._asked.get(root, 0.0)
            if due:
                self._asked[root] = now + _CACHE_SECONDS
        return due

    def _keep(self, found: Mapping[str, Resources]) -> None:
        until = self._clock.monotonic() + _CACHE_SECONDS
        with self._known_lock:
            self._known |= {path: (until, resources) for path, resources in found.items()}

    def _load_all(self, root: str) -> Mapping[str, Resources]:
        """Return the resources of all groups by path; empty without aggregated discovery."""
        try:
            response = self._fetch(root, accept=f"{_AGGREGATED},application/json")
        except (Forbidden, NotFound):
            return {}  # as in client-go: single groups may be allowed
        found = _decoded(response, root, _Groups)
        return {
            _path(group.metadata.name, version.version): _flat(version)
            for group in found.items
            for version in group.versions
            if version.freshness != "Stale"
        }

    def _load(self, path: str) -> Resources:
        try:
            found = _decoded(self._fetch(path), path, _ApiResources).resources
        except NotFound:
            with self._known_lock:
                self._known.pop(path, None)
            return ()
        self._keep({path: found})
        return found

    def _fetch(self, path: str, *, accept: str = "application/json") -> RawResponse:
        headers = {"Accept": accept}
        return self._executor.checked(
            Call("discover", "GET", path, path.strip("/"), headers=headers)
        )


def _decoded(response: RawResponse, path: str, kind: type[D]) -> D:
    try:
        return msgspec.convert(without_nulls(msgspec.json.decode(response.body)), kind)
    except msgspec.DecodeError as error:
        raise DecodeError(
            f"the response is not a discovery document: {error}", verb="discover", resource=path
        ) from error


def _path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _root(path: str) -> str:
    return "/" + path.split("/")[1]


def _flat(version: _GroupVersion) -> Resources:
    """Return the resources in the form of the document of one group and version."""
    found = []
    for entry in version.resources:
        namespaced = entry.scope == "Namespaced"
        if entry.response_kind.kind:  # if empty, there are only subresources
            found.append(
                ApiResource(
                    name=entry.resource,
                    kind=entry.response_kind.kind,
                    namespaced=namespaced,
                    verbs=entry.verbs,
                    short_names=entry.short_names,
                )
            )
        found += [
            ApiResource(
                name=f"{entry.resource}/{each.subresource}",
                kind=each.response_kind.kind,
                namespaced=namespaced,
                verbs=each.verbs,
            )
            for each in entry.subresources
        ]
    return tuple(found)


def _serves(known: Sequence[ApiResource], resource: Resource[Any]) -> bool:
    return any(entry.name == resource.plural and entry.kind == resource.kind for entry in known)
