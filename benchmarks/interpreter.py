"""Choose the Python interpreter in which measured programs run."""

import sys
from pathlib import Path
from typing import Final

__all__ = ["interpreter_path", "is_as_installed"]

_AS_INSTALLED: Final = Path(__file__).parents[1] / ".venv-bench" / "bin" / "python"


def is_as_installed() -> bool:
    """Return whether the environment that `make bench` creates exists."""
    return _AS_INSTALLED.exists()


def interpreter_path() -> str:
    """Return the interpreter of that environment if it exists, otherwise the present one.

    The difference matters: structlog loads `rich` where another package has installed it,
    and import-linter does.
    """
    return str(_AS_INSTALLED) if is_as_installed() else sys.executable
