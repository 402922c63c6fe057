"""Custom kinds: made from CustomResourceDefinitions, and served immediately.

Two definitions of a group must not share a name, as in apiextensions-apiserver's
`pkg/controller/status/naming_controller.go`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from navarchos.testing.apiserver import objects, validation
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.builtin.definitions import (
    CLEANUP_FINALIZER,
    accept_names,
    is_established,
    refuse_names,
)
from navarchos.testing.apiserver.kinds import (
    ALL_VERBS,
    CustomKind,
    Kind,
    Kinds,
    KindStrategy,
    PrinterColumn,
    version_order,
)
from navarchos.testing.apiserver.names import dns_subdomain
from navarchos.testing.apiserver.schema import (
    Schema,
    apply_defaults,
    drop_nulls,
    prune,
    schema_from_openapi,
)
from navarchos.testing.apiserver.store import BucketId, Change, ObjectStore
from navarchos.testing.apiserver.types import TYPES

__all__ = [
    "CLEANUP_FINALIZER",
    "DEFINITIONS",
    "CustomKinds",
    "NameCheck",
    "check_names",
    "kinds_of",
]

DEFINITIONS: Final = BucketId("customresourcedefinitions", "apiextensions.k8s.io")
"""The bucket of the definitions themselves."""
_CHECKED: Final = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)
_KINDS: Final = frozenset({"kind", "listKind"})


class CustomKinds:
    """Keeps the served kinds up to date with the stored definitions.

    Threads: the listener runs under the store's lock, so a definition is served before the response
    to the request that wrote it.
    """

    def __init__(self, store: ObjectStore, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds

    def on_change(self, change: Change) -> None:
        """Serve, change or remove the kinds of a definition."""
        if change.resource != DEFINITIONS:
            return
        name = objects.meta(change.object)["name"]
        if change.type == "DELETED":
            self._kinds.replace_custom(name, ())
            self._retry_refused(change.object["spec"]["group"])
            return
        if change.previous is not None and change.previous["spec"] == change.object["spec"]:
            return
        served = self._serve(change.object, change.previous)
        if change.previous is not None and served:
            self._rewrite_stored(served[0])

    def _serve(
        self, definition: objects.JsonObject, previous: objects.JsonObject | None
    ) -> list[Kind]:
        """Serve a definition under its accepted names; return the served kinds."""
        name, group = objects.meta(definition)["name"], definition["spec"]["group"]
        others = [other for other in self._of_group(group) if objects.meta(other)["name"] != name]
        wanted = definition["spec"]["names"]
        had = objects.dig(previous or {}, "status", "acceptedNames", default={})
        check = check_names(wanted, had, others)
        served: list[Kind] = []
        established = previous is not None and is_established(previous)
        if not check.reason or established:
            # A definition keeps its former names if its new ones are in use.
            spec = {**definition["spec"], "names": check.accepted}
            served = kinds_of({**definition, "spec": spec})
        self._kinds.replace_custom(name, served)
        if check.reason:
            refused = objects.copy_json(definition)
            refuse_names(refused, *check, established=established)
            self._store.put(DEFINITIONS, refused)
        return served

    def _retry_refused(self, group: str) -> None:
        """Accept names that were refused because a definition, now deleted, had them."""
        for definition in self._of_group(group):
            if objects.is_condition_true(definition, "NamesAccepted"):
                continue
            accepted = objects.copy_json(definition)
            accept_names(accepted)
            others = [other for other in self._of_group(group) if other is not definition]
            had = definition["status"]["acceptedNames"]
            if not check_names(definition["spec"]["names"], had, others).reason:
                self._kinds.replace_custom(objects.meta(definition)["name"], kinds_of(accepted))
                self._store.put(DEFINITIONS, accepted)

    def _of_group(self, group: str) -> list[objects.JsonObject]:
        entries = self._store.entries(DEFINITIONS)
        return [entry.obj for entry in entries if entry.obj["spec"]["group"] == group]

    def _rewrite_stored(self, kind: Kind) -> None:
        """Change stored objects as the new schema would read them."""

        def convert(obj: objects.JsonObject) -> objects.JsonObject:
            copy = objects.copy_json(obj)
            prune(copy, kind.schema)
            kind.strategy.default(copy)
            return {**copy, "apiVersion": kind.stored_version}

        self._store.rewrite(kind.bucket, convert)


def kinds_of(definition: objects.JsonObject) -> list[Kind]:
    """Return the served versions that a definition describes."""
    spec = definition["spec"]
    stored = next(v["name"] for v in spec["versions"] if v.get("storage"))
    return [
        _kind(definition, version, f"{spec['group']}/{stored}")
        for version in spec["versions"]
        if version.get("served")
    ]


def _kind(definition: objects.JsonObject, version: objects.JsonObject, stored_version: str) -> Kind:
    spec, names = definition["spec"], definition["spec"]["names"]
    openapi = objects.dig(version, "schema", "openAPIV3Schema", default={})
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
        custom=CustomKind(
            definition=objects.meta(definition)["name"],
            columns=tuple(_columns(version.get("additionalPrinterColumns") or ())),
            selectable=tuple(f["jsonPath"] for f in version.get("selectableFields") or ()),
            scale=subresources.get("scale"),
            deprecation=_deprecation(definition, version),
            openapi=openapi,
        ),
    )


def _with_envelope(schema: Schema) -> Schema:
    """Add the fields that every object has to the root of a schema."""
    envelope = TYPES.schema("meta.ObjectMeta")
    schema.properties = {
        "apiVersion": Schema(type="string"),
        "kind": Schema(type="string"),
        **schema.properties,
        "metadata": envelope,
    }
    schema.type = "object"
    return schema


def _columns(columns: Iterable[objects.JsonObject]) -> Iterable[PrinterColumn]:
    for column in columns:
        yield PrinterColumn(
            name=column["name"],
            type=column["type"],
            json_path=column["jsonPath"],
            format=column.get("format") or "",
            description=column.get("description") or "",
            priority=column.get("priority") or 0,
        )


def _deprecation(definition: objects.JsonObject, version: objects.JsonObject) -> str:
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    spec, name = definition["spec"], version["name"]
    better = sorted(
        (
            each["name"]
            for each in spec["versions"]
            if each.get("served")
            and not each.get("deprecated")
            and version_order(each["name"]) < version_order(name)
        ),
        key=version_order,
    )
    group, kind = spec["group"], spec["names"]["kind"]
    instead = f"; use {group}/{better[0]} {kind}" if better else ""
    return f"{group}/{name} {kind} is deprecated{instead}"


def _strategy(schema: Schema) -> KindStrategy:
    body = Schema(
        type="object",
        properties={k: v for k, v in schema.properties.items() if k != "metadata"},
        required=schema.required,
        preserve=schema.preserve,
        keywords=schema.keywords,
        rules=schema.rules,
        has_rules=schema.has_rules,
    )

    def default(obj: objects.JsonObject) -> None:
        drop_nulls(obj, body)
        apply_defaults(obj, body)

    def validate(obj: objects.JsonObject) -> list[statuses.FieldError]:
        return validation.validate_value(obj, body)

    def validate_change(
        new: objects.JsonObject, old: objects.JsonObject
    ) -> list[statuses.FieldError]:
        return validation.validate_update(new, old, body)

    return KindStrategy(
        name_rule=dns_subdomain,
        generation=True,
        unconditional_update=False,
        status_metadata=(),
        default=default,
        validate=validate,
        validate_update=validate_change,
    )


class NameCheck(NamedTuple):
    """Which names of a definition are accepted.

    Attributes:
        accepted: The accepted names; the former name where the new one is in use.
        reason: The reason of the condition `NamesAccepted`; empty if all names are accepted.
        message: The message of that condition.
    """

    accepted: objects.JsonObject
    reason: str = ""
    message: str = ""


def check_names(
    wanted: objects.JsonObject, had: objects.JsonObject, others: Iterable[objects.JsonObject]
) -> NameCheck:
    """Return which names of a definition are accepted.

    Args:
        wanted: `spec.names`.
        had: The names that were accepted before; empty for a new definition.
        others: The other definitions of the group.
    """
    used: dict[bool, set[str]] = {True: set(), False: set()}
    for other in others:
        names = objects.dig(other, "status", "acceptedNames", default={})
        for field, _ in _CHECKED:
            used[field in _KINDS].update(_listed(names, field))
    accepted, reason, message = dict(had), "", ""
    for field, why in _CHECKED:
        mine = _listed(had, field)
        taken = [
            name
            for name in _listed(wanted, field)
            if name not in mine and name in used[field in _KINDS]
        ]
        if taken:
            texts = [f'"{name}" is already in use' for name in taken]
            reason = why
            message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        elif field in wanted:
            accepted[field] = wanted[field]
    if "categories" in wanted:
        accepted["categories"] = wanted["categories"]
    return NameCheck(accepted, reason, message)


def _listed(names: objects.JsonObject, field: str) -> Sequence[str]:
    found = names.get(field) or ()
    return (found,) if isinstance(found, str) else found
