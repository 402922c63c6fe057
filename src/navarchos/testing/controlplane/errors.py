"""What can go wrong with a control plane, each with its facts.

```text
ControlPlaneError(NavarchosError)
  BinariesMissing                    programs that could not be had, and why
  CacheUnusable                      where programs are kept nothing can be written
  PartFailed                         a server ended by itself: its log's tail
  PartNotReady                       a server did not get ready in time
  GuardLost                          the process that keeps the servers is gone
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
    """A control plane that cannot be had, or does not run any more."""


class BinariesMissing(ControlPlaneError):
    """Programs that no way could provide.

    Attributes:
        names: The programs.
        attempts: Each way that was tried, and why it failed.
        advice: What else can be done.
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
        return f"no {', '.join(self.names)}: {self.advice}; tried:{tried}"


class CacheUnusable(ControlPlaneError):
    """Nothing can be written where programs are kept: no space, no right, no folder.

    Attributes:
        directory: The cache.
        why: What the operating system says.
    """

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(directory, why)
        self.directory = directory
        self.why = why

    def __str__(self) -> str:
        return f"cannot keep programs in {self.directory}: {self.why}; XDG_CACHE_HOME moves it"


class PartFailed(ControlPlaneError):
    """A server that ended although nobody told it to.

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
    """A server that did not become healthy in time.

    Attributes:
        part: The program's name.
        seconds: How long it was waited for.
        why: What the last look at its health gave.
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
    """The process that keeps the servers does not answer; they have been killed.

    Attributes:
        why: What happened, in a few words.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the guard of the control plane's servers is gone: {self.why}"
