"""How a command says that it could not do its work."""

from navarchos.cli.exits import ExitStatus
from navarchos.errors import NavarchosError

__all__ = ["Failure"]


class Failure(NavarchosError):
    """One line for the person at the terminal, and the exit status.

    Attributes:
        message: What, where, why, and what to do.
        status: What kind of failure it is.
    """

    def __init__(self, message: str, *, status: ExitStatus = ExitStatus.NO) -> None:
        super().__init__(message)
        self.message = message
        self.status = status

    def __str__(self) -> str:
        return self.message
