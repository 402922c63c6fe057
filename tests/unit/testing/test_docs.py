"""The examples of docs/testing.md, run as another team's tests: pytest alone, and what they say."""

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


def sections() -> Iterator[list[str]]:
    """Yield the examples under each heading: what one of them defines is for that heading alone."""
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    for section in re.split(r"^##+ ", text, flags=re.MULTILINE):
        yield BLOCK.findall(section)


def test_the_documents_examples_pass_as_another_teams_tests(tmp_path: Path) -> None:
    wanted = 0
    # A name stays imported from the first example that shows where it comes from.
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


def test_ten_lines_are_ten_lines() -> None:
    first = next(blocks for blocks in sections() if blocks)
    plugin, example = first[:2]
    assert "pytest_plugins" in plugin
    assert len([line for line in (plugin + example).splitlines() if line.strip()]) <= 10
