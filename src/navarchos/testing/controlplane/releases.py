"""Published releases and packages of Debian: how they are downloaded and verified."""

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit

from navarchos.testing.controlplane.errors import ControlPlaneError
from navarchos.testing.controlplane.tools import PINS, Tool

__all__ = ["Apt", "Release", "ReleaseUnusable", "Releases", "release_of", "unpack_debian_package"]

_CONNECT_TIMEOUT: Final = 5.0
_READ_TIMEOUT: Final = 60.0
_CHUNK: Final = 1 << 20
_MAX_CHECKSUM_FILE: Final = 1 << 22
_APT_TIMEOUT: Final = 300.0
_ARCHITECTURES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class ReleaseUnusable(ControlPlaneError):
    """A release or a package could not be downloaded, or does not match its checksum.

    Attributes:
        url: The requested address, or the name of the package.
        why: The cause.
    """

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)
        self.url = url
        self.why = why

    def __str__(self) -> str:
        return f"{self.url}: {self.why}"


@dataclass(frozen=True, slots=True)
class Release:
    """A published file.

    Attributes:
        url: The address of the file.
        checksum_url: The address of the published checksum.
        read_checksum: Returns the checksum in hex from the content of `checksum_url`, or `""`.
        member: The program's path in a `.tar.gz`; empty if the file itself is the program.
        algorithm: The checksum algorithm.
    """

    url: str
    checksum_url: str
    read_checksum: Callable[[str], str]
    member: str = ""
    algorithm: str = "sha256"


def release_of(tool: Tool, system: str = sys.platform, machine: str = "") -> Release:
    """Return the release that contains a program.

    Raises:
        ReleaseUnusable: No release is published for this system and architecture.
    """
    arch = _ARCHITECTURES.get((machine or platform.machine()).lower())
    if system != "linux" or arch is None:
        raise ReleaseUnusable(tool.name, f"no release is published for {system} {machine}".strip())
    return _RELEASES[tool.project](tool, PINS[tool.project], arch)


def _kubernetes(tool: Tool, version: str, arch: str) -> Release:
    url = f"https://dl.k8s.io/release/v{version}/bin/linux/{arch}/{tool.name}"
    return Release(url, f"{url}.sha512", str.strip, algorithm="sha512")


def _etcd(tool: Tool, version: str, arch: str) -> Release:
    base = f"https://github.com/etcd-io/etcd/releases/download/v{version}"
    name = f"etcd-v{version}-linux-{arch}"
    archive = f"{name}.tar.gz"
    return Release(
        f"{base}/{archive}",
        f"{base}/SHA256SUMS",
        lambda text: _listed(text, archive),
        member=f"{name}/{tool.name}",
    )


def _kwok(tool: Tool, version: str, arch: str) -> Release:
    project, file = "kubernetes-sigs/kwok", f"{tool.name}-linux-{arch}"
    return Release(
        f"https://github.com/{project}/releases/download/v{version}/{file}",
        # kwok publishes no list of checksums; the release API has the digest of each file.
        f"https://api.github.com/repos/{project}/releases/tags/v{version}",
        lambda text: _digest(text, file),
    )


def _kind(tool: Tool, version: str, arch: str) -> Release:
    file = f"{tool.name}-linux-{arch}"
    url = f"https://github.com/kubernetes-sigs/kind/releases/download/v{version}/{file}"
    return Release(url, f"{url}.sha256sum", lambda text: _listed(text, file))


def _containerd(tool: Tool, version: str, arch: str) -> Release:
    project = "https://github.com/containerd/containerd"
    # The other archive needs the C library of the machine.
    archive = f"containerd-static-{version}-linux-{arch}.tar.gz"
    url = f"{project}/releases/download/v{version}/{archive}"
    return Release(
        url, f"{url}.sha256sum", lambda text: _listed(text, archive), member=f"bin/{tool.name}"
    )


def _cni(tool: Tool, version: str, arch: str) -> Release:
    project = "https://github.com/containernetworking/plugins"
    archive = f"cni-plugins-linux-{arch}-v{version}.tgz"
    url = f"{project}/releases/download/v{version}/{archive}"
    return Release(
        url, f"{url}.sha256", lambda text: _listed(text, archive), member=f"./{tool.name}"
    )


