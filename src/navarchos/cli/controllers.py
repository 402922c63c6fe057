"""The systems of this version, and `--controllers`, which selects some of them."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import click

from navarchos.client import Client
from navarchos.errors import ConfigError
from navarchos.operator.systems import System

__all__ = ["DEFAULT", "MODULES", "controllers_option", "flags", "installed", "load", "select"]

F = TypeVar("F", bound=Callable[..., Any])

MODULES: Final = {
    "rollouts": ("navarchos.operator.systems", "ROLLOUTS"),
    "readiness-gates": ("navarchos.operator.readiness_gates", "READINESS_GATES"),
}
"""The module and the variable of each system's declaration, imported when it is selected."""

DEFAULT: Final = ("rollouts",)

_ALL: Final = "*"
_OPTION: Final = "--controllers"


def select(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the selected systems, in the order of `MODULES`.

    As in kube-controller-manager: an entry is a name, `*` for all, or `-name`, which leaves
    one out; of two entries for one name the first one counts, and a name counts more than `*`.

    Args:
        entries: Names, or lists of names with commas between them.

    Raises:
        ConfigError: An entry is not the name of a system of this version, or no system is left.
    """
    named = [name for entry in entries for part in entry.split(",") if (name := part.strip())]
    for entry in named:
        if entry != _ALL and entry.removeprefix("-") not in MODULES:
            known = ", ".join(MODULES)
            raise ConfigError(
                _OPTION, entry, f"this version has no such controllers; it has {known}"
            )
    selected = tuple(name for name in MODULES if _is_selected(name, named))
    if not selected:
        raise ConfigError(_OPTION, ",".join(named), "at least one name must be switched on")
    return selected


def _is_selected(name: str, named: Sequence[str]) -> bool:
    for entry in named:
        if entry.removeprefix("-") == name:
            return entry == name
    return _ALL in named


def load(names: Iterable[str]) -> tuple[System, ...]:
    """Import the declarations of these systems, and of no other."""
    found = []
    for name in names:
        module, variable = MODULES[name]
        found.append(cast("System", getattr(importlib.import_module(module), variable)))
    return tuple(found)


def installed(client: Client) -> tuple[System, ...]:
    """Return the systems, besides rollouts, whose kinds the server serves.

    Raises:
        ClientError: The server did not list its kinds.
    """
    others = load(name for name in MODULES if name not in DEFAULT)
    return tuple(system for system in others if all(map(client.has_kind, system.kinds)))


def flags(names: Iterable[str]) -> tuple[str, ...]:
    """Return the flag that selects these systems; none if they are the default."""
    names = tuple(names)
    return () if names == DEFAULT else (f"{_OPTION}={','.join(names)}",)


def controllers_option(about: str) -> Callable[[F], F]:
    """Add `--controllers` to a command, as a tuple of `System`.

    Args:
        about: The first sentence of the help text.
    """

    def systems(_context: object, _parameter: object, value: tuple[str, ...]) -> Sequence[System]:
        return load(select(value or DEFAULT))

    return click.option(
        _OPTION,
        "systems",
        multiple=True,
        metavar="NAMES",
        callback=systems,
        help=f"{about} Names with commas between them ({', '.join(MODULES)}), * for all, "
        f"-NAME to leave one out. By default {','.join(DEFAULT)}.",
    )
