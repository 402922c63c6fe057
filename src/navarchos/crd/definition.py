"""CustomResourceDefinitions, described by values and checked before they are rendered."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from navarchos.client import Resource
from navarchos.crd.schema import Schema, kind_schema
from navarchos.errors import ConfigError

__all__ = ["Column", "ColumnType", "Definition", "Version", "custom_resource_definition"]

ColumnType = Literal["boolean", "date", "integer", "number", "string"]

_SCALARS: Final = frozenset({"boolean", "integer", "string"})
_SUBSCRIPT: Final = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`.

    Attributes:
        name: Its heading.
        path: The field, as a simple JSON path (`.status.phase`).
        type: How the value is shown; a `date` is shown as an age.
        priority: 0 is always shown, higher values only with `-o wide`.
        description: Shown by clients that ask for it.
        format: Refines the type, such as `name`; rarely needed.
    """

    name: str
    path: str
    type: ColumnType = "string"
    priority: int = 0
    description: str = ""
    format: str = ""

    def __post_init__(self) -> None:
        if not self.path.startswith("."):
            raise ConfigError("column path", self.path, "a simple JSON path must begin with a dot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a kind.

    Attributes:
        resource: Names the kind, its scope and the type of its objects.
        columns: The columns of `kubectl get`, in order.
        selectable_fields: Paths that field selectors may use (Kubernetes 1.31 on;
            older servers ignore them).
        rules: Rules (CEL) about the whole object, in the form of `x-kubernetes-validations`; they
            can compare `spec` with `status`. A rule about a field belongs to the field's type.
        status: Whether status is a subresource: then `spec` and `status` have
            separate writers, and only a change of `spec` raises the generation.
        served: Whether the server offers this version.
        storage: Whether objects are stored in it; true for exactly one.
    """

    resource: Resource[Any]
    columns: tuple[Column, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    rules: tuple[Mapping[str, str], ...] = ()
    status: bool = True
    served: bool = True
    storage: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A kind with all its versions.

    Attributes:
        versions: At least one; all name the same kind.
        short_names: For the command line, such as `nr`.
        categories: Groups of kinds for `kubectl get`, such as `all`.

    Raises:
        ConfigError: The versions contradict each other.
    """

    versions: tuple[Version, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [version.resource.version for version in self.versions]
        if len({_kind_facts(version.resource) for version in self.versions}) != 1:
            raise ConfigError("versions", names, "all versions must be of one kind")
        if len(set(names)) != len(names):
            raise ConfigError("versions", names, "each version must be listed once")
        if sum(version.storage for version in self.versions) != 1:
            raise ConfigError("versions", names, "exactly one version must be the stored one")

    @property
    def resource(self) -> Resource[Any]:
        """The kind in its stored version."""
        return next(version.resource for version in self.versions if version.storage)


def custom_resource_definition(definition: Definition) -> dict[str, object]:
    """Return the `apiextensions.k8s.io/v1` manifest of a kind.

    The same definition gives the same manifest, in the same order.

    Raises:
        SchemaError: A type has no structural schema.
        ConfigError: The path of a column or a selectable field does not exist, or the schemas
            of two versions differ.
    """
    resource = definition.resource
    _check_schemas(definition)
    names: dict[str, object] = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    if definition.categories:
        names["categories"] = list(definition.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(resource)},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_version(version) for version in definition.versions],
        },
    }


def _kind_facts(resource: Resource[Any]) -> tuple[str, str, str, bool]:
    return (resource.group, resource.plural, resource.kind, resource.namespaced)


def _check_schemas(definition: Definition) -> None:
    """Refuse versions with different schemas: the manifest has no conversion webhook.

    The API server would only change `apiVersion`, and prune the fields that the schema of the
    requested version does not list.
    """
    schemas = [kind_schema(version.resource.type) for version in definition.versions]
    if any(schema != schemas[0] for schema in schemas):
        names = [version.resource.version for version in definition.versions]
        rule = "versions with different schemas require a conversion, which is not supported"
        raise ConfigError("versions", names, rule)


def _version(version: Version) -> dict[str, object]:
    schema = kind_schema(version.resource.type)
    _check_columns(version, schema)
    _check_selectable(version, schema)
    body: dict[str, object] = {
        "name": version.resource.version,
        "served": version.served,
        "storage": version.storage,
    }
    if version.status:
        body["subresources"] = {"status": {}}
    if version.columns:
        body["additionalPrinterColumns"] = [_column(column) for column in version.columns]
    if version.selectable_fields:
        body["selectableFields"] = [{"jsonPath": path} for path in version.selectable_fields]
    if version.rules:
        schema = {**schema, "x-kubernetes-validations": [{**rule} for rule in version.rules]}
    return body | {"schema": {"openAPIV3Schema": schema}}


def _column(column: Column) -> dict[str, object]:
    body: dict[str, object] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
    }
    optional = {
        "priority": column.priority,
        "format": column.format,
        "description": column.description,
    }
    return body | {name: value for name, value in optional.items() if value}


def _check_columns(version: Version, schema: Schema) -> None:
    """Refuse wrong paths: the server would accept them, and the column would stay empty."""
    for column in version.columns:
        if not column.path.startswith(".metadata.") and _find(schema, column.path) is None:
            raise ConfigError(
                f"path of column {column.name}",
                column.path,
                f"{version.resource} must have this field",
            )


def _check_selectable(version: Version, schema: Schema) -> None:
    for path in version.selectable_fields:
        found = _find(schema, path)
        if found is None or found.get("type") not in _SCALARS:
            raise ConfigError(
                "selectable field",
                path,
                f"it must be a string, number or boolean field of {version.resource}",
            )


def _find(schema: Schema, path: str) -> Schema | None:
    """Return the schema at a simple JSON path; subscripts are ignored."""
    node: Mapping[str, object] | None = schema
    for step in _steps(path):
        if node is None:
            return None
        while "items" in node:
            node = cast("Schema", node["items"])
        fields = cast("Mapping[str, Schema]", node.get("properties", {}))
        node = fields.get(step, cast("Schema | None", node.get("additionalProperties")))
    return cast("Schema | None", node)


def _steps(path: str) -> Iterable[str]:
    return _SUBSCRIPT.sub("", path).lstrip(".").split(".")
