"""The errors of a control plane, with their facts as attributes.

```text
ControlPlaneError(NavarchosError)
  BinariesMissing                    programs were not found or installed
  CacheUnusable                      the program cache cannot be written
  PartFailed                         a server ended by itself
  PartNotReady                       a server was not ready in time
  GuardLost                          the guard process has ended
```
"""

from collections.abc import Sequence
from pathlib import Path

from navarchos.errors import NavarchosError

__all__ = [
    "BinariesMissing",
    "CacheUnusable",
    "ControlPlaneError",
    "GuardLost",
    "PartFailed",
    "PartNotReady",
]


class ControlPlaneError(NavarchosError):
    """A control plane cannot be started, or has failed."""


class BinariesMissing(ControlPlaneError):
    """Programs were not found or could not be installed.

    Attributes:
        names: The missing programs.
        attempts: A (source, cause) pair for each attempt.
        advice: What the user can do.
    """

    def __init__(
        self, names: Sequence[str], attempts: Sequence[tuple[str, str]], advice: str
    ) -> None:
        super().__init__(tuple(names), tuple(attempts), advice)
        self.names = tuple(names)
        self.attempts = tuple(attempts)
        self.advice = advice

    def __str__(self) -> str:
        tried = "".join(f"\n  {way}: {why}" for way, why in self.attempts)
        return f"missing programs: {', '.join(self.names)}; {self.advice}; tried:{tried}"


class CacheUnusable(ControlPlaneError):
    """The program cache cannot be written: no space, no permission, no folder.

    Attributes:
        directory: The cache folder.
        why: The operating system's error.
    """

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(directory, why)
        self.directory = directory
        self.why = why

    def __str__(self) -> str:
        return (
            f"cannot write the program cache {self.directory}: {self.why}; "
            "set XDG_CACHE_HOME to use another folder"
        )


class PartFailed(ControlPlaneError):
    """A server ended by itself.

    Attributes:
        part: The program's name.
        status: Its exit status; negative for a signal.
        tail: The end of its log.
    """

    def __init__(self, part: str, status: int, tail: str) -> None:
        super().__init__(part, status, tail)
        self.part = part
        self.status = status
        self.tail = tail

    def __str__(self) -> str:
        return f"{self.part} ended with status {self.status}; its log ends:\n{self.tail}"


class PartNotReady(ControlPlaneError):
    """A server was not ready in time.

    Attributes:
        part: The program's name.
        seconds: The timeout.
        why: The result of the last health check.
        tail: The end of its log.
    """

    def __init__(self, part: str, seconds: float, why: str, tail: str) -> None:
        super().__init__(part, seconds, why, tail)
        self.part = part
        self.seconds = seconds
        self.why = why
        self.tail = tail

    def __str__(self) -> str:
        return (
            f"{self.part} is not ready after {self.seconds:.0f} s ({self.why}); "
            f"its log ends:\n{self.tail}"
        )


class GuardLost(ControlPlaneError):
    """The guard process does not answer; its servers have been killed.

    Attributes:
        why: The cause, in a few words.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the guard process of the control plane is lost: {self.why}"
