"""Install missing programs: download a release or a package of Debian, or build from source."""

import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane import errors
from navarchos.testing.controlplane.binaries import ASSETS, Binary, Cache, Lookup
from navarchos.testing.controlplane.releases import (
    Releases,
    ReleaseUnusable,
    release_of,
    unpack_debian_package,
)
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

_MODULES: Final = Path("tests", "e2e")
_KUBERNETES_MODULE: Final = "controlplane"
_OWN_MODULE: Final = "nodes"
_OWN_PROJECTS: Final = ("containerd", "cni")
"""The projects that would move versions of Kubernetes' requirements."""

_STAMPED: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_CONTAINERD: Final = "github.com/containerd/containerd/v2"
_CNI_STAMP: Final = "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion"
_TAGS: Final = {"containerd": ("-tags", "no_btrfs,no_zfs,no_devmapper")}
"""The storage that containerd leaves out: each needs a library or a program of the machine."""


_LINES_SHOWN: Final = 12


class BuildFailed(errors.ControlPlaneError):
    """A program could not be built.

    Attributes:
        why: The cause, with the last lines of the toolchain's output.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why


def find_module(
    working_directory: Path | None = None, *, project: str = "kubernetes"
) -> Path | None:
    """Return the Go module that pins the sources, or `None` outside a checkout.

    The working directory is searched first, then the checkout that this package was
    installed from.

    Args:
        working_directory: The folder to search first; by default the one of the process.
        project: The project of the programs to build. Some have a separate module.
    """
    module = _MODULES / (_OWN_MODULE if project in _OWN_PROJECTS else _KUBERNETES_MODULE)
    for root in (working_directory or Path.cwd(), Path(__file__).parents[4]):
        if (root / module / "go.mod").is_file():
            return root / module
    return None


def build_command(tool: Tool, output: Path, go: str = "go") -> Sequence[str]:
    """Return the command that builds a program into a file.

    The version is set with linker flags. An API server without them reports v0.0.0 and does
    not serve features that need a minimum version.
    """
    return [
        go,
        "build",
        "-trimpath",
        *_TAGS.get(tool.project, ()),
        "-ldflags",
        " ".join(["-s", "-w", *_stamps(tool.project)]),
        "-o",
        str(output),
        tool.package,
    ]


def build(
    tool: Tool, output: Path, module: Path | None, environ: Mapping[str, str] | None = None
) -> None:
    """Build a program into a file. Takes minutes without Go's build cache.

    Raises:
        BuildFailed: The toolchain or the module is missing, or the build failed.
    """
    env = os.environ if environ is None else environ
    go = shutil.which("go", path=env.get("PATH", os.defpath))
    if go is None:
        raise BuildFailed("no go toolchain on the PATH")
    if module is None:
        raise BuildFailed(f"no go.mod in {_MODULES}: run in a checkout, or use --module")
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            build_command(tool, output, go),
            cwd=module,
            # Ignore Go settings of the user and a workspace around the checkout.
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
        output_lines = done.stdout.strip().splitlines()[-_LINES_SHOWN:]
        raise BuildFailed("\n    ".join(["go build failed:", *output_lines]))


def _stamps(project: str) -> list[str]:
    """Return the linker flags that set the version of a project's programs."""
    if project == "containerd":
        values = {"Version": f"v{PINS[project]}", "Package": _CONTAINERD}
        return [f"-X {_CONTAINERD}/version.{name}={value}" for name, value in values.items()]
    if project == "cni":
        return [f"-X {_CNI_STAMP}=v{PINS[project]}"]
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


_ADVICE: Final = (
    f"allow access to the releases, install Go, or set {ASSETS} to a folder with the programs"
)
_DEBIAN_ADVICE: Final = (
    "allow access to the packages of Debian, install the programs on the PATH, "
    f"or set {ASSETS} to a folder with them"
)

Fetcher = Callable[[Tool, Path], None]
"""Writes a published program to a file, or raises `ReleaseUnusable`."""

Builder = Callable[[Tool, Path, Path | None], None]
"""Builds a program into a file from a Go module, or raises `BuildFailed`."""


