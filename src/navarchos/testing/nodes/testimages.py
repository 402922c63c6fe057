"""The images that containers on real nodes run, as OCI archives in the user's cache.

Nodes have no registry. Their containers run a shell with the usual tools, and the project's own
image as its Dockerfile makes it; each pod needs the pause image besides.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import click
import yaml

from navarchos.errors import NavarchosError
from navarchos.testing.controlplane.binaries import Cache, user_cache
from navarchos.testing.controlplane.releases import Apt
from navarchos.testing.nodes.builds import ImageBuilder
from navarchos.testing.nodes.debian import obtain_base
from navarchos.testing.nodes.images import (
    Image,
    ImageConfig,
    ImageError,
    machine_architecture,
    pack_layer,
    write_archive,
)
from navarchos.testing.nodes.layers import key_of

__all__ = ["BUSYBOX", "PAUSE", "TestImages", "deployed_image", "main"]

BUSYBOX: Final = "navarchos.test/busybox:1"
"""A shell and the usual tools, each under its own name."""

PAUSE: Final = "navarchos.test/pause:1"
"""The program that holds the namespaces of a pod."""

_RECIPE: Final = 1
"""A part of the archives' names; another number after each change of how they are made."""

_VERSION: Final = "org.opencontainers.image.version"
_ARCHIVES_KEPT: Final = 2
_APPLETS_TIMEOUT: Final = 10.0
_FILES: Final = {
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
}


