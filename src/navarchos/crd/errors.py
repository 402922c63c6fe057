"""What can be wrong with a type, a definition or a file of them."""

from navarchos.errors import NavarchosError

__all__ = ["ManifestError", "SchemaError"]


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


class ManifestError(NavarchosError):
    """A file that does not hold what it should.

    Attributes:
        file: Its path.
        why: What is wrong with it, and what to do.
    """

    def __init__(self, file: str, why: str) -> None:
        super().__init__(file, why)
        self.file = file
        self.why = why

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"
