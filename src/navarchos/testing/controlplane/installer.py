"""Gets the programs that are not there: published releases first, else a build."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.binaries import ASSETS, Binary, Cache, Lookup
from navarchos.testing.controlplane.errors import BinariesMissing, CacheUnusable, ControlPlaneError
from navarchos.testing.controlplane.releases import Releases, ReleaseUnusable, release_of
from navarchos.testing.controlplane.tools import PINS, Tool, parse_version

__all__ = [
    "BuildFailed",
    "Builder",
    "Fetcher",
    "ToolInstaller",
    "build",
    "build_command",
    "find_module",
]

_MODULE: Final = Path("tests", "e2e", "controlplane")


_STAMPED: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


_LINES_SHOWN: Final = 12


class BuildFailed(ControlPlaneError):
    """A program that could not be built.

    Attributes:
        why: What went wrong; the end of what the toolchain said.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why


def find_module(working_directory: Path | None = None) -> Path | None:
    """Return the Go module that names the sources, or `None` outside a checkout.

    Looked for from the working directory, then in the checkout that this package was
    installed from.
    """
    for root in (working_directory or Path.cwd(), Path(__file__).parents[4]):
        if (root / _MODULE / "go.mod").is_file():
            return root / _MODULE
    return None


def build_command(tool: Tool, output: Path, go: str = "go") -> Sequence[str]:
    """Return the command that builds a program into a file.

    Kubernetes binaries learn their version from the linker. A server without one calls
    itself v0.0.0 and serves no feature that has a minimum version.
    """
    return [
        go,
        "build",
        "-trimpath",
        "-ldflags",
        " ".join(["-s", "-w", *_stamps()]),
        "-o",
        str(output),
        tool.package,
    ]


def build(
    tool: Tool, output: Path, module: Path | None, environ: Mapping[str, str] | None = None
) -> None:
    """Build a program into a file. Takes minutes where nothing is cached.

    Raises:
        BuildFailed: There is no toolchain, no module, or it did not build.
    """
    env = os.environ if environ is None else environ
    go = shutil.which("go", path=env.get("PATH", os.defpath))
    if go is None:
        raise BuildFailed("there is no go toolchain on the PATH")
    if module is None:
        raise BuildFailed(f"there is no {_MODULE / 'go.mod'}: run in a checkout, or use --module")
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            build_command(tool, output, go),
            cwd=module,
            # Neither a workspace around the checkout nor a habit of its owner has a say.
            env={**env, "CGO_ENABLED": "0", "GO111MODULE": "on", "GOFLAGS": "", "GOWORK": "off"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BuildFailed(f"{go} cannot be run: {error}") from error
    if done.returncode != 0:
        said = done.stdout.strip().splitlines()[-_LINES_SHOWN:]
        raise BuildFailed("\n    ".join(["go build failed:", *said]))


def _stamps() -> list[str]:
    version = parse_version(PINS["kubernetes"])
    assert version is not None
    values = {
        "gitVersion": str(version),
        "gitMajor": str(version.major),
        "gitMinor": str(version.minor),
    }
    return [
        f"-X {package}.{name}={value}" for package in _STAMPED for name, value in values.items()
    ]


_ADVICE: Final = f"let the releases be reached, install Go, or point {ASSETS} at the programs"

Fetcher = Callable[[Tool, Path], None]
"""Writes a published program to a file, or raises `ReleaseUnusable`."""

Builder = Callable[[Tool, Path, Path | None], None]
"""Builds a program into a file from a Go module, or raises `BuildFailed`."""


class ToolInstaller:
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
