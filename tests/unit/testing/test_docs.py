"""The examples of docs/testing run as the tests of another project, with its own imports."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONTROLLER = ROOT / "examples" / "02_label_ready_nodes.py"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
TESTS = re.compile(r"^def test_", re.MULTILINE)
IMPORTS = re.compile(r"^(?:import|from) .*$", re.MULTILINE)


PAGES = sorted((ROOT / "docs" / "testing").glob("*.md"))


def sections() -> Iterator[list[str]]:
    """Yield the examples of each section; definitions are valid for one section."""
    for page in PAGES:
        for section in re.split(r"^##+ ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            yield BLOCK.findall(section)


def test_the_examples_pass_as_the_tests_of_another_project(tmp_path: Path) -> None:
    wanted = 0
    # The pages are read in order; an import of one example is valid for all later ones.
    known = "from label_ready_nodes import *\n"
    (tmp_path / "label_ready_nodes.py").write_bytes(CONTROLLER.read_bytes())
    for number, blocks in enumerate(sections()):
        plugins = [block for block in blocks if "pytest_plugins" in block]
        for block in plugins:
            (tmp_path / "conftest.py").write_text(block, encoding="utf-8")
        module = "\n".join(block for block in blocks if block not in plugins)
        (tmp_path / f"test_{number}.py").write_text(known + module, encoding="utf-8")
        known += "".join(f"{line}\n" for line in IMPORTS.findall(module))
        wanted += len(TESTS.findall(module))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert wanted > 5
    assert f"{wanted} passed" in done.stdout


def test_the_first_example_has_ten_lines() -> None:
    first = next(blocks for blocks in sections() if blocks)
    plugin, example = first[:2]
    assert "pytest_plugins" in plugin
    assert len([line for line in (plugin + example).splitlines() if line.strip()]) <= 10
