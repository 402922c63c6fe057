"""Discovery and OpenAPI: the documents that describe what the server serves.

OpenAPI has as much as kubectl needs to validate, apply and explain objects.
"""

import base64
import hashlib
from typing import Final, NamedTuple

from navarchos.testing.apiserver import objects, patches, proxy_subresources, requests
from navarchos.testing.apiserver.kinds import Kind, Kinds
from navarchos.testing.apiserver.types import TYPES

__all__ = ["AGGREGATED", "VERSION", "discover", "openapi", "wants_aggregated"]

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
"""The answer to `/version`: the release whose responses `tests/contract` has recorded."""

_SUBRESOURCE_KINDS: Final = {
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "finalize": ("", "v1", "Namespace", ("update",)),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
}
_STATUS_VERBS: Final = ("get", "patch", "update")
_CUSTOM_VERBS: Final = (
    "delete", "deletecollection", "get", "list", "patch", "create", "update", "watch",
)  # fmt: skip
_CORE_VERSIONS: Final = {
    "kind": "APIVersions",
    "versions": ["v1"],
    "serverAddressByClientCIDRs": [],
}
_PREFIX: Final = "/openapi/v3/"
_INFO: Final = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_OBJECT_META: Final = f"#/components/schemas/{_META}.ObjectMeta"
_WRITES: Final = {"post": "post", "put": "put", "patch": "patch"}
_PATCH_TYPES: Final = (patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH)


def wants_aggregated(accept: str) -> bool:
    """Return whether a client asks for all groups in one document."""
    return "as=APIGroupDiscoveryList" in accept.replace(" ", "") and "v=v2;" in (
        accept.replace(" ", "").replace(",", ";") + ";"
    )


def discover(path: str, accept: str, kinds: Kinds) -> requests.ApiResponse | None:
    """Return the response to a discovery path; `None` for other paths."""
    parts = path.strip("/").split("/")
    if parts[0] not in {"api", "apis"} or len(parts) > 3:
        return None
    if len(parts) == 1 and wants_aggregated(accept):
        answer = requests.json_response(_aggregated(kinds, core=parts[0] == "api"))
        return requests.ApiResponse(200, answer.body, AGGREGATED)
    if parts == ["api"]:
        return requests.json_response(_CORE_VERSIONS)
    if parts == ["apis"]:
        groups = [_group(kinds, name) for name in kinds.groups()]
        return requests.json_response(
            {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        )
    return _group_document(parts, kinds)


def _group_document(parts: list[str], kinds: Kinds) -> requests.ApiResponse | None:
    if parts[0] == "api":
        return requests.json_response(_resources(kinds, "", "v1")) if parts[1:] == ["v1"] else None
    versions = kinds.versions(parts[1])
    if not versions:
        return None
    if len(parts) == 2:
        return requests.json_response(
            {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, parts[1])}
        )
    return (
        requests.json_response(_resources(kinds, parts[1], parts[2]))
        if parts[2] in versions
        else None
    )


def _group(kinds: Kinds, group: str) -> objects.JsonObject:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in kinds.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _served(kinds: Kinds, group: str, version: str) -> list[Kind]:
    return [k for k in kinds.all() if k.group == group and k.version == version]


def _resources(kinds: Kinds, group: str, version: str) -> objects.JsonObject:
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


