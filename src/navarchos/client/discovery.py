"""Which kinds a server serves: all groups in one answer, or group by group."""

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

_FRESH: Final = 30.0
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


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
    """An `APIGroupDiscoveryList`; the older kinds of answer have no items."""

    items: tuple[_Group, ...] = ()


class Discovery:
    """What the server says it serves.

    The groups are asked for in one aggregated answer (Kubernetes 1.30 and newer) that
    is kept for half a minute. What it does not have is asked for by its own path: by
    servers that do not aggregate, for a kind that was not there a moment ago, so that a
    CRD installed after start is found (CL-16), and for an API that is served by somebody
    else and could not be reached. So a "yes" may be half a minute old, and a "no" is
    always news.

    Threads: safe from any thread; two may ask the server the same thing at once.
    """

    def __init__(self, executor: RequestExecutor, *, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._known_lock = threading.Lock()
        # Until when an answer is fresh, and the answer, by path; guarded by _known_lock.
        self._known: dict[str, tuple[float, Resources]] = {}
        # Until when not to ask for all groups again, by path; guarded by _known_lock.
        self._asked: dict[str, float] = {}

    def server_version(self) -> str:
        """Return the server's version."""
        return _decoded(self._fetch("/version"), "/version", _Version).git_version

    def resources(self, group: str, version: str) -> Sequence[ApiResource]:
        """Return what a group and version has; nothing if the server lacks it."""
        path = _path(group, version)
        known = self._lookup(path)
        return known if known is not None else self._load(path)

    def has_kind(self, resource: Resource[Any]) -> bool:
        """Tell whether the server serves this kind."""
        path = _path(resource.group, resource.version)
        if _serves(self._lookup(path) or (), resource):
            return True
        return _serves(self._load(path), resource)

    def _lookup(self, path: str) -> Resources | None:
        """Return what is known to be fresh, after asking for all groups if it is time."""
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
                self._asked[root] = now + _FRESH
        return due

    def _keep(self, found: Mapping[str, Resources]) -> None:
        until = self._clock.monotonic() + _FRESH
        with self._known_lock:
            self._known |= {path: (until, resources) for path, resources in found.items()}

    def _load_all(self, root: str) -> Mapping[str, Resources]:
        """Return what all groups have, by path, as far as the server aggregates."""
        try:
            answer = self._fetch(root, accept=f"{_AGGREGATED},application/json")
        except (Forbidden, NotFound):
            return {}  # who may not see all groups may see one, as in client-go
        found = _decoded(answer, root, _Groups)
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


def _decoded(answer: RawResponse, path: str, kind: type[D]) -> D:
    try:
        return msgspec.convert(without_nulls(msgspec.json.decode(answer.body)), kind)
    except msgspec.DecodeError as error:
        raise DecodeError(
            f"the answer is no discovery document: {error}", verb="discover", resource=path
        ) from error


def _path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _root(path: str) -> str:
    return "/" + path.split("/")[1]


def _flat(version: _GroupVersion) -> Resources:
    """Return the resources as they stand in the document of one group and version."""
    found = []
    for entry in version.resources:
        namespaced = entry.scope == "Namespaced"
        if entry.response_kind.kind:  # without, subresources are all there is
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
