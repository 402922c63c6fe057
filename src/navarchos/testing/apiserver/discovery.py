"""Discovery: what is served, one document per group version or all in one."""

import base64
import hashlib
from typing import Final, NamedTuple

from navarchos.testing.apiserver.connecting import CONNECTIONS
from navarchos.testing.apiserver.kinds import Kind, Kinds
from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.requests import Answer, json_answer

__all__ = ["AGGREGATED", "VERSION", "discover", "wants_aggregated"]

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The media type of aggregated discovery."""

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "go1.26.0",
    "compiler": "gc",
    "platform": "linux/amd64",
}
"""The answer to `/version`: the release whose answers are kept in `tests/contract`."""

_SUBRESOURCE_KINDS: Final = {
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "finalize": ("", "v1", "Namespace", ("update",)),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
}
_STATUS_VERBS: Final = ("get", "patch", "update")


def wants_aggregated(accept: str) -> bool:
    """Return whether a client asks for all groups in one document."""
    return "as=APIGroupDiscoveryList" in accept.replace(" ", "") and "v=v2;" in (
        accept.replace(" ", "").replace(",", ";") + ";"
    )


def discover(path: str, accept: str, kinds: Kinds) -> Answer | None:
    """Answer a discovery path; `None` when it is none."""
    parts = path.strip("/").split("/")
    if parts[0] not in {"api", "apis"} or len(parts) > 3:
        return None
    if len(parts) == 1 and wants_aggregated(accept):
        answer = json_answer(_aggregated(kinds, core=parts[0] == "api"))
        return Answer(200, answer.body, AGGREGATED)
    if parts == ["api"]:
        return json_answer(_CORE_VERSIONS)
    if parts == ["apis"]:
        groups = [_group(kinds, name) for name in kinds.groups()]
        return json_answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    return _below(parts, kinds)


_CUSTOM_VERBS: Final = (
    "delete", "deletecollection", "get", "list", "patch", "create", "update", "watch",
)  # fmt: skip
_CORE_VERSIONS: Final = {
    "kind": "APIVersions",
    "versions": ["v1"],
    "serverAddressByClientCIDRs": [],
}


def _below(parts: list[str], kinds: Kinds) -> Answer | None:
    if parts[0] == "api":
        return json_answer(_resources(kinds, "", "v1")) if parts[1:] == ["v1"] else None
    versions = kinds.versions(parts[1])
    if not versions:
        return None
    if len(parts) == 2:
        return json_answer({"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, parts[1])})
    return json_answer(_resources(kinds, parts[1], parts[2])) if parts[2] in versions else None


def _group(kinds: Kinds, group: str) -> JsonObject:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in kinds.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _served(kinds: Kinds, group: str, version: str) -> list[Kind]:
    return [k for k in kinds.all() if k.group == group and k.version == version]


def _resources(kinds: Kinds, group: str, version: str) -> JsonObject:
    resources = []
    for kind in _served(kinds, group, version):
        resources.append(_resource(kind))
        resources += [_subresource(kind, found) for found in _subresources(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _resource(kind: Kind) -> JsonObject:
    found: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    if kind.custom is not None:
        found["storageVersionHash"] = _storage_hash(kind)
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    return found


def _verbs(kind: Kind) -> list[str]:
    if kind.custom is None:
        return list(kind.verbs)
    return [verb for verb in _CUSTOM_VERBS if verb in kind.verbs]


def _storage_hash(kind: Kind) -> str:
    """Name the version that objects are stored in, as apiserver's discovery does."""
    named = f"{kind.group}/{kind.stored_version.rpartition('/')[2]}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(named.encode()).digest()[:8]).decode()


class _Subresource(NamedTuple):
    """A subresource by its name: the kind that it is read or written as."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


def _subresources(kind: Kind) -> list[_Subresource]:
    own = (kind.group, kind.version, kind.kind, _STATUS_VERBS)
    found = [_Subresource(name, *_SUBRESOURCE_KINDS.get(name, own)) for name in kind.subresources]
    if not kind.group:
        connections = CONNECTIONS.get(kind.plural, {})
        found += [_Subresource(name, "", "v1", *it) for name, it in connections.items()]
    return sorted(found)


def _subresource(kind: Kind, sub: _Subresource) -> JsonObject:
    found: JsonObject = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
    }
    if (sub.group, sub.version) != (kind.group, kind.version):
        found["group"], found["version"] = sub.group, sub.version
    return {**found, "kind": sub.kind, "verbs": list(sub.verbs)}


def _aggregated(kinds: Kinds, *, core: bool) -> JsonObject:
    groups = [""] if core else kinds.groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group, "creationTimestamp": None},
                "versions": [
                    {
                        "version": version,
                        "resources": [
                            _aggregated_resource(kind) for kind in _served(kinds, group, version)
                        ],
                        "freshness": "Current",
                    }
                    for version in kinds.versions(group)
                ],
            }
            for group in groups
        ],
    }


def _aggregated_resource(kind: Kind) -> JsonObject:
    found: JsonObject = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind, kind.group, kind.version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    if subresources := _subresources(kind):
        found["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": _response_kind(kind, sub.group, sub.version, sub.kind),
                "verbs": list(sub.verbs),
            }
            for sub in subresources
        ]
    return found


def _response_kind(kind: Kind, group: str, version: str, name: str) -> JsonObject:
    """Name what is answered; built-in kinds leave their own group and version out."""
    if kind.custom is None and (group, version) == (kind.group, kind.version):
        group, version = "", ""
    return {"group": group, "version": version, "kind": name}
