"""The files of an image that is being built: layers as one tree, copied files, cached layers."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from navarchos.testing.controlplane.binaries import Cache
from navarchos.testing.nodes.images import (
    Layer,
    digest_of_file,
    is_opaque,
    is_whiteout,
    pack_layer,
)

__all__ = ["CachedLayer", "CopiedFiles", "LayerCache", "Tree", "fingerprint", "key_of"]

_MAX_LINKS: Final = 40
_UNUSED_KEPT: Final = 30


@dataclass(frozen=True, slots=True)
class Tree:
    """Folders of layers, seen as one root file system.

    Names are relative to the root, without `.` and `..`; the root is the empty name.

    Attributes:
        folders: The folders, lowest first.
        is_hidden: Whether a file or an empty folder is left out of `walk`, by its name.
    """

    folders: tuple[Path, ...]
    is_hidden: Callable[[str], bool] = lambda _: False

    def find(self, name: str) -> Path | None:
        """Return the file, folder or link that is visible under a name, or `None`.

        No part of the name but the last may be a link: see `resolve`.
        """
        for folder in reversed(self.folders):
            path, hides_lower = _look(folder, name)
            if path is not None or hides_lower:
                return path
        return None

    def resolve(self, name: str) -> str:
        """Return the name to which the links in a name lead, inside the root.

        Raises:
            OSError: The links form a circle.
        """
        rest = list(PurePosixPath("/", name).parts[1:])
        done: list[str] = []
        links = 0
        while rest:
            part = rest.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            path = self.find("/".join([*done, part]))
            if path is None or not path.is_symlink():
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(f"{name} leads to a circle of links")
            target = PurePosixPath(path.readlink())
            if target.is_absolute():  # mutant: links-lead-out
                done = []
            rest = [part for part in target.parts if part != "/"] + rest
        return "/".join(done)

    def is_folder(self, name: str) -> bool:
        """Return whether a name stands for a folder; a link to a folder is not one."""
        path = self.find(name)
        return path is not None and path.is_dir() and not path.is_symlink()

    def walk(self, name: str) -> Iterator[tuple[str, Path]]:
        """Return everything below a folder: its name below the folder, and where it is stored.

        Each folder comes before its content; names are sorted.
        """
        for child in self._children(name):
            full = f"{name}/{child}".lstrip("/")
            path = self.find(full)
            below = list(self.walk(full)) if self.is_folder(full) else []
            if path is not None and (below or not self.is_hidden(full)):  # mutant: ignored-copied
                yield child, path
                yield from ((f"{child}/{each}", stored) for each, stored in below)

    def _children(self, name: str) -> list[str]:
        found: dict[str, bool] = {}
        for folder in reversed(self.folders):
            path, hides_lower = _look(folder, name)
            if path is not None:
                for child in path.iterdir():
                    found.setdefault(child.name, not is_whiteout(child.lstat()))
            if hides_lower:
                break
        return sorted(child for child, is_there in found.items() if is_there)


def _look(folder: Path, name: str) -> tuple[Path | None, bool]:
    """Return the path of a name in one layer, and whether the layer hides the lower ones."""
    path, hides_lower = folder, False
    parts = PurePosixPath(name).parts
    for index, part in enumerate(parts):
        path /= part
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None, hides_lower
        if is_whiteout(status):  # mutant: removed-files-come-back
            return None, True
        if not stat.S_ISDIR(status.st_mode):
            return (path if index == len(parts) - 1 else None), True
        hides_lower = hides_lower or is_opaque(path)
    return path, hides_lower


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """Writes copied files into the folder of a new layer, which starts empty.

    Attributes:
        below: The layers below.
        folder: The folder of the new layer.
        owner: The user and group of copied files.
        is_shared: Whether copied files are files of other layers: these never change, so the new
            layer has links to them.
    """

    below: Tree
    folder: Path
    owner: tuple[int, int]
    is_shared: bool = False

    def make_folder(self, name: str, mode: int = 0o755) -> None:
        """Make a folder and its parents; folders of lower layers keep their mode and owner."""
        made = PurePosixPath()
        for part in PurePosixPath(name).parts:
            made /= part
            target = self.folder / made
            if target.is_dir() and not target.is_symlink():
                continue
            below = self.below.find(str(made))
            target.mkdir()
            if below is None:
                target.chmod(mode if str(made) == name else 0o755)
                os.chown(target, *self.owner)
            elif below.is_symlink() or not below.is_dir():
                raise NotADirectoryError(f"/{made} is not a folder")
            else:
                status = below.lstat()
                target.chmod(stat.S_IMODE(status.st_mode))
                os.chown(target, status.st_uid, status.st_gid)

    def put(self, name: str, source: Path) -> None:
        """Copy a file, a link, or a folder without its content."""
        if source.is_dir() and not source.is_symlink():
            self.make_folder(name, stat.S_IMODE(source.stat().st_mode))
            return
        if self.below.is_folder(name):
            raise IsADirectoryError(f"/{name} is a folder already")
        self.make_folder(str(PurePosixPath(name).parent))
        target = self.folder / name
        if target.is_symlink() or target.exists():
            target.unlink()
        status = source.lstat()
        if self.is_shared and (status.st_uid, status.st_gid) == self.owner:
            os.link(source, target, follow_symlinks=False)
            return
        shutil.copyfile(source, target, follow_symlinks=False)
        if not source.is_symlink():
            target.chmod(stat.S_IMODE(source.stat().st_mode))
        os.chown(target, *self.owner, follow_symlinks=False)


# -- the cache of layers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CachedLayer:
    """A layer in the cache.

    Attributes:
        key: Names everything that the layer depends on, the layers below included.
        folder: Its files, as overlayfs stores changes. Nothing changes them: layers share files.
        tar: The same as a tar; it is written when an image contains the layer.
    """

    key: str
    folder: Path
    tar: Path

    def packed(self) -> Layer:
        """Return the layer for an image."""
        if not self.tar.exists():
            unfinished = self.tar.with_suffix(".new")
            pack_layer(self.folder, unfinished)
            unfinished.replace(self.tar)
        return Layer.of_tar(self.tar)


class LayerCache:
    """The layers in a cache folder.

    Promises: a cached layer is complete. Processes that use the folder must hold `locked`.
    """

    def __init__(self, directory: Path) -> None:
        self._cache = Cache(directory)
        self._used: set[str] = set()

    def locked(self, on_wait: Callable[[], None]) -> AbstractContextManager[None]:
        """Lock the folder against other processes; see `Cache.locked`."""
        return self._cache.locked(on_wait)

    def obtain(self, key: str, make: Callable[[Path, Path], None]) -> CachedLayer:
        """Return a layer, made if it is not in the cache.

        Args:
            key: Its key.
            make: Fills the folder of the new layer; the second folder is for temporary files.
        """
        self._used.add(key)
        place = self._cache.path(key)
        if not place.exists():
            with self._cache.staging() as work:
                files, scratch = work / "layer" / "files", work / "scratch"
                files.mkdir(parents=True)
                scratch.mkdir()
                for folder in (work, files, scratch):
                    folder.chmod(0o755)  # users of the image other than root pass through
                make(files, scratch)
                self._cache.install(work / "layer", key)
        os.utime(place)  # the time of the last use
        return CachedLayer(key, place / "files", place / "layer.tar")

    def sweep(self) -> None:
        """Remove layers that were not used; the last ones stay, for builds of other checkouts."""
        unused = (
            place
            for place in self._cache.directory.glob("[0-9a-f]*")
            if place.name not in self._used
        )
        newest_first = sorted(unused, key=lambda place: place.stat().st_mtime, reverse=True)
        for place in newest_first[_UNUSED_KEPT:]:
            self._cache.discard(place.name)


def key_of(*facts: object) -> str:
    """Return a name for some facts, as JSON has them: the same facts have the same name."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]


def fingerprint(name: str, path: Path) -> str:
    """Return a text that differs if the content, the kind or the mode of a file differs."""
    status = path.lstat()
    content = ""
    if stat.S_ISLNK(status.st_mode):
        content = str(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        content = digest_of_file(path)
    return f"{name} {status.st_mode:o} {content}"
