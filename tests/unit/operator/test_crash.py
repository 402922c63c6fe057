"""A process that is killed after any write: the next process ends in the same state."""

from typing import Any

import pytest
from tests.unit.operator.conftest import Operator

from navarchos.operator.api.v1alpha1 import DrainPhase, RolloutPhase, Step


def run(operator: Operator, rollout: str, *, dies_after: int) -> bool:
    """Run a rollout of two nodes, the first of which fails once.

    Returns:
        Whether the process survived.
    """
    for node in ("a", "b"):
        operator.add_node(f"{rollout}-{node}")
    names = [{"name": f"{rollout}-{node}"} for node in ("a", "b")]
    operator.add_rollout(rollout, nodeNames=names)
    operator.transport.writes_left = dies_after
    endings = {f"{rollout}-{rollout}-a": DrainPhase.FAILED}
    lived = True
    while operator.rollout(rollout).status.phase is not RolloutPhase.COMPLETED:
        lived = operator.settle_or_die() and lived
        for name in operator.drains():
            if operator.drain(name).status.phase is None:
                ending = endings.get(name, DrainPhase.COMPLETED)
                operator.report(name, ending, reason="Timeout")
    return lived


def end_state(operator: Operator, rollout: str) -> dict[str, Any]:
    status = operator.rollout(rollout).status
    return {
        "completed": status.replacements_completed,
        "steps": operator.steps(),
        "attempts": {name: operator.replacement(name).status.attempts for name in operator.names()},
        "uncordon": {
            name: operator.drain(name).spec.uncordon_on_delete for name in operator.drains()
        },
    }


@pytest.mark.rule("OP-26")
def test_a_crash_after_any_write_changes_nothing_in_the_end(operator: Operator) -> None:
    writes = 0
    lived = False
    while not lived:
        writes += 1
        name = f"r{writes}"
        lived = run(operator, name, dies_after=writes)
        first, second = f"{name}-{name}-a", f"{name}-{name}-b"
        assert end_state(operator, name) == {
            "completed": (f"{name}-a", f"{name}-b"),
            "steps": {first: Step.DONE, second: Step.DONE},
            "attempts": {first: 1, second: 0},
            "uncordon": {f"{first}-attempt2": False, second: False},
        }, f"killed after write {writes}"
        operator.client.resource(operator.clients.rollouts.resource).delete(name)
        operator.settle()
    assert writes > 20, "the test did not reach the last write of the rollout"
