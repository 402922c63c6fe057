"""Commands that print, write and compare generated manifests."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

__all__ = ["check_or_write", "output_and_check"]

F = TypeVar("F", bound=Callable[..., Any])

_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)
_APPLIED: Final = frozenset({".yaml", ".yml", ".json"})
"""What kubectl reads when it is given a directory."""


def output_and_check(function: F) -> F:
    """Give a command the options `--output DIR` and `--check DIR`."""
    check = click.option(
        "--check",
        type=_DIRECTORY,
        metavar="DIR",
        help="Write nothing; exit 1 when DIR does not hold exactly what would be generated.",
    )
    output = click.option(
        "--output", type=_DIRECTORY, metavar="DIR", help="Write the files into DIR."
    )
    return output(check(function))


def check_or_write(
    texts: Mapping[str, str], *, output: Path | None, check: Path | None, command: str
) -> bool:
    """Do what the two options say.

    Args:
        texts: What is generated, by the name of its file.
        output: Where to write it.
        check: What to compare it with.
        command: The command, for the line that says how to mend a difference.

    Returns:
        False if neither option was given: then the manifests are to be printed.

    Raises:
        UsageError: Both were given.
        Exit: With status 1, when something differs.
    """
    # Imported here: other commands should not pay for it at start.
    from navarchos.crd import differences, write_files

    if output is not None and check is not None:
        raise click.UsageError("--output writes and --check only compares: use one of them")
    if output is not None:
        write_files(output, texts)
    elif check is not None:
        found = [*differences(check, texts), *_strangers(check, texts)]
        _report(found, f"{command} --output {check}")
    return output is not None or check is not None


def _strangers(directory: Path, texts: Mapping[str, str]) -> list[str]:
    """Name the files that kubectl would apply with the others, though nobody made them."""
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    return [
        f"{path} would not be generated; remove it"
        for path in paths
        if path.suffix in _APPLIED and path.name not in texts
    ]


def _report(found: list[str], remedy: str) -> None:
    for line in found:
        click.echo(line, err=True)
    if found:
        click.echo(f"to make them equal: {remedy}", err=True)
        raise click.exceptions.Exit(1)
