"""The exit statuses of every command: a closed set that scripts may rely on."""

from enum import IntEnum

__all__ = ["ExitStatus"]


class ExitStatus(IntEnum):
    """How a command ended."""

    OK = 0
    """It did what it was asked."""
    NO = 1
    """The cluster was asked, and the answer is no: something blocks, has failed, or is late."""
    USAGE = 2
    """Bad usage or bad input. Nothing was changed."""
    UNREACHABLE = 3
    """The cluster could not be asked: no answer, no right, or no definitions."""
    NOT_FOUND = 4
    """There is no object of that name."""
    INTERRUPTED = 130
    """Ctrl-C."""
