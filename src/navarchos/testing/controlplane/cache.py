"""The folder where programs are kept between runs."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.tools import CONTROL_PLANE, PINS

__all__ = ["Cache", "cache_directory"]

_STAGING: Final = ".new-"


def cache_directory(
    environ: Mapping[str, str] | None = None, projects: Iterable[str] = CONTROL_PLANE
) -> Path:
    """Return the folder of the pinned versions of some projects; it need not exist.

    It lies below `XDG_CACHE_HOME`, or below `~/.cache` where that is not set or not
    absolute, as the XDG specification wants it. Its name carries all versions, so
    what is in it never goes stale.
    """
    env = os.environ if environ is None else environ
    given = Path(env.get("XDG_CACHE_HOME") or "")
    base = given if given.is_absolute() else Path.home() / ".cache"
    versions = "-".join(f"{project}-{PINS[project]}" for project in projects)
    return base / "navarchos" / "controlplane" / versions


class Cache:
    """Programs by name, in one folder.

    Promises: a program that is there is whole; two processes that fill it at once
    take turns.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, name: str) -> Path:
        """Return where a program is kept; it need not be there."""
        return self.directory / name

    @contextmanager
    def locked(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Keep other processes from filling the cache; remove what killed ones left.

        Args:
            on_wait: Called when another process has it and must be waited for.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        # Kept open and never removed: a lock on a file that may vanish locks nothing.
        with (self.directory / ".lock").open("w", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            for left in self.directory.glob(f"{_STAGING}*"):
                shutil.rmtree(left)  # by a run that was killed: nobody else has the lock
            yield

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Return a new directory on the cache's file system; it is removed again."""
        self.directory.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.directory))
        try:
            yield directory
        finally:
            shutil.rmtree(directory)

    def install(self, staged: Path, name: str) -> Path:
        """Move a program from `staging` into its place, at once."""
        return staged.replace(self.path(name))
