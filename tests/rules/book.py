"""The rules that are known, those that are not taken, and what is left to prove."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CORE", "Book", "RulesError", "read_ids", "read_not_taken", "section"]

CORE = "core"

_LEVELS = frozenset({CORE, "plus", "note"})
_ID = re.compile(r"([A-Z]+)-[0-9]+")


class RulesError(Exception):
    """A list of rules contradicts itself, or names what is not there."""


def section(rule: str) -> str:
    """`ST` of `ST-07`."""
    found = _ID.fullmatch(rule)
    if not found:
        raise RulesError(f"{rule!r} is no id of a rule: it looks like ST-07")
    return found[1]


def read_ids(path: Path) -> dict[str, str]:
    """The level of each rule, in the order of the file: `ST-07 core`, a line each."""
    levels: dict[str, str] = {}
    for number, line in _lines(path):
        if not line or line.startswith("#"):
            continue
        rule, _, level = line.partition(" ")
        section(rule)
        if level not in _LEVELS:
            raise RulesError(f"{path.name}:{number}: {level!r} is none of {sorted(_LEVELS)}")
        _keep(levels, rule, level, f"{path.name}:{number}")
    return levels


def read_not_taken(path: Path) -> dict[str, str]:
    """The reason of each rule that is not taken: the rows `| ST-16 | reason |`."""
    reasons: dict[str, str] = {}
    for number, line in _lines(path):
        cells = [cell.strip() for cell in line.strip("|").split("|", 1)]
        if not line.startswith("|") or not _ID.fullmatch(cells[0]):
            continue
        if len(cells) < 2 or not cells[1]:
            raise RulesError(f"{path.name}:{number}: {cells[0]} has no reason")
        _keep(reasons, cells[0], cells[1], f"{path.name}:{number}")
    return reasons


def _lines(path: Path) -> Iterable[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    return enumerate((line.strip() for line in text.splitlines()), start=1)


def _keep(kept: dict[str, str], rule: str, value: str, where: str) -> None:
    if rule in kept:
        raise RulesError(f"{where}: {rule} stands here twice")
    kept[rule] = value


@dataclass(frozen=True)
class Book:
    """What is known of every rule.

    Attributes:
        levels: of every rule that there is.
        not_taken: the reasons of those that are left out on purpose.
        pins: the tests of those that are pinned.
    """

    levels: Mapping[str, str]
    not_taken: Mapping[str, str]
    pins: Mapping[str, Collection[str]]

    def sections(self) -> list[str]:
        """All of them, in the order of the list."""
        return list(dict.fromkeys(map(section, self.levels)))

    def rules(self, name: str) -> list[str]:
        """Those of one section; an unknown one is an error."""
        found = [rule for rule in self.levels if section(rule) == name]
        if not found:
            raise RulesError(f"no section {name!r}: there are {', '.join(self.sections())}")
        return found

    def open(self, name: str) -> list[str]:
        """Those of one section that are neither pinned nor left out on purpose."""
        return [r for r in self.rules(name) if r not in self.pins and r not in self.not_taken]

    def mistakes(self) -> list[str]:
        """What contradicts itself, in any section: a line each."""
        unknown = [
            f"{rule} is no known rule, but pinned by {min(self.pins[rule])}"
            for rule in sorted(set(self.pins) - set(self.levels))
        ]
        unknown += [
            f"{rule} is no known rule, but listed as not taken"
            for rule in sorted(set(self.not_taken) - set(self.levels))
        ]
        return unknown + [
            f"{rule} is listed as not taken, but pinned by {min(self.pins[rule])}"
            for rule in sorted(set(self.pins) & set(self.not_taken))
        ]

    def line(self, name: str) -> str:
        """One section in one line."""
        rules = self.rules(name)
        pinned = sum(rule in self.pins for rule in rules)
        left_out = sum(rule in self.not_taken for rule in rules)
        counts = f"{name:<3} {len(rules):>3} rules, {pinned:>3} pinned, {left_out:>2} not taken"
        left = [f"{rule} {self.levels[rule]}" for rule in self.open(name)]
        return f"{counts}, {len(left):>2} not pinned{': ' if left else ''}{', '.join(left)}"

    def missing(self, names: Iterable[str]) -> list[str]:
        """The [core] rules of these sections that are neither pinned nor left out."""
        return [r for name in names for r in self.open(name) if self.levels[r] == CORE]
