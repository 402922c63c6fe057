"""The example of a test in the README, on a real control plane."""

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[2] / "README.md"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_example_on_a_real_control_plane_passes() -> None:
    blocks = PYTHON.findall(README.read_text(encoding="utf-8"))
    (example,) = [block for block in blocks if "ControlPlane()" in block]
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    names["test_on_a_real_control_plane"]()
