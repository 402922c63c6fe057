"""How a command says that it could not do its work."""

from enum import IntEnum

from navarchos.errors import NavarchosError

__all__ = ["CommandError", "ExitStatus"]


class ExitStatus(IntEnum):
    """How a command ended."""

    OK = 0
    """It did what it was asked."""
    FAILED = 1
    """The cluster was asked, and the answer is no: something blocks, has failed, or is late."""
    USAGE = 2
    """Bad usage or bad input. Nothing was changed."""
    UNREACHABLE = 3
    """The cluster could not be asked: no answer, no right, or no definitions."""
    NOT_FOUND = 4
    """There is no object of that name."""
    INTERRUPTED = 130
    """Ctrl-C."""


class CommandError(NavarchosError):
    """One line for the person at the terminal, and the exit status.

    Attributes:
        message: What, where, why, and what to do.
        status: What kind of failure it is.
    """

    def __init__(self, message: str, *, status: ExitStatus = ExitStatus.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.status = status

    def __str__(self) -> str:
        return self.message
