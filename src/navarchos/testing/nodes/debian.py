"""Root file systems of Debian, made from packages: the base of images where no registry is."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.binaries import Cache
from navarchos.testing.controlplane.releases import Apt, ReleaseUnusable
from navarchos.testing.nodes.chroot import Chroot, check_machine
from navarchos.testing.nodes.images import Image, ImageConfig, Layer, pack_layer

__all__ = ["DebianBase", "obtain_base"]

_RECIPE: Final = 1
"""A part of the cache's key; another number after each change of how a base is made."""

_PACKAGES: Final = (
    "?essential",
    # Otherwise apt chooses usrmerge, which needs the whole of Perl.
    "usr-is-merged",
    "ca-certificates",
    "python3",
    "python3-pip",
    "python3-venv",
)
_MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_LEFT_OUT: Final = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
)
_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENV: Final = {
    "PATH": _PATH,
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    # Compiled modules name the checksum of their source instead of its time, which images lack.
    "SOURCE_DATE_EPOCH": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_TEMPORARY: Final = (
    "var/log/**/*",
    "var/cache/debconf/*",
    "var/cache/ldconfig/*",
    "var/lib/dpkg/*-old",
    "run/**/*",
    "tmp/**/*",
)
"""Files that installing leaves behind; they differ each time, and no program needs them."""

# A broken package fails, too: tar refuses an incomplete input.
_UNPACK: Final = """
set -e
archives=$1 root=$2
shift 2
for package in "$archives"/*.deb; do
  dpkg-deb --fsys-tarfile "$package" |
    tar --extract --directory="$root" --keep-directory-symlink "$@"
done
"""
# The files are there already, so a package can be configured before another one is.
_INSTALL: Final = """
exec dpkg --install --force-depends --force-unsafe-io "$@" /packages/*.deb
"""


@dataclass(frozen=True, slots=True)
class DebianBase:
    """A root file system of Debian with Python, pip and certificates.

    Attributes:
        key: Names the versions of all its packages.
        root: The folder with all files.
        layer: The same as a layer.
        versions: The version of each package.
    """

    key: str
    root: Path
    layer: Layer
    versions: Mapping[str, str]

    @property
    def python_version(self) -> str:
        """The minor release of Python, such as `3.11`."""
        return ".".join(self.versions["python3"].split(".")[:2])

    @property
    def image(self) -> Image:
        """The base as an image."""
        return Image((self.layer,), ImageConfig({"PATH": _PATH}, command=("python3",)))


def obtain_base(directory: Path, report: Callable[[str], None]) -> DebianBase:
    """Return the base of the package versions that the machine's apt offers; make it if needed.

    Packages are downloaded and verified by apt-get, which uses the system's sources. Nothing is
    installed on the machine. If apt-get cannot be asked, for example without a network, the last
    base is used. Other bases are removed when a base has been made.

    Args:
        directory: The cache folder of bases.
        report: Receives progress messages for the user, one line each.

    Raises:
        ReleaseUnusable: Packages cannot be downloaded, and there is no base in the cache.
        CannotBuild: A base must be made, and this machine cannot.
        ChrootFailed: A package could not be configured.
        OSError: The cache cannot be written.
    """
    cache = Cache(directory)
    with (
        cache.locked(lambda: report("waiting for another process that makes a base of Debian")),
        cache.staging() as work,
    ):
        packages = _BasePackages(work)
        try:
            versions = packages.versions()
        except ReleaseUnusable as error:
            last = max(directory.glob("*/versions.json"), key=_age, default=None)
            if last is None:
                raise
            report(f"using the last base of Debian: {error}")
            return _read(last.parent)
        if _is_complete(cache.path(_key(versions))):
            return _read(cache.path(_key(versions)))
        check_machine()
        report(f"making a base of {len(versions)} packages of Debian (takes about a minute)")
        archives = packages.download()
        # After a download with new lists of packages, these versions are newer.
        versions = packages.versions()
        made = work / "base"
        _make_root(packages, archives, made / "root")
        pack_layer(made / "root", made / "layer.tar")
        (made / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
        for old in directory.glob("[0-9a-f]*"):
            cache.discard(old.name)
        return _read(cache.install(made, _key(versions)))


def _key(versions: Mapping[str, str]) -> str:
    text = json.dumps([_RECIPE, sorted(versions.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _age(path: Path) -> float:
    return path.stat().st_mtime


def _is_complete(directory: Path) -> bool:
    return (directory / "versions.json").exists()


def _read(directory: Path) -> DebianBase:
    versions = json.loads((directory / "versions.json").read_text(encoding="utf-8"))
    layer = Layer.of_tar(directory / "layer.tar")
    return DebianBase(directory.name, directory / "root", layer, versions)


class _BasePackages:
    """The packages of a base, as if no package was installed yet."""

    def __init__(self, work: Path) -> None:
        self._apt = Apt(_PACKAGES)
        self._work = work
        (work / "none").touch()
        self._archives = work / "archives"
        (self._archives / "partial").mkdir(parents=True)

    def versions(self) -> dict[str, str]:
        """Return the version of each package that would be downloaded."""
        lines = self._get("--simulate").splitlines()
        found = (line.split() for line in lines if line.startswith("Inst "))
        # Inst NAME (VERSION ORIGIN [ARCHITECTURE])
        return {words[1]: words[2].lstrip("(") for words in found}

    def download(self) -> Path:
        """Download the packages and return their folder."""
        self._get("--download-only")
        return self._archives

    def unpack(self, root: Path) -> None:
        """Unpack the files of all packages into a folder; nothing is configured."""
        excluded = (f"--exclude=.{pattern}" for pattern in _LEFT_OUT)
        self._apt.run("sh", "-c", _UNPACK, "sh", str(self._archives), str(root), *excluded)

    def _get(self, mode: str) -> str:
        return self._apt.get(
            self._work,
            mode,
            "--yes",
            "--no-install-recommends",
            f"--option=Dir::State::status={self._work / 'none'}",
            f"--option=Dir::Cache::archives={self._archives}",
            # The system's caches of lists are for its installed packages.
            "--option=Dir::Cache::pkgcache=",
            "--option=Dir::Cache::srcpkgcache=",
            "install",
            *_PACKAGES,
        )


def _make_root(packages: _BasePackages, archives: Path, root: Path) -> None:
    """Unpack the packages, then let dpkg install them with their scripts, from inside."""
    (root / "usr").mkdir(parents=True)
    for folder in (root, root / "usr"):
        folder.chmod(0o755)
    for name in _MERGED:
        (root / "usr" / name).mkdir(mode=0o755)
        (root / name).symlink_to(f"usr/{name}")
    packages.unpack(root)
    excluded = [f"--path-exclude={pattern}" for pattern in _LEFT_OUT]
    for name in _MERGED:
        if not any((root / "usr" / name).iterdir()):  # this architecture does not have it
            (root / "usr" / name).rmdir()
            (root / name).unlink()
    (root / "packages").mkdir()
    Chroot(root, env=_ENV, binds={"/packages": archives}).run("sh", "-c", _INSTALL, "sh", *excluded)
    (root / "packages").rmdir()
    # The name that images of Python have, and their Dockerfiles use.
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for pattern in _TEMPORARY:
        for path in root.glob(pattern):
            if not path.is_dir():
                path.unlink()
