"""Play hundreds of runs of complete managers with all kinds of faults.

CONTRIBUTING.md says how to repeat the run of a seed.
"""

import os

import pytest
from tests.model.programs import play
from tests.seeds import runs

RUNS = runs(300)
PARTS = 12


def part(number: int) -> tuple[int, int]:
    """Return the first seed of a part and the number of its seeds."""
    first = RUNS * number // PARTS
    return first, RUNS * (number + 1) // PARTS - first


@pytest.mark.rule("UP-43")
@pytest.mark.rule("NP-03")
@pytest.mark.rule("NP-04")
@pytest.mark.rule("NP-05")
@pytest.mark.rule("NP-30")
@pytest.mark.rule("NP-41")
@pytest.mark.rule("NP-43")
@pytest.mark.rule("OP-05")
@pytest.mark.rule("OP-07")
@pytest.mark.rule("OP-20")
@pytest.mark.rule("OP-22")
@pytest.mark.rule("OP-26")
@pytest.mark.rule("OP-41")
@pytest.mark.timeout(14_000)
@pytest.mark.parametrize("number", range(PARTS))
def test_whatever_happens_limits_budgets_and_cordons_hold_and_everything_ends(number: int) -> None:
    first, count = part(number)
    seed = os.environ.get("NAVARCHOS_SEED")
    if seed is not None:
        first, count = int(seed), int(number == 0)
    status, said = play("--from", str(first), "--count", str(count))
    assert status == 0, said


def test_a_run_is_repeated_by_its_seed() -> None:
    once, again = play("--digest", "11", "12"), play("--digest", "12")
    assert once[0] == again[0] == 0
    assert digests(once[1])["12"] == digests(again[1])["12"]
    assert digests(once[1])["11"] != digests(once[1])["12"]


def digests(said: str) -> dict[str, str]:
    lines = [line.split() for line in said.splitlines() if line.startswith("digest ")]
    return {seed: digest for _, seed, digest in lines}
