"""Designed runs of slots, gates, windows, waves and actions."""

import pytest
from tests.model.designs import DESIGNS
from tests.model.designs_actions import ACTION_DESIGNS
from tests.model.programs import play


@pytest.mark.rule("IG-71")
@pytest.mark.rule("IG-73")
@pytest.mark.rule("IG-74")
@pytest.mark.rule("NP-03")
@pytest.mark.rule("NP-04")
@pytest.mark.rule("NP-05")
@pytest.mark.rule("NP-12")
@pytest.mark.rule("NP-21")
@pytest.mark.rule("NP-30")
@pytest.mark.rule("NP-40")
@pytest.mark.rule("NP-41")
@pytest.mark.rule("NP-42")
@pytest.mark.rule("NP-43")
@pytest.mark.rule("UP-72")
@pytest.mark.rule("UP-73")
def test_designed_runs_start_nodes_when_they_may_and_no_earlier() -> None:
    status, said = play("--design", "all")
    assert status == 0, said
    assert said == f"{len(DESIGNS) + len(ACTION_DESIGNS)} designs\n"
