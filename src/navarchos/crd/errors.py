"""What can be wrong with a type or a definition."""

from navarchos.errors import NavarchosError

__all__ = ["SchemaError"]


class SchemaError(NavarchosError):
    """A type that has no structural schema.

    Attributes:
        path: The field, from the kind down (`Widget.spec.size`).
        why: What stands in the way, and what to do instead.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"no schema for {self.path}: {self.why}"
