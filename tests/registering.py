"""The parts of a node that a kubelet adds when it registers the node."""

from typing import Any, Final

__all__ = ["MANAGERS"]

MANAGERS: Final[list[dict[str, Any]]] = [
    {
        "manager": "kubelet",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}},
    }
]
"""`managedFields`; a server keeps book of who writes only where there are some already."""
