"""The distributions contain the files that commands read."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools")

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.name for path in (ROOT / "src/navarchos/cli/examples").glob("*.yml")}
SETUP = "import setuptools; setuptools.setup()"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the files from which distributions are built: building writes beside them."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def build(sources: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SETUP, "-q", *command],
        cwd=sources,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.rule("NP-53")
def test_the_bundled_examples_are_installed(sources: Path) -> None:
    build(sources, "build_py", "--build-lib", "installed")
    package = sources / "installed" / "navarchos"
    assert {path.name for path in (package / "cli/examples").iterdir()} == EXAMPLES
    assert (package / "py.typed").is_file()


def test_the_bundled_examples_are_in_the_source_distribution(sources: Path) -> None:
    build(sources, "sdist", "--dist-dir", "dist")
    (archive,) = (sources / "dist").iterdir()
    with tarfile.open(archive) as found:
        names = {name.partition("/")[2] for name in found.getnames()}
    wanted = {f"src/navarchos/cli/examples/{name}" for name in EXAMPLES}
    assert wanted <= names
    assert "src/navarchos/py.typed" in names
