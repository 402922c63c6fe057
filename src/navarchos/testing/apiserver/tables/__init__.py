"""What kubectl prints: columns and cells, for built-in and custom kinds."""

from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.tables.cells import AGE, NAME, Printer, cell_age, cell_name
from navarchos.testing.apiserver.tables.cluster import CLUSTER_PRINTERS
from navarchos.testing.apiserver.tables.custom import custom_cells, custom_columns
from navarchos.testing.apiserver.tables.pods import POD_PRINTERS
from navarchos.testing.apiserver.tables.workloads import WORKLOAD_PRINTERS

__all__ = ["columns_of", "row_of"]

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
