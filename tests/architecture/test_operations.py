"""docs/operations.md has an entry for every state that a user can see."""

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from navarchos.cli.errors import ExitStatus
from navarchos.drain import EvictionOutcome, PodReason
from navarchos.operator.api.v1alpha1 import DrainPhase, ReplacementPhase, RolloutPhase, Step
from navarchos.operator.drains.status import DrainReason
from navarchos.operator.events import EventReason
from navarchos.operator.preflight import FindingReason as PlanReason
from navarchos.operator.replacements.waiting import WaitReason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
OPERATOR = ROOT / "src" / "navarchos" / "operator"


def part(title: str) -> set[str]:
    """Return the first cells of the tables under a heading and under its subheadings."""
    level = title.split(maxsplit=1)[0]
    end = rf"(?=^#{{1,{len(level)}}} |\Z)"
    found = re.search(rf"^{re.escape(title)}$(.*?){end}", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {title!r}"
    return set(re.findall(r"^\| `?([\w]+)`? \|", found[1], re.MULTILINE))


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("### NodeRollout", RolloutPhase),
        ("### NodeReplacement", [*ReplacementPhase, *Step]),
        ("### NodeDrain", DrainPhase),
        ("## Conditions and their reasons", DrainReason),
        ("### Reasons to wait", WaitReason),
        ("## Why a pod stays", [*PodReason, *(a for a in EvictionOutcome if not a.is_done)]),
        ("## Events", EventReason),
        ("## Commands", [str(status.value) for status in ExitStatus]),
    ],
)
def test_every_phase_and_reason_has_its_entry(title: str, words: list[StrEnum]) -> None:
    assert {str(word) for word in words} - part(title) == set()


def test_every_finding_of_a_plan_has_its_entry() -> None:
    everywhere = part("## Why a pod stays") | part("## Conditions and their reasons")
    assert {str(reason) for reason in PlanReason} - everywhere == set()


def test_every_word_in_a_condition_has_its_entry() -> None:
    """Conditions and reasons outside of enums are literals in the modules that set them."""
    words = {word for folder in ("rollouts", "replacements") for word in literals(folder)}
    assert len(words) > 20
    assert words - part("## Conditions and their reasons") == set()


def literals(folder: str) -> Iterator[str]:
    for path in sorted((OPERATOR / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {id(node) for part in names_of_code(tree) for node in ast.walk(part)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in names:
                word = node.value
                if isinstance(word, str) and WORD.fullmatch(word) and word not in NO_REASONS:
                    yield word


def names_of_code(tree: ast.Module) -> Iterator[ast.AST]:
    """Return the parts of a module in which literals are names: `__all__` and annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield node
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            yield node.returns


WORD = re.compile(r"([A-Z][a-z]+)+")
NO_REASONS = {"True", "False", "NodeRollout", "Pod"}
"""Words of this form that are statuses and kinds."""
