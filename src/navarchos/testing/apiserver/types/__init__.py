"""The types of the built-in kinds: a notation for Kubernetes' Go types, and their schemas.

`core` and `groups` have the types as text. A line without indentation names a type. The indented
lines below it list the fields as `name:type`, separated by blanks:

```text
Container
  name!:str image:str ports:[ContainerPort]+containerPort env:[EnvVar]+name
```

| notation | meaning |
|---|---|
| `str int int64 bool num time micro quantity ios bytes any` | a scalar type |
| `Toleration`, `meta.ObjectMeta` | a type of the same table, of another table |
| `[T]`, `{T}` | a list, a map |
| `name!:T` | a required field |
| `*T` of a scalar | a Go pointer: zero is a value. Without `*`, a zero field is absent |
| `*T` of a struct | the field may be absent. Without `*`, a new object has it, empty |
| `time?` | an absent time is written as null |
| `[T]+key` | a strategic merge patch, and server-side apply, identify items by this key |
| `[T]+a,b` | the same, and server-side apply uses all keys |
| `[T]+` | a set: patches and applies unite the values |
| `[T]/key` | server-side apply identifies items by this key, a strategic merge patch does not |
| `T~` | a strategic merge patch may list the fields that it retains |
| `[T]=`, `{T}=`, `Type=` | the list, map or type has one owner as a whole |
| `str@TCP` | in the identity of an item, an absent string counts as `TCP` |
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.schema import Schema
from navarchos.testing.apiserver.types.core import CORE
from navarchos.testing.apiserver.types.groups import GROUPS

__all__ = ["TYPES", "TypeTable"]

# The prefixes of OpenAPI names that are not `io.k8s.api.<table>.v1`.
_PREFIXES: Final = {
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "meta": "io.k8s.apimachinery.pkg.apis.meta.v1",
}

_WHOLE: Final = "="
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


_ZEROS: Final[Mapping[str, object]] = {"string": "", "integer": 0, "boolean": False}


class TypeTable:
    """The schemas and OpenAPI definitions of named types. Read-only.

    Names are `<table>.<Type>`, as in `core.Pod`.
    """

    def __init__(self) -> None:
        self._fields: dict[str, list[tuple[str, bool, str]]] = {}
        self._schemas: dict[str, Schema] = {}
        self._atomic: set[str] = set()

    def add(self, table: str, text: str) -> None:
        """Read the types of one table.

        Args:
            table: The first part of the API group's name; `core` for the core group.
            text: The table, in the notation of this package.
        """
        current: list[tuple[str, bool, str]] = []
        for line in text.splitlines():
            if not line.strip():
                continue
            if not line[0].isspace():
                name = f"{table}.{line.strip().removesuffix(_WHOLE)}"
                current = self._fields.setdefault(name, [])
                if line.strip().endswith(_WHOLE):
                    self._atomic.add(name)
                continue
            current.extend(self._read_field(table, token) for token in line.split())

    def schema(self, name: str) -> Schema:
        """Return the schema of a type; always the same object."""
        found = self._schemas.get(name)
        if found is None:
            found = self._schemas[name] = Schema(
                type="object", name=name.rpartition(".")[2], atomic=name in self._atomic
            )
            for field, required, kind in self._fields[name]:
                found.properties[field] = self._value(kind)
                if required:
                    found.required += (field,)
                if kind.endswith("?"):
                    found.shown_as_null += (field,)
        return found

    def empty(self, name: str) -> JsonObject:
        """Return the fields of a new object of a type before a client sets any."""
        found: JsonObject = {}
        for field, required, kind in self._fields[name]:
            if kind.rstrip("~") in self._fields:
                found[field] = self.empty(kind.rstrip("~"))
            elif kind.endswith("?") or (required and kind.startswith("[")):
                found[field] = None
            elif required and _SCALARS.get(kind, ("", ""))[0] in _ZEROS:
                found[field] = _ZEROS[_SCALARS[kind][0]]
        return found

    def names(self) -> tuple[str, ...]:
        """Return the names of all types."""
        return tuple(self._fields)

    def definition_name(self, name: str) -> str:
        """Return the OpenAPI name of a type."""
        table, _, kind = name.partition(".")
        return f"{_PREFIXES.get(table, f'io.k8s.api.{table}.v1')}.{kind}"

    def definition(self, name: str) -> JsonObject:
        """Return the OpenAPI v3 definition of a type; other types are references."""
        found: JsonObject = {
            "description": f"{name.rpartition('.')[2]}.",
            "type": "object",
            "properties": {f: self._openapi(kind) for f, _, kind in self._fields[name]},
        }
        if name in self._atomic:
            found["x-kubernetes-map-type"] = "atomic"
        if required := [f for f, needed, _ in self._fields[name] if needed]:
            found["required"] = required
        return found

    def references(self, name: str) -> set[str]:
        """Return the names of the types that the fields of a type use."""
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
            keys = _list_keys(suffix)
            return Schema(
                type="array",
                items=self._value(inner),
                merges=suffix.startswith("+"),
                merge_key=keys[0] if keys and suffix.startswith("+") else "",
                list_type=_list_type(suffix),
                list_keys=keys,
            )
        if kind.startswith("{"):
            inner, _, suffix = kind[1:].rpartition("}")
            return Schema(type="object", additional=self._value(inner), atomic=suffix == _WHOLE)
        if kind.endswith("~"):
            return self._retaining(kind[:-1])
        if _scalar(kind) in _SCALARS:
            written, form = _SCALARS[_scalar(kind)]
            return Schema(
                type=written,
                format=form,
                preserve=not written,
                shows_zero=kind.startswith("*"),
                implied=kind.partition("@")[2] or None,
            )
        return self.schema(kind.removeprefix("*"))

    def _retaining(self, name: str) -> Schema:
        base = self.schema(name)
        return Schema(
            type="object",
            properties=base.properties,
            required=base.required,
            retain_keys=True,
            name=base.name,
        )

    def _openapi(self, kind: str) -> JsonObject:
        if kind.startswith("["):
            inner, _, suffix = kind[1:].rpartition("]")
            return {"type": "array", "items": self._openapi(inner), **_merge_extensions(suffix)}
        if kind.startswith("{"):
            inner, _, suffix = kind[1:].rpartition("}")
            found: JsonObject = {"type": "object", "additionalProperties": self._openapi(inner)}
            return {**found, "x-kubernetes-map-type": "atomic"} if suffix else found
        if kind.endswith("~"):
            return {**self._openapi(kind[:-1]), "x-kubernetes-patch-strategy": "retainKeys"}
        if _scalar(kind) in _SCALARS:
            return _openapi_scalar(_scalar(kind))
        name = self.definition_name(kind.removeprefix("*"))
        return {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}


def _openapi_scalar(kind: str) -> JsonObject:
    written, form = _SCALARS[kind]
    if written == "int-or-string":
        return {"x-kubernetes-int-or-string": True, "format": "int-or-string"}
    if not written:
        return {"x-kubernetes-preserve-unknown-fields": True}
    found: dict[str, Any] = {"type": written}
    if form:
        found["format"] = "date-time" if form == "micro-time" else form
    return found


def _list_keys(suffix: str) -> tuple[str, ...]:
    """Return the keys of a list's items; the one of strategic merge patches comes first."""
    keys = suffix.removesuffix(_WHOLE)[1:]
    return tuple(keys.split(",")) if keys else ()


def _list_type(suffix: str) -> str:
    if not suffix or suffix.endswith(_WHOLE):
        return "atomic"
    return "set" if suffix == "+" else "map"


def _merge_extensions(suffix: str) -> JsonObject:
    found: JsonObject = {"x-kubernetes-list-type": _list_type(suffix)}
    keys = _list_keys(suffix)
    if found["x-kubernetes-list-type"] == "map":
        found["x-kubernetes-list-map-keys"] = [*keys]
    if suffix.startswith("+"):
        found["x-kubernetes-patch-strategy"] = "merge"
        if keys:
            found["x-kubernetes-patch-merge-key"] = keys[0]
    return found


def _innermost(kind: str) -> str:
    while kind.startswith(("[", "{")):
        kind = kind[1:].rpartition("]" if kind.startswith("[") else "}")[0]
    return _scalar(kind.rstrip("~"))


def _scalar(kind: str) -> str:
    return kind.removeprefix("*").removesuffix("?").partition("@")[0]


def _load_types() -> TypeTable:
    types = TypeTable()
    types.add("core", CORE)
    for table, text in GROUPS.items():
        types.add(table, text)
    return types


TYPES: Final = _load_types()
"""Every type of the built-in kinds."""
