"""Gets the programs that are not there: published releases first, else a build."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.binaries import ASSETS, Binary, Lookup
from navarchos.testing.controlplane.building import BuildFailed, build
from navarchos.testing.controlplane.cache import Cache
from navarchos.testing.controlplane.errors import BinariesMissing, CacheUnusable
from navarchos.testing.controlplane.releases import Releases, ReleaseUnusable, release_of
from navarchos.testing.controlplane.tools import Tool

__all__ = ["Builder", "Fetcher", "Obtainer"]

_ADVICE: Final = f"let the releases be reached, install Go, or point {ASSETS} at the programs"

Fetcher = Callable[[Tool, Path], None]
"""Writes a published program to a file, or raises `ReleaseUnusable`."""

Builder = Callable[[Tool, Path, Path | None], None]
"""Builds a program into a file from a Go module, or raises `BuildFailed`."""


class Obtainer:
    """Finds each program, or puts it into the cache.

    Args:
        lookup: Where to look first, and which cache to fill.
        module: The Go module to build in; `None` when there is none.
        report: Takes lines about what happens, for people.
        fetch: Gets a release; over the network by default.
        build: Builds; with the Go toolchain by default.
    """

    def __init__(
        self,
        lookup: Lookup,
        *,
        module: Path | None,
        report: Callable[[str], None],
        fetch: Fetcher | None = None,
        build: Builder = build,
    ) -> None:
        self._lookup = lookup
        self._cache: Cache = lookup.cache
        self._module = module
        self._report = report
        self._fetch = fetch if fetch is not None else _over_the_network()
        self._build = build

    def obtain(self, tools: Iterable[Tool]) -> list[Binary]:
        """Return the programs, all of them.

        What is there is taken without a word to the cache, which need not be writable
        then.

        Raises:
            BinariesMissing: Some could not be had in any way. The others are in the
                cache.
            CacheUnusable: Nothing can be written there; the rest was not tried.
        """
        wanted = tuple(tools)
        there = [self._lookup.find(tool) for tool in wanted]
        if all(isinstance(each, Binary) for each in there):
            return self._told(each for each in there if isinstance(each, Binary))
        try:
            return self._fill(wanted)
        except OSError as error:
            raise CacheUnusable(self._cache.directory, str(error)) from error

    def _fill(self, tools: Iterable[Tool]) -> list[Binary]:
        with self._cache.locked(lambda: self._report("waiting for another run to end")):
            found: list[Binary] = []
            attempts: list[tuple[str, str]] = []
            missing: list[str] = []
            for tool in tools:
                result = self._obtain(tool)
                if isinstance(result, Binary):
                    found += self._told([result])
                else:
                    missing.append(tool.name)
                    attempts += [(f"{tool.name}: {way}", why) for way, why in result]
        if missing:
            raise BinariesMissing(missing, attempts, _ADVICE)
        return found

    def _told(self, found: Iterable[Binary]) -> list[Binary]:
        binaries = list(found)
        for binary in binaries:
            self._report(_line(binary))
        return binaries

    def _obtain(self, tool: Tool) -> Binary | list[tuple[str, str]]:
        # Under the lock: the run that was waited for may have brought it.
        looked = self._lookup.find(tool)
        if isinstance(looked, Binary):
            return looked
        attempts = list(looked)
        ways = (
            ("release", f"fetching {tool.pinned}", self._fetch),
            ("build", f"building {tool.pinned}, minutes when nothing is cached", self._build_it),
        )
        for way, doing, get in ways:
            self._report(f"{tool.name}: {doing}")
            try:
                return self._get(tool, way, get)
            except (ReleaseUnusable, BuildFailed) as error:
                self._report(f"{tool.name}: {error}")
                attempts.append((way, str(error)))
        return attempts

    def _get(self, tool: Tool, way: str, get: Fetcher) -> Binary:
        with self._cache.staging() as directory:
            staged = directory / tool.name
            get(tool, staged)
            staged.chmod(0o755)
            # What the folder's name promises must be so.
            version = self._lookup.version_of(tool, staged)
            if version != tool.pinned:
                raise BuildFailed(f"it calls itself {version}, but must be {tool.pinned}")
            return Binary(tool, self._cache.install(staged, tool.name), way, version)

    def _build_it(self, tool: Tool, target: Path) -> None:
        self._build(tool, target, self._module)


def _over_the_network() -> Fetcher:
    releases = Releases()
    return lambda tool, target: releases.fetch(release_of(tool), target)


def _line(binary: Binary) -> str:
    version, pinned = binary.version, binary.tool.pinned
    other = "" if version == pinned else f" (tests are meant for {pinned})"
    told = version if version is not None else "of unknown version"
    return f"{binary.tool.name}: {told}{other} from {binary.source}: {binary.path}"
