"""Play runs of the model in separate processes, because the order of sets influences a run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["play"]

_ROOT: Final = Path(__file__).parents[2]


def play(*arguments: str) -> tuple[int, str]:
    """Play runs with these arguments of the command; return its status and output."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.model", *arguments],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": _path()},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def _path() -> str:
    # Test the package that this process has imported, wherever it is installed.
    return os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
