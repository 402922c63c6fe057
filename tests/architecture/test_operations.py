"""docs/operations.md has an entry for every state that a user can see."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from navarchos.cli.errors import ExitStatus
from navarchos.drain import EvictionOutcome, PodReason
from navarchos.operator.api.v1alpha1 import DrainPhase, ReplacementPhase, RolloutPhase, Step
from navarchos.operator.preflight import FindingReason as PlanReason
from navarchos.operator.reasons import (
    ConditionType,
    CordonReason,
    EventReason,
    PrepareReason,
    Reason,
    WaitReason,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


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
        (
            "## Conditions and their reasons",
            [*ConditionType, *Reason, *CordonReason, *PrepareReason],
        ),
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