def _resource(kind: Kind) -> objects.JsonObject:
    found: objects.JsonObject = {
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
    """Return the hash of the storage version, as apiserver's discovery does."""
    named = f"{kind.group}/{kind.stored_version.rpartition('/')[2]}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(named.encode()).digest()[:8]).decode()


class _ServedSubresource(NamedTuple):
    """A subresource, and the kind that represents it."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


def _subresources(kind: Kind) -> list[_ServedSubresource]:
    own = (kind.group, kind.version, kind.kind, _STATUS_VERBS)
    found = [
        _ServedSubresource(name, *_SUBRESOURCE_KINDS.get(name, own)) for name in kind.subresources
    ]
    if not kind.group:
        connections = proxy_subresources.PROXY_SUBRESOURCES.get(kind.plural, {})
        found += [_ServedSubresource(name, "", "v1", *it) for name, it in connections.items()]
    return sorted(found)


def _subresource(kind: Kind, sub: _ServedSubresource) -> objects.JsonObject:
    found: objects.JsonObject = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
    }
    if (sub.group, sub.version) != (kind.group, kind.version):
        found["group"], found["version"] = sub.group, sub.version
    return {**found, "kind": sub.kind, "verbs": list(sub.verbs)}


def _aggregated(kinds: Kinds, *, core: bool) -> objects.JsonObject:
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


def _aggregated_resource(kind: Kind) -> objects.JsonObject:
    found: objects.JsonObject = {
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


def _response_kind(kind: Kind, group: str, version: str, name: str) -> objects.JsonObject:
    """Return the kind of a response; built-in kinds omit their own group and version."""
    if kind.custom is None and (group, version) == (kind.group, kind.version):
        group, version = "", ""
    return {"group": group, "version": version, "kind": name}


def openapi(path: str, kinds: Kinds) -> requests.ApiResponse | None:
    """Return the response to a path below `/openapi`; `None` for other paths."""
    if path == "/openapi/v2":
        return requests.json_response(
            {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
        )
    if path == "/openapi/v3":
        return requests.json_response({"paths": _index(kinds)})
    if not path.startswith(_PREFIX):
        return None
    group_version = _group_version(path.removeprefix(_PREFIX))
    served = [k for k in kinds.all() if (k.group, k.version) == group_version]
    return requests.json_response(_document(served)) if served else None


def _group_version(path: str) -> tuple[str, str]:
    if path == "api/v1":
        return "", "v1"
    parts = path.split("/")
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "apis" else ("", "")


def _index(kinds: Kinds) -> objects.JsonObject:
    found: objects.JsonObject = {}
    for kind in kinds.all():
        path = _root(kind)
        if path in found:
            continue
        # Clients fetch the document again when the hash changes, so it depends on the schemas.
        seed = objects.encode(
            [k.custom.openapi if k.custom else k.kind for k in kinds.all() if _root(k) == path]
        )
        digest = hashlib.sha256(seed).hexdigest().upper()
        found[path] = {"serverRelativeURL": f"{_PREFIX}{path}?hash={digest}"}
    return found


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _document(served: list[Kind]) -> objects.JsonObject:
    schemas: objects.JsonObject = {}
    paths: objects.JsonObject = {}
    for kind in served:
        _add_schemas(kind, schemas)
        paths.update(_paths(kind))
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _definition_name(kind: Kind) -> str:
    if kind.type_name:
        return TYPES.definition_name(kind.type_name)
    return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"


def _gvk(kind: Kind) -> objects.JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _add_schemas(kind: Kind, schemas: objects.JsonObject) -> None:
    name = _definition_name(kind)
    if kind.type_name:
        _add_type(kind.type_name, schemas)
        schemas[name]["x-kubernetes-group-version-kind"] = [_gvk(kind)]
        return
    _add_type("meta.ObjectMeta", schemas)
    schemas[name] = _custom_schema(kind)
    schemas[f"{name}List"] = {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}
        },
        "x-kubernetes-group-version-kind": [{**_gvk(kind), "kind": kind.list_kind}],
    }


def _add_type(name: str, schemas: objects.JsonObject) -> None:
    written = TYPES.definition_name(name)
    if written in schemas:
        return
    schemas[written] = TYPES.definition(name)
    for reference in TYPES.references(name):
        _add_type(reference, schemas)


def _custom_schema(kind: Kind) -> objects.JsonObject:
    source = kind.custom.openapi if kind.custom else {}
    schema: objects.JsonObject = objects.copy_json(source)
    envelope = {
        "apiVersion": {"type": "string", "description": "APIVersion of this representation."},
        "kind": {"type": "string", "description": "Kind of the object."},
        "metadata": {
            "description": "Standard object's metadata.",
            "allOf": [{"$ref": _OBJECT_META}],
        },
    }
    schema["type"] = "object"
    schema["properties"] = {**(schema.get("properties") or {}), **envelope}
    schema["x-kubernetes-group-version-kind"] = [_gvk(kind)]
    return schema


def _paths(kind: Kind) -> objects.JsonObject:
    collection = f"/{_root(kind)}/"
    if kind.namespaced:
        collection += "namespaces/{namespace}/"
    collection += kind.plural
    return {
        collection: {
            "get": _operation(kind, "list", ()),
            "post": _operation(kind, "post", (_kind_body(kind),)),
        },
        f"{collection}/{{name}}": {
            "get": _operation(kind, "get", ()),
            "put": _operation(kind, "put", (_kind_body(kind),)),
            "patch": _operation(kind, "patch", (_patch_body(kind),)),
            "delete": _operation(kind, "delete", ()),
        },
    }


def _kind_body(kind: Kind) -> objects.JsonObject:
    """Return the content of a body that holds an object of the kind."""
    reference = {"$ref": f"#/components/schemas/{_definition_name(kind)}"}
    return {"application/json": {"schema": reference}}


def _patch_body(kind: Kind) -> objects.JsonObject:
    """Return the patch formats of a kind; kubectl decides by them how `apply` merges."""
    accepted = (*_PATCH_TYPES, *(() if kind.custom else (patches.STRATEGIC_PATCH,)))
    return {media: {"schema": {"type": "object"}} for media in accepted}


def _operation(
    kind: Kind, action: str, bodies: tuple[objects.JsonObject, ...]
) -> objects.JsonObject:
    operation: objects.JsonObject = {
        "operationId": f"{action}{kind.kind}{kind.version}",
        "parameters": [_query(name) for name in _parameters(action)],
        "responses": {"200": {"description": "OK", "content": _kind_body(kind)}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind),
    }
    for body in bodies:
        operation["requestBody"] = {"content": body, "required": True}
    return operation


def _parameters(action: str) -> tuple[str, ...]:
    if action == "patch":
        return ("dryRun", "fieldManager", "fieldValidation", "force")
    if action in _WRITES:
        return ("dryRun", "fieldManager", "fieldValidation")
    return ("dryRun",) if action == "delete" else ()


def _query(name: str) -> objects.JsonObject:
    return {
        "name": name,
        "in": "query",
        "description": f"{name}.",
        "schema": {"type": "string", "uniqueItems": True},
    }
