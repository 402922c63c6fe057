"""A kind of the API: its names, and the type of its objects."""

import builtins
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

from navarchos.errors import ConfigError

__all__ = ["Resource"]

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind of a Kubernetes API and its projection.

    ```python
    NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Node)
    ```

    Two resources are equal if all their fields are equal: the same kind with two types is
    two resources.

    Attributes:
        group: API group; empty for the core group.
        version: API version, such as `v1`.
        plural: The name in paths, such as `nodes`.
        kind: The name in objects, such as `Node`.
        namespaced: Whether its objects have a namespace.
        type: A `msgspec.Struct`, usually a `navarchos.meta.Object`, that declares the
            needed fields; or `dict` (`Unstructured`) for all fields.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: builtins.type[T]

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of a collection, an object or a subresource.

        Args:
            namespace: Empty for cluster-scoped kinds, and for all namespaces.
            name: Empty for the collection.
            subresource: Such as `status`; requires a name.

        Raises:
            ConfigError: The namespace does not fit the kind, or a subresource has no
                name.
        """
        self._check_scope(namespace, name, subresource)
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        parts = [self.plural, quote(name, safe=":"), quote(subresource)]
        return f"{prefix}{scope}/" + "/".join(part for part in parts if part)

    def projected(self, type: builtins.type[U]) -> "Resource[U]":  # noqa: A002 - the field's name
        """Return the same kind with another type."""
        return cast("Resource[U]", replace(self, type=cast("Any", type)))

    def _check_scope(self, namespace: str, name: str, subresource: str) -> None:
        if namespace and not self.namespaced:
            raise ConfigError("namespace", namespace, f"{self} are cluster-scoped: leave it out")
        if name and self.namespaced and not namespace:
            raise ConfigError("namespace", namespace, f"{self} are namespaced: name a namespace")
        if name in {".", ".."} or "/" in name:
            raise ConfigError("name", name, "a name must not contain a slash")
        if subresource and not name:
            raise ConfigError("name", name, f"{self}/{subresource} requires the name of an object")
