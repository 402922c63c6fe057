"""The exit statuses of all commands, and the error that ends a command with one of them."""

from enum import IntEnum

from navarchos.errors import NavarchosError

__all__ = ["CommandError", "ExitStatus"]


class ExitStatus(IntEnum):
    """The result of a command. Scripts can rely on these numbers."""

    OK = 0
    """The command did its work."""
    FAILED = 1
    """Something in the cluster blocks, has failed, or took too long."""
    USAGE = 2
    """An option or an input file is invalid. Nothing was changed."""
    UNREACHABLE = 3
    """The API server did not answer, denied access, or lacks the CustomResourceDefinitions."""
    NOT_FOUND = 4
    """The object does not exist."""
    INTERRUPTED = 130
    """The command was interrupted by Ctrl-C."""


class CommandError(NavarchosError):
    """A command failed. It ends with one line on standard error and an exit status.

    Attributes:
        message: What happened, with object and cause, then what to do.
        status: The exit status.
    """

    def __init__(self, message: str, *, status: ExitStatus = ExitStatus.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.status = status

    def __str__(self) -> str:
        return self.message
