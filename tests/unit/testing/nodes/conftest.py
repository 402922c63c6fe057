"""A root file system for builds, made of this machine's programs."""

import os
import subprocess
from pathlib import Path

import pytest

from navarchos.testing.nodes.chroot import CannotBuild, MachineSettings, check_machine
from navarchos.testing.nodes.debian import DebianBase
from navarchos.testing.nodes.images import pack_layer


@pytest.fixture(scope="session")
def _can_mount() -> None:
    """Skip where this user cannot mount file systems; CI has to be able to do it."""
    try:
        check_machine()
        subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "true"], check=True, capture_output=True
        )
    except (CannotBuild, OSError, subprocess.SubprocessError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"this user cannot mount file systems: {error}")


@pytest.fixture
def settings() -> MachineSettings:
    """This machine's programs, in place of a base that has its own."""
    folders = (Path(name) for name in ("/usr", "/bin", "/lib", "/lib64"))
    return MachineSettings(files=tuple(path for path in folders if path.is_dir()))


@pytest.fixture
def base(tmp_path: Path, _can_mount: None) -> DebianBase:
    """A base with a few files, called `test:1` in Dockerfiles."""
    root = tmp_path / "base" / "root"
    for name in ("etc", "opt/old", "srv"):
        (root / name).mkdir(parents=True)
    (root / "etc" / "release").write_text("base\n")
    (root / "opt" / "old" / "file").write_text("old\n")
    (root / "link").symlink_to("/srv")
    (root / "srv").chmod(0o775)
    layer = pack_layer(root, tmp_path / "base" / "layer.tar")
    return DebianBase("test", root, layer, {"python3": "3.11.2-1+b1"})