class TestImages:
    """Makes the images of tests, and keeps them until their inputs change.

    Processes that make images at the same time wait for each other.

    Args:
        directory: The cache folder; by default below the user's cache folder.
        report: Receives progress messages for the user, one line each.
    """

    __test__ = False  # pytest takes a class of this name for a test

    def __init__(
        self, directory: Path | None = None, *, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self.directory = directory if directory is not None else user_cache() / "images"
        self._cache = Cache(self.directory)
        self._report = report

    def pause(self) -> Path:
        """Return the archive of the image `PAUSE`.

        Its program is catatonit of Debian: it waits for a signal, and removes processes that other
        containers of the pod leave behind. It is statically linked, so no compiler is needed.

        Raises:
            ReleaseUnusable: The package cannot be downloaded.
            OSError: The cache cannot be written.
        """
        config = ImageConfig(entrypoint=("/pause", "-P"), user="65535:65535")
        return self._of_package("catatonit", PAUSE, config, _make_pause)

    def busybox(self) -> Path:
        """Return the archive of the image `BUSYBOX`.

        Raises:
            ReleaseUnusable: The package cannot be downloaded.
            ImageError: The program does not list its tools.
            OSError: The cache cannot be written.
        """
        config = ImageConfig({"PATH": "/bin"}, command=("sh",))
        return self._of_package("busybox-static", BUSYBOX, config, _make_busybox)

    def project(self, checkout: Path, name: str) -> Path:
        """Return the archive of the project's image, built if an input has changed.

        Inputs are the Dockerfile, the files that it copies, and the packages of its base. The base
        is made of Debian's packages and takes the place of the image of Python that the Dockerfile
        names; its Python has the version of that Debian release. Package indexes are reached as
        this machine reaches them.

        Args:
            checkout: The folder of the Dockerfile.
            name: The name of the image: see `deployed_image`.

        Raises:
            ReleaseUnusable: Packages of Debian cannot be downloaded.
            ImageError: The image cannot be built: see `ImageBuilder.build`.
            OSError: The Dockerfile cannot be read, or the cache cannot be written.
        """
        base = obtain_base(self.directory / "bases", self._report)
        version = base.python_version
        builder = ImageBuilder(
            checkout,
            bases={f"python:{version}-slim": base},
            directory=self.directory / "layers",
            arguments={"PYTHON_VERSION": version},
            report=self._report,
        )
        image = builder.build((checkout / "Dockerfile").read_text(encoding="utf-8"))
        digests = [layer.digest for layer in image.layers]
        steps = [(each.step, each.has_layer) for each in image.history]
        key = key_of(name, image.architecture, digests, image.config.as_json(), steps)
        with self._cache.locked(self._waiting):
            target = self._cache.path(f"project-{key}.tar")
            if not target.exists():
                self._report("project: writing the archive")
                with self._cache.staging() as work:
                    write_archive(image, name, work / "archive.tar")
                    self._cache.install(work / "archive.tar", target.name)
            os.utime(target)  # the time of the last use
            old = sorted(self.directory.glob("project-*.tar"), key=_last_use)[:-_ARCHIVES_KEPT]
            for archive in old:
                archive.unlink()
        return target

    def _of_package(
        self, program: str, name: str, config: ImageConfig, make: Callable[[Path, Path], None]
    ) -> Path:
        """Return the archive of an image with a program of the Debian package of its name.

        An archive with any version of the package will do: tests do not depend on it.
        """
        key = key_of(_RECIPE, name, config.as_json(), machine_architecture())
        with self._cache.locked(self._waiting), self._cache.staging() as work:
            found = sorted(self.directory.glob(f"{program}_{key}_*.tar"))
            if found:
                return found[-1]
            self._report(f"{program}: fetching the package of Debian")
            apt = Apt([program])
            package = apt.download(work)
            apt.run("dpkg-deb", "--extract", str(package), str(work / "package"))
            make(work / "package", work / "files")
            layer = pack_layer(work / "files", work / "layer.tar", owner=(0, 0))
            # NAME_VERSION_ARCHITECTURE.deb, with some characters as in an address
            version = unquote(package.name.split("_")[1])
            labelled = replace(config, labels={_VERSION: version})
            without_epoch = version.rpartition(":")[2]
            archive = work / "archive.tar"
            write_archive(Image((layer,), labelled), name, archive)
            return self._cache.install(archive, f"{program}_{key}_{without_epoch}.tar")

    def _waiting(self) -> None:
        self._report("waiting for another process that makes images")


def deployed_image(checkout: Path) -> str:
    """Return the name of the image in the Deployment of `config/deploy`.

    Raises:
        ImageError: No Deployment is there.
        OSError: The manifests cannot be read.
    """
    for path in sorted((checkout / "config" / "deploy").glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if manifest and manifest["kind"] == "Deployment":
                return str(manifest["spec"]["template"]["spec"]["containers"][0]["image"])
    raise ImageError(f"{checkout / 'config' / 'deploy'} has no Deployment")


def _last_use(path: Path) -> float:
    return path.stat().st_mtime


def _make_pause(package: Path, files: Path) -> None:
    files.mkdir()
    _install(package / "usr/bin/catatonit", files / "pause")


def _make_busybox(package: Path, files: Path) -> None:
    for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "usr"):
        (files / folder).mkdir(parents=True)
        (files / folder).chmod(0o1777 if folder == "tmp" else 0o755)
    (files / "usr" / "bin").symlink_to("/bin")  # scripts begin with /usr/bin/env
    for name, text in _FILES.items():
        (files / name).write_text(text, encoding="utf-8")
        (files / name).chmod(0o644)
    program = files / "bin" / "busybox"
    _install(package / "bin" / "busybox", program)
    try:
        done = subprocess.run(  # noqa: S603 - a program of Debian
            [str(program), "--list"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=_APPLETS_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ImageError(f"busybox does not list its tools: {error}") from error
    for tool in done.stdout.split():
        if tool != "busybox":
            (program.parent / tool).symlink_to("busybox")


def _install(source: Path, target: Path) -> None:
    if not source.is_file():
        raise ImageError(f"the package has no file {source.name}")
    shutil.copyfile(source, target)
    target.chmod(0o755)


_IMAGES: Final = ("pause", "busybox", "project")


@click.command()
@click.argument("names", metavar="[IMAGE]...", nargs=-1, type=click.Choice(_IMAGES))
@click.option(
    "--checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The folder with the Dockerfile. Default: the current one.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for images. Default: below the user's cache folder.",
)
def main(names: tuple[str, ...], checkout: Path, cache: Path | None) -> None:
    """Make the images of containers on real nodes, or find them in the cache.

    IMAGE is pause, busybox or project; all by default. The project's image is built from its
    Dockerfile on a base of Debian packages, which needs root and takes a minute the first time.
    Prints the path of each OCI archive; progress goes to standard error.
    """
    images = TestImages(cache, report=lambda line: click.echo(line, err=True))
    makers: dict[str, Callable[[], Path]] = {
        "pause": images.pause,
        "busybox": images.busybox,
        "project": lambda: images.project(checkout, deployed_image(checkout)),
    }
    try:
        for name in names or _IMAGES:
            click.echo(makers[name]())
    except (NavarchosError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m navarchos.testing.nodes.testimages")
