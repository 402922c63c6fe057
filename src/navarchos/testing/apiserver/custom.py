"""Custom kinds: made from CustomResourceDefinitions, served at once."""

from collections.abc import Iterable
from typing import Final

from navarchos.testing.apiserver.builtin.definitions import CLEANUP_FINALIZER
from navarchos.testing.apiserver.kinds import ALL_VERBS, Column, Custom, Kind, Kinds, Strategy
from navarchos.testing.apiserver.names import dns_subdomain
from navarchos.testing.apiserver.objects import JsonObject, copy_json, dig, meta
from navarchos.testing.apiserver.schema import (
    Schema,
    apply_defaults,
    drop_nulls,
    prune,
    schema_from_openapi,
)
from navarchos.testing.apiserver.status import FieldError
from navarchos.testing.apiserver.store import BucketId, Change, Store
from navarchos.testing.apiserver.types import TYPES
from navarchos.testing.apiserver.validation import validate_update, validate_value

__all__ = ["CLEANUP_FINALIZER", "DEFINITIONS", "Definitions", "kinds_of"]

DEFINITIONS: Final = BucketId("customresourcedefinitions", "apiextensions.k8s.io")
"""Where the definitions themselves are kept."""


class Definitions:
    """Keeps the served kinds in step with the stored definitions.

    Threads: the listener runs under the store's lock, so a definition is served
    before the request that wrote it is answered.
    """

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds

    def on_change(self, change: Change) -> None:
        """Serve, change or withdraw the kinds of a definition."""
        if change.resource != DEFINITIONS:
            return
        name = meta(change.object)["name"]
        if change.type == "DELETED":
            self._kinds.replace_custom(name, ())
            return
        if change.previous is not None and change.previous["spec"] == change.object["spec"]:
            return
        served = kinds_of(change.object)
        self._kinds.replace_custom(name, served)
        if change.previous is not None and served:
            self._reread(served[0])

    def _reread(self, kind: Kind) -> None:
        """Show stored objects as the new schema reads them."""

        def convert(obj: JsonObject) -> JsonObject:
            copy = copy_json(obj)
            prune(copy, kind.schema)
            kind.strategy.default(copy)
            return {**copy, "apiVersion": kind.stored_version}

        self._store.rewrite(kind.bucket, convert)


def kinds_of(definition: JsonObject) -> list[Kind]:
    """Return the served versions that a definition describes."""
    spec = definition["spec"]
    stored = next(v["name"] for v in spec["versions"] if v.get("storage"))
    return [
        _kind(definition, version, f"{spec['group']}/{stored}")
        for version in spec["versions"]
        if version.get("served")
    ]


def _kind(definition: JsonObject, version: JsonObject, stored_version: str) -> Kind:
    spec, names = definition["spec"], definition["spec"]["names"]
    openapi = dig(version, "schema", "openAPIV3Schema", default={})
    schema = _with_envelope(schema_from_openapi(openapi))
    subresources = version.get("subresources") or {}
    group, plural = spec["group"], names["plural"]
    return Kind(
        group=group,
        version=version["name"],
        kind=names["kind"],
        plural=plural,
        singular=names["singular"],
        namespaced=spec["scope"] == "Namespaced",
        schema=schema,
        bucket=BucketId(plural, group),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(set(subresources) & {"status", "scale"}),
        verbs=ALL_VERBS,
        strategy=_strategy(schema),
        list_kind=names["listKind"],
        stored_version=stored_version,
        custom=Custom(
            definition=meta(definition)["name"],
            columns=tuple(_columns(version.get("additionalPrinterColumns") or ())),
            selectable=tuple(f["jsonPath"] for f in version.get("selectableFields") or ()),
            scale=subresources.get("scale"),
            deprecation=_deprecation(definition, version),
            openapi=openapi,
        ),
    )


def _with_envelope(schema: Schema) -> Schema:
    """Give the root the fields that every object has, whatever the definition says."""
    envelope = TYPES.schema("meta.ObjectMeta")
    schema.properties = {
        "apiVersion": Schema(type="string"),
        "kind": Schema(type="string"),
        **schema.properties,
        "metadata": envelope,
    }
    schema.type = "object"
    return schema


def _columns(columns: Iterable[JsonObject]) -> Iterable[Column]:
    for column in columns:
        yield Column(
            name=column["name"],
            type=column["type"],
            json_path=column["jsonPath"],
            format=column.get("format") or "",
            description=column.get("description") or "",
            priority=column.get("priority") or 0,
        )


def _deprecation(definition: JsonObject, version: JsonObject) -> str:
    if not version.get("deprecated"):
        return ""
    spec = definition["spec"]
    shown = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
    return version.get("deprecationWarning") or f"{shown} is deprecated"


def _strategy(schema: Schema) -> Strategy:
    body = Schema(
        type="object",
        properties={k: v for k, v in schema.properties.items() if k != "metadata"},
        required=schema.required,
        preserve=schema.preserve,
        keywords=schema.keywords,
        rules=schema.rules,
        has_rules=schema.has_rules,
    )

    def default(obj: JsonObject) -> None:
        drop_nulls(obj, body)
        apply_defaults(obj, body)

    def validate(obj: JsonObject) -> list[FieldError]:
        return validate_value(obj, body)

    def validate_change(new: JsonObject, old: JsonObject) -> list[FieldError]:
        return validate_update(new, old, body)

    return Strategy(
        name_rule=dns_subdomain,
        generation=True,
        unconditional_update=False,
        status_metadata=(),
        default=default,
        validate=validate,
        validate_update=validate_change,
    )