_RELEASES: Final = {
    "kubernetes": _kubernetes,
    "etcd": _etcd,
    "kwok": _kwok,
    "kind": _kind,
    "containerd": _containerd,
    "cni": _cni,
}


def _listed(text: str, file: str) -> str:
    for line in text.splitlines():
        checksum, _, name = line.partition(" ")
        if name.strip(" *") == file:
            return checksum
    return ""


def _digest(text: str, file: str) -> str:
    try:
        assets = json.loads(text)["assets"]
        found = [asset["digest"] or "" for asset in assets if asset["name"] == file]
    except (ValueError, KeyError, TypeError):
        return ""
    return str(found[0]).removeprefix("sha256:") if found else ""


class Releases:
    """Downloads programs and verifies their checksums.

    Proxies are taken from the environment. A host that could not be reached is not
    tried again, so that a closed network costs only seconds.
    """

    def __init__(self) -> None:
        self._unreachable: dict[str, str] = {}

    def fetch(self, release: Release, target: Path) -> None:
        """Write the program of a release to a file.

        Raises:
            ReleaseUnusable: The download failed or the checksum differs. The target does
                not exist then; after a broken archive it may be incomplete.
            OSError: The file cannot be written.
        """
        with self._open(release.checksum_url, _CONNECT_TIMEOUT) as response:
            text = _read(response, release.checksum_url, _MAX_CHECKSUM_FILE).decode(
                "utf-8", "replace"
            )
        expected = release.read_checksum(text).lower()
        digits = 2 * hashlib.new(release.algorithm).digest_size
        # A proxy may answer with an HTML page instead of a checksum.
        if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", expected):
            raise ReleaseUnusable(release.checksum_url, "no checksum found for the file")
        download = target.with_name(f"{target.name}.download")
        try:
            actual = self._download(release, download)
            if actual != expected:
                why = f"the {release.algorithm} checksum is {actual}, expected {expected}"
                raise ReleaseUnusable(release.url, why)
            _unpack(release, download, target)
        finally:
            download.unlink(missing_ok=True)

    def _download(self, release: Release, target: Path) -> str:
        checksum = hashlib.new(release.algorithm)
        with self._open(release.url, _READ_TIMEOUT) as response, target.open("wb") as file:
            while chunk := _read(response, release.url, _CHUNK):
                checksum.update(chunk)
                file.write(chunk)
        return checksum.hexdigest()

    def _open(self, url: str, timeout: float) -> BinaryIO:
        host = urlsplit(url).netloc
        if host in self._unreachable:
            raise ReleaseUnusable(url, self._unreachable[host])
        try:
            # The addresses are constants of this module, all https.
            response: BinaryIO = urllib.request.urlopen(url, timeout=timeout)  # noqa: S310
        except urllib.error.HTTPError as error:
            error.close()
            raise ReleaseUnusable(url, f"HTTP status {error.code}") from error
        except (OSError, HTTPException) as error:
            why = f"cannot be reached: {getattr(error, 'reason', error)}"
            self._unreachable[host] = why
            raise ReleaseUnusable(url, why) from error
        return response


def _read(response: BinaryIO, url: str, size: int) -> bytes:
    try:
        return response.read(size)
    except (OSError, HTTPException) as error:
        raise ReleaseUnusable(url, f"the download was interrupted: {error!r}") from error


def _unpack(release: Release, download: Path, target: Path) -> None:
    if not release.member:
        download.replace(target)
        return
    try:
        with tarfile.open(download) as archive:
            member = archive.extractfile(release.member)
            if member is None:
                raise ReleaseUnusable(release.url, f"{release.member} in the archive is not a file")
            with member, target.open("wb") as file:
                while chunk := member.read(_CHUNK):
                    file.write(chunk)
    except KeyError as error:
        raise ReleaseUnusable(release.url, f"{release.member} is not in the archive") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ReleaseUnusable(release.url, f"the archive is broken: {error}") from error


