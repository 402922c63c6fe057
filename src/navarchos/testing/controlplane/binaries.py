"""Find the programs of a control plane: a folder named by the user, the PATH, the cache.

Finding is fast and does not use the network. `installer` installs missing programs.
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
from navarchos.testing.controlplane.tools import (
    CONTROL_PLANE,
    PINS,
    Tool,
    ToolVersion,
    parse_version,
)

__all__ = [
    "ASSETS",
    "Binary",
    "Cache",
    "Lookup",
    "cache_directory",
    "find_binaries",
    "installed_version",
    "user_cache",
]

_STAGING: Final = ".new-"


def cache_directory(
    environ: Mapping[str, str] | None = None, projects: Iterable[str] = CONTROL_PLANE
) -> Path:
    """Return the cache folder for the pinned versions of some projects; it may not exist.

    Its name contains all versions, so its content never becomes outdated; programs from
    Debian are asked for their version.
    """
    versions = "-".join(f"{project}-{PINS[project]}" for project in projects)
    return user_cache(environ) / "controlplane" / versions


def user_cache(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of everything that this library caches; it may not exist.

    The folder is below `XDG_CACHE_HOME`, or below `~/.cache` if that variable is not set
    or not absolute, as the XDG specification requires.
    """
    env = os.environ if environ is None else environ
    given = Path(env.get("XDG_CACHE_HOME") or "")
    base = given if given.is_absolute() else Path.home() / ".cache"
    return base / "navarchos"


class Cache:
    """Cached programs by name, in one folder.

    Promises: a cached program is complete; processes that fill the cache at the same time
    wait for each other.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, name: str) -> Path:
        """Return the path of a cached program, which may not exist."""
        return self.directory / name

    @contextmanager
    def locked(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Lock the cache against other processes and remove files that killed ones left.

        Args:
            on_wait: Called if another process holds the lock, before waiting for it.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        # The lock file is never removed: a lock on a removed file protects nothing.
        with (self.directory / ".lock").open("w", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            for left in self.directory.glob(f"{_STAGING}*"):
                shutil.rmtree(left)  # left by a killed process: only this one has the lock
            yield

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Return a new directory on the cache's file system, removed after the block."""
        self.directory.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.directory))
        try:
            yield directory
        finally:
            shutil.rmtree(directory)

    def install(self, staged: Path, name: str) -> Path:
        """Move a program from `staging` to its path in the cache, atomically."""
        return staged.replace(self.path(name))

    def discard(self, name: str) -> None:
        """Remove a file or a folder; also if this process is killed, no part of it stays there."""
        with self.staging() as directory:
            self.path(name).replace(directory / "discarded")


ASSETS: Final = "KUBEBUILDER_ASSETS"
"""The environment variable for a directory with the programs; envtest reads it, too."""

_VERSION_TIMEOUT: Final = 30.0
_ADVICE: Final = f"run `{{command}}` in a checkout, or set {ASSETS} to a folder with the programs"


@dataclass(frozen=True, slots=True)
class Binary:
    """An installed program.

    Attributes:
        tool: The tool.
        path: The program file.
        source: How it was found: `KUBEBUILDER_ASSETS`, `PATH`, `cache`, `release`, `build`.
        version: The version that the program reports; `None` if its output has no version.
    """

    tool: Tool
    path: Path
    source: str
    version: ToolVersion | None


def installed_version(tool: Tool, path: Path) -> ToolVersion | None:
    """Return the version that a program reports, or `None`."""
    try:
        done = subprocess.run(  # noqa: S603 - a program that is about to be run anyway
            [str(path), *tool.version_arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a program on the PATH may print anything
            timeout=_VERSION_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Network plugins report their version on the standard error.
    return parse_version(done.stdout + done.stderr) if done.returncode == 0 else None


class Lookup:
    """Finds programs: `KUBEBUILDER_ASSETS`, then the PATH, then the cache.

    A program in `KUBEBUILDER_ASSETS` is used in any version: the user chose it. A program
    on the PATH must be of the pinned minor release or newer.

    Args:
        environ: Environment variables; by default the environment of the process.
        cache: The cache; by default in `cache_directory`.
        command: The command that installs programs in the cache, for messages; by default the
            command for a control plane, with the names of missing programs.
        version_of: Returns the version that a program reports.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        cache: Cache | None = None,
        command: str = "",
        version_of: Callable[[Tool, Path], ToolVersion | None] = installed_version,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._command = command
        self.version_of = version_of
        self.cache = cache if cache is not None else Cache(cache_directory(self._environ))

    def advice(self, names: Iterable[str]) -> str:
        """Return what the user can do about missing programs."""
        command = f"python -m navarchos.testing.controlplane {' '.join(names)}"
        return _ADVICE.format(command=self._command or command)

    def find(self, tool: Tool) -> Binary | Sequence[tuple[str, str]]:
        """Return a program, or a (source, cause) pair for each place without it."""
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
            return "not set"
        path = Path(directory) / tool.name
        if not _is_program(path):
            return f"no executable file {path}"
        return Binary(tool, path, ASSETS, self.version_of(tool, path))

    def _on_path(self, tool: Tool) -> Binary | str:
        found = shutil.which(tool.name, path=self._environ.get("PATH", os.defpath))
        if found is None:
            return f"no {tool.name} found"
        version = self.version_of(tool, Path(found))
        if version is None:
            return f"{found} does not report its version"
        if not version.is_at_least_the_minor_of(tool.pinned):
            return f"{found} is {version}, older than {tool.pinned}"
        return Binary(tool, Path(found), "PATH", version)

    def _in_cache(self, tool: Tool) -> Binary | str:
        path = self.cache.path(tool.name)
        if not _is_program(path):
            return f"no executable file {path}"
        if not tool.debian:  # the name of the folder contains the version
            return Binary(tool, path, "cache", tool.pinned)
        version = self.version_of(tool, path)
        if not tool.is_usable(version):
            return f"{path} is {version}, older than {tool.pinned}"
        return Binary(tool, path, "cache", version)


def find_binaries(tools: Iterable[Tool], lookup: Lookup | None = None) -> dict[Tool, Binary]:
    """Return all of these programs.

    Raises:
        BinariesMissing: Some programs were not found.
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
        raise BinariesMissing(missing, attempts, search.advice(missing))
    return found


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
