"""Other representations of objects: tables and bare metadata."""

from collections.abc import Sequence

from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, meta
from navarchos.testing.apiserver.store import Entry
from navarchos.testing.apiserver.tables import columns_of, row_of

__all__ = ["metadata_only", "table"]


def metadata_only(obj: JsonObject, version: str = "v1") -> JsonObject:
    """Return an object as `PartialObjectMetadata`."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": meta(obj),
    }


def table(
    kind: Kind,
    entries: Sequence[Entry],
    resource_version: str,
    version: str = "v1",
    include_object: str = "",
    *,
    headers: bool = True,
) -> JsonObject:
    """Return objects as a `Table`, the way kubectl shows them.

    Args:
        kind: Of all the entries.
        entries: One row each.
        resource_version: Of the list.
        version: Of `meta.k8s.io`.
        include_object: `None`, `Object`, or `Metadata`, the default.
        headers: Whether the columns are described; later watch events leave that out.
    """
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {"resourceVersion": resource_version},
        "columnDefinitions": columns_of(kind) if headers else None,
        "rows": [_row(kind, entry, version, include_object) for entry in entries],
    }


def _row(kind: Kind, entry: Entry, version: str, include_object: str) -> JsonObject:
    row: JsonObject = {"cells": row_of(kind, entry.obj)}
    if include_object == "Object":
        row["object"] = kind.to_served(entry.obj)
    elif include_object != "None":
        row["object"] = metadata_only(entry.obj, version)
    return row
