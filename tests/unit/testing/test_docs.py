"""The examples of docs/testing.md do what they say."""

import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def functions() -> dict[str, Any]:
    """Return the tests of the document, beside the controller that they are about."""
    names = runpy.run_path(str(ROOT / "examples" / "02_label_ready_nodes.py"))
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    for block in EXAMPLE.findall(text):
        exec(compile(block, "docs/testing.md", "exec"), names)
    return {name: found for name, found in names.items() if name.startswith("test_")}


@pytest.mark.parametrize("name", sorted(functions()))
def test_the_documents_examples_pass(name: str, request: pytest.FixtureRequest) -> None:
    example = functions()[name]
    fixtures = inspect.signature(example).parameters
    example(**{fixture: request.getfixturevalue(fixture) for fixture in fixtures})
