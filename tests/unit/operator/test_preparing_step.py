"""The step Preparing of a replacement: its deadline, its report, and how it ends."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.conftest import Operator

from navarchos.meta import format_time
from navarchos.operator.api.v1alpha1 import DrainPhase, Step
from navarchos.runtime.conditions import find_condition

PREPARE = {"excludeFromExternalLoadBalancers": True, "hooks": ["f5"], "timeoutSeconds": 60}


def start(operator: Operator, **strategy: Any) -> None:
    """Start a node whose drain prepares it."""
    operator.add_node("a")
    drain = {"prepare": PREPARE}
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], drain=drain, strategy=strategy)
    operator.settle()
    assert operator.drain("roll-a").spec.prepare is not None
    operator.play("roll-a", DrainPhase.PREPARING, **report(operator, "False", "WaitingForHooks"))


def report(operator: Operator, status: str, reason: str) -> dict[str, Any]:
    """Return the status fields of a drain that prepares its node."""
    now = format_time(operator.clock.now())
    condition = {"type": "Prepared", "status": status, "reason": reason, "message": "hook f5"}
    return {
        "startTimestamp": None,
        "prepareTimestamp": now,
        "conditions": [{**condition, "lastTransitionTime": now}],
    }


@pytest.mark.rule("IG-70")
@pytest.mark.rule("IG-72")
def test_a_node_that_is_prepared_has_a_step_with_a_deadline(operator: Operator) -> None:
    start(operator)
    status = operator.replacement("roll-a").status
    began_at = operator.drain("roll-a").status.prepare_timestamp
    assert status.step is not None
    assert began_at is not None
    assert (status.step.name, status.step.deadline) == (
        Step.PREPARING,
        began_at + timedelta(seconds=60),
    )
    found = find_condition(status.conditions, "Prepared")
    assert found is not None
    assert (found.status, found.reason, found.message) == ("False", "WaitingForHooks", "hook f5")
    assert status.occupies_slot

    operator.play("roll-a", DrainPhase.PENDING)
    assert operator.steps() == {"roll-a": Step.CORDONED}


@pytest.mark.rule("IG-73")
def test_a_node_that_is_not_prepared_in_time_is_released(operator: Operator) -> None:
    start(operator, retries=0)
    failed = report(operator, "False", "WaitingForHooks") | {"reason": "PrepareTimeout"}
    operator.play("roll-a", DrainPhase.FAILED, **failed)
    assert operator.drains() == []
    (failure,) = operator.replacement("roll-a").status.failures
    assert failure.reason == "PrepareTimeout"
    assert operator.steps() == {"roll-a": Step.FAILED}


@pytest.mark.rule("NP-41")
def test_a_node_that_is_prepared_when_its_window_ends_is_given_back(operator: Operator) -> None:
    now = operator.clock.now()
    closes = now + timedelta(seconds=599)
    window = {
        "days": [now.strftime("%a")],
        "start": now.strftime("%H:%M:%S"),
        "end": closes.strftime("%H:%M:%S"),
    }
    start(operator, windows=[window], onWindowEnd="GiveBack")
    operator.clock.advance(600)
    operator.settle_in_time()
    assert operator.steps() == {"roll-a": Step.WAITING}
    assert operator.drains() == []
    assert operator.replacement("roll-a").status.attempts == 0


@pytest.mark.rule("NP-12")
def test_the_pause_of_a_rollout_reaches_a_drain_that_prepares(operator: Operator) -> None:
    start(operator)
    operator.client.resource(operator.clients.rollouts.resource).patch(
        "roll", {"spec": {"paused": True}}
    )
    operator.settle()
    assert operator.drain("roll-a").spec.paused
    assert operator.steps() == {"roll-a": Step.PREPARING}
