"""The project's own image, built from its Dockerfile on a base of Debian packages."""

import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from navarchos.testing.nodes.chroot import CannotBuild, check_machine
from navarchos.testing.nodes.images import read_index
from navarchos.testing.nodes.testimages import TestImages, deployed_image

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Built:
    """An archive, its image's configuration, and the files of each layer."""

    archive: Path
    config: dict[str, Any]
    layers: list[dict[str, tarfile.TarInfo]]


def blob(tar: tarfile.TarFile, digest: str) -> Any:
    content = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert content is not None
    return content


@pytest.fixture(scope="session")
def built() -> Built:
    try:
        check_machine()
    except CannotBuild as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    archive = TestImages(report=print).project(ROOT, deployed_image(ROOT))
    with tarfile.open(archive) as tar:
        (digest,) = read_index(archive).values()
        manifest = json.load(blob(tar, digest))
        config = json.load(blob(tar, manifest["config"]["digest"]))
        layers = []
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(tar, layer["digest"])) as files:
                layers.append({member.name: member for member in files.getmembers()})
    return Built(archive, config, layers)


def test_it_runs_the_manager_as_a_user_with_a_number(built: Built) -> None:
    config = built.config["config"]
    assert config["Entrypoint"] == ["navarchos", "manager"]
    assert "Cmd" not in config
    assert config["User"] == "65532:65532"
    assert config["ExposedPorts"] == {"8080/tcp": {}, "8081/tcp": {}}
    assert any(line.startswith("PATH=/opt/navarchos/bin:/usr") for line in config["Env"])
    assert list(read_index(built.archive)) == [deployed_image(ROOT)]


def test_nothing_of_the_machine_and_of_the_build_is_in_it(built: Built) -> None:
    base, *others = built.layers
    added = {name for layer in others for name in layer}
    assert {name for name in added if not name.startswith("opt/navarchos")} == {"opt"}
    settings = {"etc/resolv.conf", "etc/hosts", "etc/hostname", "etc/pip.conf", "etc/machine-id"}
    assert settings & base.keys() == set()
    left = ("var/log/", "tmp/", "run/", "root/.cache/")
    assert not [name for name in base if name.startswith(left) and not base[name].isdir()]
    variables = {line.partition("=")[0] for line in built.config["config"]["Env"]}
    assert variables == {"PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}


def test_a_change_of_the_sources_changes_small_layers_only(built: Built) -> None:
    *large, sources, start = built.layers
    packages = "/site-packages/navarchos/"
    assert not any(packages in name for layer in large for name in layer)
    assert any(name.endswith(f"{packages}clock.py") for name in sources)
    assert sum(file.size for file in sources.values()) < 20_000_000
    # The program was started once as the image's user, and wrote nothing.
    assert start == {}


def test_python_does_not_compile_at_each_start(built: Built) -> None:
    """Compiled modules name the checksum of their source: layers have no times."""
    checked = 0
    with tarfile.open(built.archive) as tar:
        for digest in built.config["rootfs"]["diff_ids"]:
            with tarfile.open(fileobj=blob(tar, digest)) as files:
                for member in files:
                    assert member.mtime == 0
                    if member.name.endswith(".pyc") and member.isreg():
                        content = files.extractfile(member)
                        assert content is not None
                        assert content.read(8)[4] == 3, member.name
                        checked += 1
    names = {name for layer in built.layers for name in layer}
    sources = {name for name in names if "/navarchos/" in name and name.endswith(".py")}
    stems = {Path(name).name.partition(".")[0] for name in names if name.endswith(".pyc")}
    assert {Path(name).stem for name in sources} <= stems
    assert checked > 2000


@pytest.mark.skipif(
    "NAVARCHOS_SEEDS" not in os.environ, reason="takes two minutes; make nightly runs it"
)
def test_a_build_from_nothing_gives_the_same_bytes(built: Built, tmp_path: Path) -> None:
    """Another base, other downloads and another time make no difference."""
    archive = TestImages(tmp_path, report=print).project(ROOT, deployed_image(ROOT))
    assert read_index(archive) == read_index(built.archive)
