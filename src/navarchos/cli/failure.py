"""How a command says that it could not do its work."""

from navarchos.errors import NavarchosError

__all__ = ["Failure"]


class Failure(NavarchosError):
    """One line for the person at the terminal, and the exit status.

    Attributes:
        message: What, where, why, and what to do.
        status: 1 when the work did not come to its end, 2 for bad usage.
    """

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.status = status

    def __str__(self) -> str:
        return self.message