class ToolInstaller:
    """Finds each program, or installs it in the cache.

    Args:
        lookup: Finds installed programs; its cache is filled.
        module: The Go module to build in; by default the one of each program in the checkout.
        report: Receives progress messages for the user, one line each.
        fetch: Downloads a release; over the network by default.
        fetch_from_debian: Downloads a package of Debian; with apt-get by default.
        build: Builds a program; with the Go toolchain by default.
    """

    def __init__(
        self,
        lookup: Lookup,
        *,
        module: Path | None = None,
        report: Callable[[str], None],
        fetch: Fetcher | None = None,
        fetch_from_debian: Fetcher | None = None,
        build: Builder = build,
    ) -> None:
        self._lookup = lookup
        self._cache: Cache = lookup.cache
        self._module = module
        self._report = report
        self._fetch = fetch if fetch is not None else _over_the_network()
        self._fetch_from_debian = fetch_from_debian or _fetch_from_debian
        self._build = build

    def obtain(self, tools: Iterable[Tool]) -> list[Binary]:
        """Return all of these programs; install the missing ones.

        If all programs are found, the cache is not touched and need not be writable.

        Raises:
            BinariesMissing: Some programs could not be installed. The others are in the
                cache.
            CacheUnusable: The cache cannot be written; further programs were not tried.
        """
        wanted = tuple(tools)
        there = [self._lookup.find(tool) for tool in wanted]
        if all(isinstance(each, Binary) for each in there):
            return self._reported(each for each in there if isinstance(each, Binary))
        try:
            return self._fill(wanted)
        except OSError as error:
            raise errors.CacheUnusable(self._cache.directory, str(error)) from error

    def _fill(self, tools: Sequence[Tool]) -> list[Binary]:
        with self._cache.locked(
            lambda: self._report("waiting for another process that fills the cache")
        ):
            found: list[Binary] = []
            attempts: list[tuple[str, str]] = []
            missing: list[str] = []
            for tool in tools:
                result = self._obtain(tool)
                if isinstance(result, Binary):
                    found += self._reported([result])
                else:
                    missing.append(tool.name)
                    attempts += [(f"{tool.name}: {way}", why) for way, why in result]
        if missing:
            raise errors.BinariesMissing(missing, attempts, _advice(missing, tools))
        return found

    def _reported(self, found: Iterable[Binary]) -> list[Binary]:
        binaries = list(found)
        for binary in binaries:
            self._report(_line(binary))
        return binaries

    def _obtain(self, tool: Tool) -> Binary | list[tuple[str, str]]:
        # Look again under the lock: another process may have installed it meanwhile.
        looked = self._lookup.find(tool)
        if isinstance(looked, Binary):
            return looked
        attempts = list(looked)
        for way, doing, get in self._ways(tool):
            self._report(f"{tool.name}: {doing}")
            try:
                return self._get(tool, way, get)
            except (ReleaseUnusable, BuildFailed) as error:
                self._report(f"{tool.name}: {error}")
                attempts.append((way, str(error)))
        return attempts

    def _ways(self, tool: Tool) -> Sequence[tuple[str, str, Fetcher]]:
        if tool.debian:
            return [("Debian", "fetching the package of Debian", self._fetch_from_debian)]
        building = f"building {tool.pinned} (takes minutes without Go's build cache)"
        return [
            ("release", f"fetching {tool.pinned}", self._fetch),
            ("build", building, self._build_it),
        ]

    def _get(self, tool: Tool, way: str, get: Fetcher) -> Binary:
        with self._cache.staging() as directory:
            staged = directory / tool.name
            get(tool, staged)
            staged.chmod(0o755)
            # The name of the cache folder carries the version, so it has to match.
            version = self._lookup.version_of(tool, staged)
            if not tool.is_usable(version):
                raise BuildFailed(f"the program reports {version}, expected {tool.pinned}")
            return Binary(tool, self._cache.install(staged, tool.name), way, version)

    def _build_it(self, tool: Tool, target: Path) -> None:
        self._build(tool, target, self._module or find_module(project=tool.project))


def _over_the_network() -> Fetcher:
    releases = Releases()
    return lambda tool, target: releases.fetch(release_of(tool), target)


def _fetch_from_debian(tool: Tool, target: Path) -> None:
    """Write a program of Debian's package of its project to a file."""
    directory = target.with_name("package")
    unpack_debian_package(tool.project, directory)
    program = directory / tool.debian
    if not program.is_file():
        raise ReleaseUnusable(f"the Debian package {tool.project}", f"it has no file {tool.debian}")
    program.replace(target)


def _advice(missing: Collection[str], tools: Iterable[Tool]) -> str:
    lacking = [tool for tool in tools if tool.name in missing]
    return _DEBIAN_ADVICE if all(tool.debian for tool in lacking) else _ADVICE


def _line(binary: Binary) -> str:
    version, pinned = binary.version, binary.tool.pinned
    is_expected = version == pinned or (binary.tool.debian and binary.tool.is_usable(version))
    note = "" if is_expected else f" (the tests expect {pinned})"
    shown = version if version is not None else "unknown version"
    return f"{binary.tool.name}: {shown}{note} from {binary.source}: {binary.path}"
