"""Runs of the model as programs of their own: the order of sets is a part of a run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["play"]

_ROOT: Final = Path(__file__).parents[2]


def play(*arguments: str) -> tuple[int, str]:
    """Play runs, each argument one of the command's; return its status, and what it said."""
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
    # What this process has imported is what is tested, wherever it was installed.
    return os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
