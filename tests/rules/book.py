"""The rules of docs/spec, the tests that pin them, and the differences between the two."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NOTE", "Book", "Rule", "RulesError", "read_rules", "section"]

NOTE = "note"
"""The level of a rule that no test has to pin."""

_LEVELS = frozenset({"core", "plus", NOTE})
_ID = re.compile(r"([A-Z]+)-[0-9]+")
_HEADING = re.compile(r"#+ +(?P<id>[A-Z]+-[0-9]+)\b(?P<rest>.*)")
_LEVEL = re.compile(r"`\[([a-z]*)\]`")
_NOT_TAKEN = "**Not taken:**"


class RulesError(Exception):
    """The specification cannot be read, or a section does not exist."""


@dataclass(frozen=True)
class Rule:
    """One rule of the specification.

    Attributes:
        id: `ST-07`.
        level: `core`, `plus` or `note`.
        not_taken: Why this project does not follow the rule; empty if it does.
    """

    id: str
    level: str
    not_taken: str = ""


def section(rule: str) -> str:
    """Return the section of a rule: `ST` of `ST-07`."""
    found = _ID.fullmatch(rule)
    if not found:
        raise RulesError(f"{rule!r} is not the id of a rule: an id looks like ST-07")
    return found[1]


def read_rules(folder: Path) -> dict[str, Rule]:
    """Read the rules of all pages of a folder, by id, in the order of the pages.

    A rule is a heading `### ST-07: Title`, a line with its level, and its text:

        ### ST-07: Updates move a key

        `[core]`

        After an update the object is found under its new values.

    A paragraph that begins with `**Not taken:**` states why the rule is not followed.

    Raises:
        RulesError: A heading, a level, a text or a reason is missing or malformed, or an
            id has two headings.
    """
    rules: dict[str, Rule] = {}
    for path in sorted(folder.glob("*.md")):
        for where, heading, body in _headings(path):
            rule = _rule(where, heading, body)
            if rule.id in rules:
                raise RulesError(f"{where}: {rule.id} has two headings")
            rules[rule.id] = rule
    if not rules:
        raise RulesError(f"{folder} has no rules")
    return rules


def _headings(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Return each heading of a rule with its place and the lines below it."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    starts = [number for number, line in enumerate(lines) if line.startswith("#")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if _HEADING.fullmatch(lines[start]):
            yield f"{path.name}:{start + 1}", lines[start], lines[start + 1 : end]


def _rule(where: str, heading: str, body: list[str]) -> Rule:
    found = _HEADING.fullmatch(heading)
    assert found is not None, "a heading of a rule"
    name = found["id"]
    if not heading.startswith("### ") or not re.fullmatch(r": \S.*", found["rest"]):
        raise RulesError(f"{where}: the heading of {name} must look like '### {name}: Title'")
    paragraphs = "\n".join(body).strip().split("\n\n")
    level = _LEVEL.fullmatch(paragraphs[0])
    if level is None or level[1] not in _LEVELS:
        levels = ", ".join(f"`[{level}]`" for level in sorted(_LEVELS))
        raise RulesError(f"{where}: the line below the heading of {name} must be one of {levels}")
    text = [paragraph for paragraph in paragraphs[1:] if not paragraph.startswith(_NOT_TAKEN)]
    if not any(paragraph.strip() for paragraph in text):
        raise RulesError(f"{where}: {name} has no text")
    reasons = [p.removeprefix(_NOT_TAKEN).strip() for p in paragraphs if p.startswith(_NOT_TAKEN)]
    if reasons and not all(reasons):
        raise RulesError(f"{where}: {name} is not taken, without a reason")
    return Rule(name, level[1], " ".join(reasons))


@dataclass(frozen=True)
class Book:
    """The rules and the tests that pin them.

    Attributes:
        rules: All rules, by id.
        pins: The tests that pin a rule, by id.
    """

    rules: Mapping[str, Rule]
    pins: Mapping[str, Collection[str]]

    def sections(self) -> list[str]:
        """Return all sections, in the order of the rules."""
        return list(dict.fromkeys(map(section, self.rules)))

    def rules_of(self, name: str) -> list[Rule]:
        """Return the rules of one section.

        Raises:
            RulesError: The section does not exist.
        """
        found = [rule for rule in self.rules.values() if section(rule.id) == name]
        if not found:
            raise RulesError(f"no section {name!r}: there are {', '.join(self.sections())}")
        return found

    def open(self, name: str) -> list[Rule]:
        """Return the rules of one section that are taken and not pinned."""
        return [r for r in self.rules_of(name) if r.id not in self.pins and not r.not_taken]

    def mistakes(self) -> list[str]:
        """Return the contradictions between rules and pins, in any section, a line each."""
        unknown = [
            f"{rule} is pinned by {min(self.pins[rule])}, but docs/spec has no such rule"
            for rule in sorted(set(self.pins) - set(self.rules))
        ]
        return unknown + [
            f"{rule.id} is not taken, but pinned by {min(self.pins[rule.id])}"
            for rule in self.rules.values()
            if rule.not_taken and rule.id in self.pins
        ]

    def line(self, name: str) -> str:
        """Return the counts of one section as a line."""
        rules = self.rules_of(name)
        pinned = sum(rule.id in self.pins for rule in rules)
        not_taken = sum(bool(rule.not_taken) for rule in rules)
        counts = f"{name:<3} {len(rules):>3} rules, {pinned:>3} pinned, {not_taken:>2} not taken"
        left = [f"{rule.id} {rule.level}" for rule in self.open(name)]
        return f"{counts}, {len(left):>2} not pinned{': ' if left else ''}{', '.join(left)}"

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the ids of the rules of some sections that a test should pin and none does."""
        return [r.id for name in names for r in self.open(name) if r.level != NOTE]
