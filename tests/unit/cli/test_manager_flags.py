"""The README lists every flag of `navarchos manager` with its default."""

import re
from pathlib import Path

import click

from navarchos.cli.manager import manager

README = Path(__file__).parents[3] / "README.md"
ROW = re.compile(r"^\| (?P<flags>`--[^|]*) \|(?P<defaults>[^|]*)\|", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def visible() -> dict[str, click.Option]:
    options = (each for each in manager.params if isinstance(each, click.Option))
    return {option.opts[0]: option for option in options if not option.hidden}


def documented() -> dict[str, str]:
    """Return the documented default of each flag; an empty string if there is none."""
    text = README.read_text(encoding="utf-8").partition("## Flags of `navarchos manager`")[2]
    table = text.partition("\n## ")[0]
    found: dict[str, str] = {}
    for row in ROW.finditer(table):
        flags = CODE.findall(row["flags"])
        defaults = [cell.strip().strip("`") for cell in row["defaults"].split(",")]
        defaults += [""] * (len(flags) - len(defaults))
        found.update(zip(flags, defaults, strict=True))
    return found


def test_every_visible_flag_is_in_the_readme() -> None:
    assert set(documented()) == set(visible())


def test_the_readme_has_the_default_of_each_flag() -> None:
    shown = {flag: option for flag, option in visible().items() if option.show_default}
    assert {flag: str(option.default) for flag, option in shown.items()} == {
        flag: documented()[flag] for flag in shown
    }


def test_every_visible_flag_has_a_help_text() -> None:
    assert [name for name, option in visible().items() if not option.help] == []
