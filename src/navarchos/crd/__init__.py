"""Custom resource definitions from Python types.

```python
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=True, type=Widget)
manifest = custom_resource_definition(
    Definition(versions=(Version(resource=WIDGETS),), short_names=("wd",))
)
```

What a type says is what the server demands: defaults, limits (`msgspec.Meta`),
enumerations, descriptions, and `extra_json_schema` for what only Kubernetes has
(`x-kubernetes-validations`, `x-kubernetes-list-type`).
"""

from navarchos.crd.definition import (
    Column,
    ColumnType,
    Definition,
    Version,
    custom_resource_definition,
)
from navarchos.crd.errors import SchemaError
from navarchos.crd.manifest import (
    Manifest,
    differences,
    file_name,
    files,
    to_yaml,
    write_files,
)
from navarchos.crd.schema import Schema, kind_schema, type_schema

__all__ = [
    "Column",
    "ColumnType",
    "Definition",
    "Manifest",
    "Schema",
    "SchemaError",
    "Version",
    "custom_resource_definition",
    "differences",
    "file_name",
    "files",
    "kind_schema",
    "to_yaml",
    "type_schema",
    "write_files",
]
