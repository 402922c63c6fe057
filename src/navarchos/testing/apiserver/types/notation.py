"""A notation for Kubernetes' Go types, and what is built from it.

A table is text. A line that is not indented names a type; the indented lines
below list its fields as `name:type`, separated by blanks:

```text
Container
  name!:str image:str ports:[ContainerPort]+containerPort env:[EnvVar]+name
```

Types are `str int int64 bool num time micro quantity ios bytes any`, another
type's name (`meta.ObjectMeta` for one of another table), `[T]` a list, `{T}` a
map. `!` after the name marks a required field. After a list, `+key` says that a
strategic merge patch pairs items by that key, `+` alone that it unites values;
`~` after a type says that the patch may retain keys. `*` before a scalar is Go's
pointer: zero is a value, elsewhere it is the absence of one. `?` after a time says
that its absence shows, as null.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.schema import Schema
from navarchos.testing.apiserver.types import apps, batch, core, extensions, meta, policy, reviews

__all__ = ["TypeTable", "load_types"]

_TABLES: Final = (meta, core, apps, batch, policy, extensions, reviews)

_FIELD: Final = re.compile(r"^(?P<name>[\w$-]+)(?P<required>!?):(?P<type>.+)$")

_SCALARS: Final[Mapping[str, tuple[str, str]]] = {
    "str": ("string", ""),
    "int": ("integer", "int32"),
    "int64": ("integer", "int64"),
    "bool": ("boolean", ""),
    "num": ("number", "double"),
    "time": ("string", "date-time"),
    "micro": ("string", "micro-time"),
    "bytes": ("string", "byte"),
    "quantity": ("int-or-string", "quantity"),
    "ios": ("int-or-string", "int-or-string"),
    "any": ("", ""),
}


class TypeTable:
    """Schemas and OpenAPI definitions of named types. Read-only.

    Names are `<table>.<Type>`, as in `core.Pod`.
    """

    def __init__(self) -> None:
        self._fields: dict[str, list[tuple[str, bool, str]]] = {}
        self._prefixes: dict[str, str] = {}
        self._schemas: dict[str, Schema] = {}

    def add(self, table: str, prefix: str, text: str) -> None:
        """Read the types of one table.

        Args:
            table: Short name of the table.
            prefix: What precedes the names in OpenAPI, as in `io.k8s.api.core.v1`.
            text: The table.
        """
        current: list[tuple[str, bool, str]] = []
        for line in text.splitlines():
            if not line.strip():
                continue
            if not line[0].isspace():
                current = self._fields.setdefault(f"{table}.{line.strip()}", [])
                self._prefixes[f"{table}.{line.strip()}"] = prefix
                continue
            current.extend(self._read_field(table, token) for token in line.split())

    def schema(self, name: str) -> Schema:
        """Return the schema of a type; the same instance each time."""
        found = self._schemas.get(name)
        if found is None:
            found = self._schemas[name] = Schema(type="object", name=name.rpartition(".")[2])
            for field, required, kind in self._fields[name]:
                found.properties[field] = self._value(kind)
                if required:
                    found.required += (field,)
                if kind.endswith("?"):
                    found.shown_as_null += (field,)
        return found

    def names(self) -> tuple[str, ...]:
        """Return the names of all types."""
        return tuple(self._fields)

    def definition_name(self, name: str) -> str:
        """Return the OpenAPI name of a type."""
        return f"{self._prefixes[name]}.{name.rpartition('.')[2]}"

    def definition(self, name: str) -> JsonObject:
        """Return the OpenAPI v3 definition of a type, with references to others."""
        found: JsonObject = {
            "description": f"{name.rpartition('.')[2]}.",
            "type": "object",
            "properties": {f: self._open(kind) for f, _, kind in self._fields[name]},
        }
        if required := [f for f, needed, _ in self._fields[name] if needed]:
            found["required"] = required
        return found

    def references(self, name: str) -> set[str]:
        """Return the names of the types that a type's fields use directly."""
        kinds = (_innermost(kind) for _, _, kind in self._fields[name])
        return {kind for kind in kinds if kind not in _SCALARS}

    def _read_field(self, table: str, token: str) -> tuple[str, bool, str]:
        match = _FIELD.match(token)
        if match is None:
            raise ValueError(f"table {table}: {token!r} is not name:type")
        inner = _innermost(match["type"])
        kind = match["type"]
        if inner not in _SCALARS and "." not in inner:
            kind = kind.replace(inner, f"{table}.{inner}", 1)
        return match["name"], bool(match["required"]), kind

    def _value(self, kind: str) -> Schema:
        if kind.startswith("["):
            inner, _, suffix = kind[1:].rpartition("]")
            merges = suffix.startswith("+")
            return Schema(
                type="array",
                items=self._value(inner),
                merges=merges,
                merge_key=suffix[1:],
                list_type="set" if suffix == "+" else "map" if merges else "atomic",
                list_keys=(suffix[1:],) if suffix[1:] else (),
            )
        if kind.startswith("{"):
            return Schema(type="object", additional=self._value(kind[1:-1]))
        if kind.endswith("~"):
            return self._retaining(kind[:-1])
        if _scalar(kind) in _SCALARS:
            written, form = _SCALARS[_scalar(kind)]
            return Schema(
                type=written,
                format=form,
                preserve=not written,
                shows_zero=kind.startswith("*"),
            )
        return self.schema(kind)

    def _retaining(self, name: str) -> Schema:
        base = self.schema(name)
        return Schema(
            type="object",
            properties=base.properties,
            required=base.required,
            retain_keys=True,
            name=base.name,
        )

    def _open(self, kind: str) -> JsonObject:
        if kind.startswith("["):
            inner, _, suffix = kind[1:].rpartition("]")
            return {"type": "array", "items": self._open(inner), **_merge_extensions(suffix)}
        if kind.startswith("{"):
            return {"type": "object", "additionalProperties": self._open(kind[1:-1])}
        if kind.endswith("~"):
            return {**self._open(kind[:-1]), "x-kubernetes-patch-strategy": "retainKeys"}
        if _scalar(kind) in _SCALARS:
            return _open_scalar(_scalar(kind))
        return {"allOf": [{"$ref": f"#/components/schemas/{self.definition_name(kind)}"}]}


def _open_scalar(kind: str) -> JsonObject:
    written, form = _SCALARS[kind]
    if written == "int-or-string":
        return {"x-kubernetes-int-or-string": True, "format": "int-or-string"}
    if not written:
        return {"x-kubernetes-preserve-unknown-fields": True}
    found: dict[str, Any] = {"type": written}
    if form:
        found["format"] = "date-time" if form == "micro-time" else form
    return found


def _merge_extensions(suffix: str) -> JsonObject:
    if not suffix.startswith("+"):
        return {"x-kubernetes-list-type": "atomic"}
    if suffix == "+":
        return {"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"}
    return {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [suffix[1:]],
        "x-kubernetes-patch-merge-key": suffix[1:],
        "x-kubernetes-patch-strategy": "merge",
    }


def _innermost(kind: str) -> str:
    while kind.startswith(("[", "{")):
        kind = kind[1:].rpartition("]" if kind.startswith("[") else "}")[0]
    return _scalar(kind.rstrip("~"))


def _scalar(kind: str) -> str:
    return kind.removeprefix("*").removesuffix("?")


def load_types() -> TypeTable:
    """Read all tables."""
    table = TypeTable()
    for module in _TABLES:
        for prefix, text in module.TYPES.items():
            table.add(module.__name__.rpartition(".")[2], prefix, text)
    return table
