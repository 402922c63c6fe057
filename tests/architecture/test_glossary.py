"""The glossary names things that exist, and no word has two meanings in it."""

import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Row(NamedTuple):
    """A row of the glossary."""

    part: str
    term: str
    meaning: str
    in_code: str
    unused: str


def rows() -> list[Row]:
    part, found = "", []
    for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            part = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| term "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 4, f"{line}: a row has four cells"
            found.append(Row(part, *cells))
    return found


ROWS = rows()
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([\w.]+)`", row.in_code)})


def find(name: str) -> object:
    """Return the module, class or function of a dotted name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def test_the_glossary_has_its_three_parts() -> None:
    assert list(dict.fromkeys(row.part for row in ROWS)) == ["Framework", "Operator", "Test kit"]
    assert len(ROWS) > 80


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_the_glossary_exists(name: str) -> None:
    assert find(name) is not None


def test_a_term_has_one_meaning_per_part() -> None:
    terms = [(row.part, row.term) for row in ROWS]
    assert sorted(set(terms)) == sorted(terms)


def test_every_term_has_a_meaning() -> None:
    assert [row.term for row in ROWS if not row.meaning] == []


def test_names_of_code_are_full_names() -> None:
    assert [name for name in NAMES if not name.startswith("navarchos.")] == []
