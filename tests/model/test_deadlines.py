"""The operator reacts to users within deadlines, in virtual seconds."""

from collections.abc import Mapping
from typing import Final

import pytest
from tests.model.deadlines import DEADLINES
from tests.model.programs import play

LONGEST: Final[Mapping[str, float]] = {
    "a node is deleted": 30.0,  # user need A25
    "a rollout is deleted": 60.0,  # A24
    "a rollout is paused": 5.0,  # OP-07, A4
    "a budget is relaxed": 5.0,
}
"""Deadlines by the user's action."""


def test_every_deadline_is_held_to_a_promise() -> None:
    assert LONGEST.keys() == DEADLINES.keys()


@pytest.mark.rule("OP-07")
@pytest.mark.parametrize("what", LONGEST)
def test_the_operator_obeys_within_its_deadline(what: str) -> None:
    status, said = play("--deadline", what)
    assert status == 0, said
    assert float(said.split()[-2]) <= LONGEST[what]
