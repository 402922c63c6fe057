"""Custom resource definitions from Python types.

```python
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=True, type=Widget)
manifest = custom_resource_definition(
    Definition(versions=(Version(resource=WIDGETS),), short_names=("wd",))
)
```

The schema follows from the types: defaults, limits (`msgspec.Meta`), enumerations, descriptions,
and `extra_json_schema` for the extensions of Kubernetes (`x-kubernetes-validations`,
`x-kubernetes-list-type`).
"""

from navarchos.crd.definition import (
    Column,
    ColumnType,
    Definition,
    Version,
    custom_resource_definition,
)
from navarchos.crd.manifest import (
    Manifest,
    ManifestError,
    differences,
    file_name,
    files,
    read_objects,
    to_yaml,
    write_files,
)
from navarchos.crd.schema import Schema, SchemaError, kind_schema, type_schema

__all__ = [
    "Column",
    "ColumnType",
    "Definition",
    "Manifest",
    "ManifestError",
    "Schema",
    "SchemaError",
    "Version",
    "custom_resource_definition",
    "differences",
    "file_name",
    "files",
    "kind_schema",
    "read_objects",
    "to_yaml",
    "type_schema",
    "write_files",
]
