"""OpenAPI: enough for kubectl's validation, apply and explain."""

import hashlib
from typing import Final

from navarchos.testing.apiserver.discovery import VERSION
from navarchos.testing.apiserver.kinds import Kind, Kinds
from navarchos.testing.apiserver.objects import JsonObject, copy_json, encode
from navarchos.testing.apiserver.patches import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
)
from navarchos.testing.apiserver.requests import Answer, json_answer
from navarchos.testing.apiserver.types import TYPES

__all__ = ["openapi"]

_PREFIX: Final = "/openapi/v3/"
_INFO: Final = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_OBJECT_META: Final = f"#/components/schemas/{_META}.ObjectMeta"
_WRITES: Final = {"post": "post", "put": "put", "patch": "patch"}
_PATCH_TYPES: Final = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


def openapi(path: str, kinds: Kinds) -> Answer | None:
    """Answer a path below `/openapi`; `None` when it is none."""
    if path == "/openapi/v2":
        return json_answer({"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}})
    if path == "/openapi/v3":
        return json_answer({"paths": _index(kinds)})
    if not path.startswith(_PREFIX):
        return None
    group_version = _group_version(path.removeprefix(_PREFIX))
    served = [k for k in kinds.all() if (k.group, k.version) == group_version]
    return json_answer(_document(served)) if served else None


def _group_version(path: str) -> tuple[str, str]:
    if path == "api/v1":
        return "", "v1"
    parts = path.split("/")
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "apis" else ("", "")


def _index(kinds: Kinds) -> JsonObject:
    found: JsonObject = {}
    for kind in kinds.all():
        path = _root(kind)
        if path in found:
            continue
        # The hash tells clients when to fetch again: it changes with the schemas.
        seed = encode(
            [k.custom.openapi if k.custom else k.kind for k in kinds.all() if _root(k) == path]
        )
        digest = hashlib.sha256(seed).hexdigest().upper()
        found[path] = {"serverRelativeURL": f"{_PREFIX}{path}?hash={digest}"}
    return found


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _document(served: list[Kind]) -> JsonObject:
    schemas: JsonObject = {}
    paths: JsonObject = {}
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


def _gvk(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _add_schemas(kind: Kind, schemas: JsonObject) -> None:
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


def _add_type(name: str, schemas: JsonObject) -> None:
    written = TYPES.definition_name(name)
    if written in schemas:
        return
    schemas[written] = TYPES.definition(name)
    for reference in TYPES.references(name):
        _add_type(reference, schemas)


def _custom_schema(kind: Kind) -> JsonObject:
    source = kind.custom.openapi if kind.custom else {}
    schema: JsonObject = copy_json(source)
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


def _paths(kind: Kind) -> JsonObject:
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


def _kind_body(kind: Kind) -> JsonObject:
    """Return the content of a body that holds an object of the kind."""
    reference = {"$ref": f"#/components/schemas/{_definition_name(kind)}"}
    return {"application/json": {"schema": reference}}


def _patch_body(kind: Kind) -> JsonObject:
    """Name the patch formats: kubectl decides by them how `apply` merges."""
    accepted = (*_PATCH_TYPES, *(() if kind.custom else (STRATEGIC_PATCH,)))
    return {media: {"schema": {"type": "object"}} for media in accepted}


def _operation(kind: Kind, action: str, bodies: tuple[JsonObject, ...]) -> JsonObject:
    operation: JsonObject = {
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


def _query(name: str) -> JsonObject:
    return {
        "name": name,
        "in": "query",
        "description": f"{name}.",
        "schema": {"type": "string", "uniqueItems": True},
    }
