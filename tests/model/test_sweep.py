"""Kill the manager at each request of a rollout: before it is served, and before its answer."""

import os

import pytest
from tests.model.programs import play
from tests.model.sweeping import SETTINGS

# All requests take minutes; `make nightly` tests them all.
STEP = 1 if "NAVARCHOS_SEEDS" in os.environ else 25


@pytest.mark.rule("OP-26")
@pytest.mark.timeout(14_000)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_crash_at_any_request_changes_nothing_in_the_end(setting: str) -> None:
    status, said = play("--sweep", setting, "--step", str(STEP))
    assert status == 0, said
    passes = int(said.split()[-2])
    assert passes > 60 // STEP, "the first pass must be a whole rollout"