def unpack_debian_package(
    name: str, directory: Path, environ: Mapping[str, str] | None = None
) -> None:
    """Download a package of Debian and unpack its files into a new directory.

    Any user may do this: nothing is installed, and no file of the system changes. apt-get uses the
    system's sources, and verifies the signature of their lists and the checksum of the package.
    If the lists of the system lack the package, or name a version that is gone, new lists are
    downloaded for this call alone. Required packages are not downloaded.

    Args:
        name: The name of the package.
        directory: Where the files are unpacked; its parent exists.
        environ: Environment variables; by default the environment of the process.

    Raises:
        ReleaseUnusable: apt-get or dpkg-deb is missing, or one of them failed. The directory may
            be incomplete.
        OSError: The directory cannot be written.
    """
    apt = Apt([name], environ)
    with tempfile.TemporaryDirectory(prefix="apt-", dir=directory.parent) as work:
        package = apt.download(Path(work))
        apt.run("dpkg-deb", "--extract", str(package), str(directory))


class Apt:
    """Runs apt-get and dpkg-deb for some packages, without a change of the system.

    Args:
        packages: The names of the packages, for the texts of errors.
        environ: Environment variables; by default the environment of the process.
    """

    _OPTIONS: Final = (
        "--quiet=2",
        "--option=Acquire::Retries=2",
        f"--option=Acquire::http::Timeout={_READ_TIMEOUT:.0f}",
        "--option=APT::Get::AllowUnauthenticated=false",
        "--option=Acquire::AllowInsecureRepositories=false",
        # The user of apt-get's own sandbox cannot write into a private directory.
        "--option=APT::Sandbox::User=root",
    )

    def __init__(self, packages: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        self._packages = tuple(packages)
        self._environ = {**(os.environ if environ is None else environ), "LC_ALL": "C"}

    def download(self, work: Path) -> Path:
        """Download the only package into a directory and return its file.

        Raises:
            ReleaseUnusable: A program failed.
        """
        self.get(work, "download", *self._packages)
        (file,) = work.glob("*.deb")
        return file

    def get(self, work: Path, *arguments: str) -> str:
        """Run apt-get, with new lists of packages if the system's lists do not suffice.

        Args:
            work: A folder to run in, for new lists and for downloads.
            arguments: The arguments of apt-get.

        Raises:
            ReleaseUnusable: apt-get failed with the system's lists and with new lists.
        """
        state, cache = work / "state", work / "cache"
        options = (f"--option=Dir::State={state}", f"--option=Dir::Cache={cache}")
        failed = None
        if not state.exists():
            try:
                return self._get(work, *arguments)
            except ReleaseUnusable:
                (state / "lists" / "partial").mkdir(parents=True)
                (cache / "archives" / "partial").mkdir(parents=True)
                (state / "status").touch()  # no package is installed, as seen from here
            try:
                self._get(work, *options, "update")
            except ReleaseUnusable as error:
                failed = error  # perhaps of a source that does not have these packages
        try:
            return self._get(work, *options, *arguments)
        except ReleaseUnusable as error:
            raise (failed or error) from error

    def _get(self, work: Path, *arguments: str) -> str:
        return self.run("apt-get", *self._OPTIONS, *arguments, directory=work)

    def run(self, program: str, *arguments: str, directory: Path | None = None) -> str:
        """Run one of the programs to its end and return its output.

        Raises:
            ReleaseUnusable: The program is missing, failed, or took longer than five minutes.
        """
        path = shutil.which(program, path=self._environ.get("PATH", os.defpath))
        if path is None:
            raise self._unusable(f"no {program} on the PATH")
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                [path, *arguments],
                cwd=directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                timeout=_APT_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._unusable(f"{program} took longer than {_APT_TIMEOUT:.0f} s") from error
        if done.returncode != 0:
            raise self._unusable(f"{program} failed: {_why(done.stdout.splitlines())}")
        return done.stdout

    def _unusable(self, why: str) -> ReleaseUnusable:
        noun = "package" if len(self._packages) == 1 else "packages"
        return ReleaseUnusable(f"the Debian {noun} {', '.join(self._packages)}", why)


def _why(output: Sequence[str]) -> str:
    """Return the errors in the output of apt-get in one line; without any, its last line."""
    errors = [line.removeprefix("E: ") for line in output if line.startswith("E: ")]
    return "; ".join(errors or output[-1:]) or "it has no output"
