"""Representations other than the object itself: tables, as kubectl prints them, and metadata."""

from collections.abc import Sequence

from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, JsonValue, meta
from navarchos.testing.apiserver.store import Entry
from navarchos.testing.apiserver.tables.cluster import CLUSTER_PRINTERS
from navarchos.testing.apiserver.tables.columns import (
    AGE,
    NAME,
    Printer,
    cell_age,
    cell_name,
    custom_cells,
    custom_columns,
)
from navarchos.testing.apiserver.tables.workloads import POD_PRINTERS, WORKLOAD_PRINTERS

__all__ = ["columns_of", "metadata_only", "row_of", "table"]

_PRINTERS = {**CLUSTER_PRINTERS, **POD_PRINTERS, **WORKLOAD_PRINTERS}
_PLAIN = Printer((NAME, AGE), (cell_name, cell_age))


def columns_of(kind: Kind) -> list[JsonObject]:
    """Return the column definitions of a kind."""
    if kind.custom is not None:
        return custom_columns(kind.custom)
    return [column.to_json() for column in _PRINTERS.get(kind.bucket, _PLAIN).columns]


def row_of(kind: Kind, obj: JsonObject) -> list[JsonValue]:
    """Return the cells of one stored object."""
    if kind.custom is not None:
        return custom_cells(kind.custom, obj)
    return [cell(obj) for cell in _PRINTERS.get(kind.bucket, _PLAIN).cells]


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
    """Return objects as a `Table`.

    Args:
        kind: The kind of the entries.
        entries: One row each.
        resource_version: The version of the list.
        version: The version of `meta.k8s.io`.
        include_object: What a row has of its object: `None`, `Object`, or `Metadata`, the default.
        headers: Whether the columns are described; only the first event of a watch does it.
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
