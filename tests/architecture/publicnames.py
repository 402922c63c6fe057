"""The public names of the project: `python -m tests.architecture.publicnames` writes the list.

Public is what a package's `__init__` lists in `__all__`, and what a module directly below
`navarchos` lists. All other names may change at any time.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import navarchos

__all__ = ["LIST", "public_names"]

LIST = Path(__file__).parents[2] / "docs" / "api" / "public-names.txt"

# The operator and the command line are programs: their objects, flags and output are public,
# and their Python modules are not.
_PROGRAMS = frozenset({"navarchos.operator", "navarchos.cli"})


def public_names() -> str:
    """Return all public names, one per line, in the order of their modules."""
    lines = [f"navarchos.{name}" for name in sorted(navarchos.__all__)]
    for module in sorted(_modules()):
        listed = getattr(importlib.import_module(module), "__all__", ())
        lines += [f"{module}.{name}" for name in sorted(listed)]
    return "\n".join(lines) + "\n"


def _modules() -> Iterator[str]:
    for info in pkgutil.walk_packages(navarchos.__path__, "navarchos."):
        is_private = any(part.startswith("_") for part in info.name.split("."))
        is_program = any(f"{info.name}.".startswith(f"{name}.") for name in _PROGRAMS)
        is_top = info.name.count(".") == 1
        if not is_private and not is_program and (info.ispkg or is_top):
            yield info.name


if __name__ == "__main__":
    LIST.parent.mkdir(exist_ok=True)
    LIST.write_text(public_names(), encoding="utf-8")
