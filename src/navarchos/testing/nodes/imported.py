"""Imported images: a folder of containerd with all images, made once and shared by nodes.

Importing the project's image takes seconds for each node, and more when nodes do it at once. A
copy of a folder in which it is imported costs a node a fraction of a second: files are hard links,
only the databases are copied. Containers never write into the layers of their images.
"""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from navarchos.errors import AlreadyStarted, NotStarted
from navarchos.testing.controlplane.binaries import Cache, user_cache
from navarchos.testing.nodes.chroot import (
    check_machine,
    find_program,
    in_namespaces,
    last_lines,
)
from navarchos.testing.nodes.images import ImageError, digest_of_file, read_index
from navarchos.testing.nodes.layers import key_of

__all__ = ["ImportFailed", "ImportedImages"]

_RECIPE: Final = 1
"""A part of the folders' names; another number after each change of how they are made."""

_IMPORT_TIMEOUT: Final = 300.0
_COPY_TIMEOUT: Final = 120.0
_KEPT: Final = (
    "io.containerd.content.v1.content",
    "io.containerd.metadata.v1.bolt",
    "io.containerd.snapshotter.v1.overlayfs",
)
"""What containerd keeps of images; everything else belongs to one containerd, as its identity."""

# Nodes configure containerd in their own way; this one only imports.
_CONFIG: Final = """
version = 3
root = {root}
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.grpc.v1.cri",
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "/run/containerd/containerd.sock"
"""

# Arguments: containerd, its configuration, ctr, then the archives. /run is private, so the socket
# has a short path that no other process sees. A containerd that ends early ends the script.
_SCRIPT: Final = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 run /run
"$1" --config "$2" &
containerd=$!
ctr=$3
shift 3
until [ -S /run/containerd/containerd.sock ]; do
  kill -0 "$containerd"
  sleep 0.02
done
for archive in "$@"; do
  "$ctr" --connect-timeout 30s --namespace k8s.io images import --local "$archive"
done
kill -TERM "$containerd"
wait "$containerd"
"""


class ImportFailed(ImageError):
    """Images cannot be imported into a folder of containerd, or the folder not be copied.

    Attributes:
        why: The cause; the end of the output of containerd, if that failed.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"images cannot be imported into containerd: {self.why}"


class ImportedImages:
    """A folder of containerd with images, in the user's cache.

    Promises: the folder is the same for the same containerd and the same archives, and complete.
    Processes that need it at the same time wait for each other. While one of them uses it, it is
    not removed; a folder that no process uses is removed when another one is made.

    Lifecycle: usable inside `with`. Copies stay usable afterwards.
    Threads: after the start, `copy_to` is safe from any thread.

    Args:
        programs: The folder of the programs `containerd` and `ctr`.
        images: OCI archives.
        directory: The cache folder of such folders; by default below the user's cache folder.
            Nodes are on the same file system.
        report: Receives progress messages for the user, one line each.
    """

    def __init__(
        self,
        programs: Path,
        images: Sequence[Path],
        *,
        directory: Path | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._programs = programs
        self._images = tuple(images)
        self._cache = Cache(directory if directory is not None else user_cache() / "imported")
        self._report = report
        self._in_use = ExitStack()
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        """Import the images if they are not in the cache, and keep the folder from being removed.

        Raises:
            AlreadyStarted: The folder is in use by this object.
            ArchiveUnusable: A file is not an OCI archive.
            ImportFailed: The import failed.
            CannotBuild: This machine cannot run containerd.
            OSError: A file cannot be read, or the cache cannot be written.
        """
        if self._folder is not None:
            raise AlreadyStarted("the folder of images")
        name, family = self._names()
        with self._cache.locked(lambda: self._report("waiting for another process that imports")):
            if not self._cache.path(name).exists():
                self._make(name, family)
            with ExitStack() as in_use:
                self._use(name, in_use)  # mutant: images-removed-while-in-use
                self._sweep(name)
                self._in_use = in_use.pop_all()
        self._folder = self._cache.path(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Allow that the folder is removed."""
        self._folder = None
        self._in_use.close()

    def copy_to(self, target: Path) -> None:
        """Make the folder of a node's containerd, with all images.

        Args:
            target: The folder, which must not exist.

        Raises:
            NotStarted: The call is outside `with`.
            ImportFailed: The target is on another file system, or copying failed.
            OSError: A database cannot be copied.
        """
        if self._folder is None:
            raise NotStarted("the folder of images")
        here, there = self._folder.stat().st_dev, target.parent.stat().st_dev
        if here != there:
            raise ImportFailed(f"{target} is not on the file system of {self._folder}")
        _copy(self._folder, target)

    def _names(self) -> tuple[str, str]:
        """Return the folder's name, and how names of other versions of the images begin."""
        containerd = digest_of_file(self._programs / "containerd")
        images = sorted(pair for archive in self._images for pair in read_index(archive).items())
        family = key_of(_RECIPE, containerd, [name for name, _ in images])
        return f"{family}-{key_of(images)}", family

    def _make(self, name: str, family: str) -> None:
        check_machine()
        self._report(f"importing {len(self._images)} images")
        with self._cache.staging() as work:
            root, config = work / "root", work / "config.toml"
            # Of images that are in the last folder already, only new layers are imported. Images
            # under the same names replace the old ones, so nothing else stays.
            others = (path for path in self._cache.directory.glob(f"{family}-*") if path.is_dir())
            last = next(others, None)
            if last is not None:
                _copy(last, root)
            config.write_text(_CONFIG.format(root=json.dumps(str(root))), encoding="utf-8")
            programs = [
                str(self._programs / "containerd"),
                str(config),
                str(self._programs / "ctr"),
            ]
            _run(
                [
                    *in_namespaces(),
                    *("sh", "-c", _SCRIPT, "sh", *programs),
                    *(str(archive.absolute()) for archive in self._images),
                ],
                _IMPORT_TIMEOUT,
            )
            for place in root.iterdir():
                if place.name not in _KEPT:
                    shutil.rmtree(place)
            self._cache.install(root, name)

    # -- folders in use are locked, so that no other process removes them

    def _lock_file(self, name: str) -> Path:
        return self._cache.path(f"{name}.lock")

    def _use(self, name: str, in_use: ExitStack) -> None:
        file = in_use.enter_context(self._lock_file(name).open("w", encoding="ascii"))
        fcntl.flock(file, fcntl.LOCK_SH)

    def _sweep(self, name: str) -> None:
        for folder in self._cache.directory.glob("[0-9a-f]*-*"):
            if folder.name == name or not folder.is_dir():
                continue
            with self._lock_file(folder.name).open("w", encoding="ascii") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another process uses this folder
                self._cache.discard(folder.name)
                self._lock_file(folder.name).unlink()


def _copy(folder: Path, target: Path) -> None:
    _run(["cp", "--archive", "--link", str(folder), str(target)], _COPY_TIMEOUT)
    for database in folder.rglob("*.db"):
        copy = target / database.relative_to(folder)
        copy.unlink()  # mutant: databases-are-shared
        shutil.copyfile(database, copy)


def _run(command: Sequence[str], timeout: float) -> None:
    program = Path(command[0]).name
    try:
        done = subprocess.run(  # noqa: S603 - fixed programs
            [find_program(command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ImportFailed(f"{program} took longer than {timeout:g} s") from error
    if done.returncode != 0:
        raise ImportFailed(
            f"{program} failed with status {done.returncode}:\n{last_lines(done.stdout)}"
        )
