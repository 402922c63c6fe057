"""Where programs are: what somebody points at, the PATH, the cache.

Finding is quick and asks no network. Getting what is not there is in `obtaining`.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.errors import BinariesMissing
from navarchos.testing.controlplane.tools import CONTROL_PLANE, PINS, Tool, Version, parse_version

__all__ = [
    "ASSETS",
    "Binary",
    "Cache",
    "Lookup",
    "cache_directory",
    "find_binaries",
    "installed_version",
]

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


ASSETS: Final = "KUBEBUILDER_ASSETS"
"""The variable that envtest reads, too: a directory with the programs."""

_VERSION_TIMEOUT: Final = 30.0
_ADVICE: Final = (
    "run `python -m navarchos.testing.controlplane` in a checkout, or point "
    f"{ASSETS} at the programs"
)


@dataclass(frozen=True, slots=True)
class Binary:
    """A program that is there.

    Attributes:
        tool: What it is.
        path: Where it is.
        source: Which way it was found.
        version: What it says it is; `None` when it has not been asked, or said
            nothing that can be read.
    """

    tool: Tool
    path: Path
    source: str
    version: Version | None


def installed_version(tool: Tool, path: Path) -> Version | None:
    """Ask a program for its version; `None` when it does not tell."""
    try:
        done = subprocess.run(  # noqa: S603 - a program that is about to be run anyway
            [str(path), *tool.version_arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # who knows what lies on a PATH
            timeout=_VERSION_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout) if done.returncode == 0 else None


class Lookup:
    """Finds programs: `KUBEBUILDER_ASSETS`, then the PATH, then the cache.

    What the variable points at is taken whatever its version is: somebody chose it.
    What merely lies on the PATH must be at least of the pinned minor release.

    Args:
        environ: Environment variables; the process's own by default.
        cache: The cache; the one of `cache_directory` by default.
        version_of: Asks a program for its version.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        cache: Cache | None = None,
        version_of: Callable[[Tool, Path], Version | None] = installed_version,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self.version_of = version_of
        self.cache = cache if cache is not None else Cache(cache_directory(self._environ))

    def find(self, tool: Tool) -> Binary | Sequence[tuple[str, str]]:
        """Return a program, or each way that failed and why."""
        attempts: list[tuple[str, str]] = []
        ways = ((ASSETS, self._in_assets), ("PATH", self._on_path), ("cache", self._in_cache))
        for way, look in ways:
            found = look(tool)
            if isinstance(found, Binary):
                return found
            attempts.append((way, found))
        return attempts

    def _in_assets(self, tool: Tool) -> Binary | str:
        directory = self._environ.get(ASSETS)
        if not directory:
            return "is not set"
        path = Path(directory) / tool.name
        if not _is_program(path):
            return f"there is no program {path}"
        return Binary(tool, path, ASSETS, self.version_of(tool, path))

    def _on_path(self, tool: Tool) -> Binary | str:
        found = shutil.which(tool.name, path=self._environ.get("PATH", os.defpath))
        if found is None:
            return f"has no {tool.name}"
        version = self.version_of(tool, Path(found))
        if version is None:
            return f"{found} does not tell its version"
        if not version.is_at_least_the_minor_of(tool.pinned):
            return f"{found} is {version}, older than {tool.pinned}"
        return Binary(tool, Path(found), "PATH", version)

    def _in_cache(self, tool: Tool) -> Binary | str:
        path = self.cache.path(tool.name)
        if not _is_program(path):
            return f"there is no {path}"
        # The folder's name carries the version.
        return Binary(tool, path, "cache", tool.pinned)


def find_binaries(tools: Iterable[Tool], lookup: Lookup | None = None) -> dict[Tool, Binary]:
    """Return the programs, all of them.

    Raises:
        BinariesMissing: Some are nowhere.
    """
    search = lookup if lookup is not None else Lookup()
    found: dict[Tool, Binary] = {}
    attempts: list[tuple[str, str]] = []
    missing: list[str] = []
    for tool in tools:
        result = search.find(tool)
        if isinstance(result, Binary):
            found[tool] = result
        else:
            missing.append(tool.name)
            attempts += [(f"{tool.name}: {way}", why) for way, why in result]
    if missing:
        raise BinariesMissing(missing, attempts, _ADVICE)
    return found


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
