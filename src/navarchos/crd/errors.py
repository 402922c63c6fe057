"""Errors of types, definitions and manifest files."""

from navarchos.errors import NavarchosError

__all__ = ["ManifestError", "SchemaError"]


class SchemaError(NavarchosError):
    """A type cannot be expressed as a structural schema.

    Attributes:
        path: The field, from the kind down (`Widget.spec.size`).
        why: The reason, and what to do instead.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"no schema for {self.path}: {self.why}"


class ManifestError(NavarchosError):
    """A file does not contain valid manifests.

    Attributes:
        file: Its path.
        why: The reason, and what to do.
    """

    def __init__(self, file: str, why: str) -> None:
        super().__init__(file, why)
        self.file = file
        self.why = why

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"
