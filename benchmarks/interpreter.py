"""The Python that measured programs run in."""

import sys
from pathlib import Path
from typing import Final

__all__ = ["interpreter_path", "is_as_installed"]

_AS_INSTALLED: Final = Path(__file__).parents[1] / ".venv-bench" / "bin" / "python"


def is_as_installed() -> bool:
    """Whether there is an environment with what users install, as `make bench` makes it."""
    return _AS_INSTALLED.exists()


def interpreter_path() -> str:
    """Return the interpreter of that environment, or else of this one.

    The difference is not small: structlog loads `rich` where some other package has
    brought it along, as one that checks our imports does.
    """
    return str(_AS_INSTALLED) if is_as_installed() else sys.executable
