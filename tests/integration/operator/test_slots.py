"""A NodeDrain that no replacement controls delays a rollout until it is gone."""

from typing import Any

import pytest
from tests.cases.case import Case
from tests.cases.waiting import wait_for
from tests.integration.conftest import CommandLine

pytestmark = pytest.mark.timeout(240)


@pytest.mark.rule("RB-10")
@pytest.mark.rule("NP-02")
@pytest.mark.rule("NP-04")
def test_a_paused_drain_of_a_user_holds_a_slot_across_a_restart_of_the_manager(
    case: Case, navarchos: CommandLine
) -> None:
    held, waiting = case.add_nodes(2)
    case.create(
        {
            "apiVersion": "navarchos.pusher.com/v1alpha1",
            "kind": "NodeDrain",
            "metadata": {"name": case.name},
            "spec": {"nodeName": held, "paused": True},
        }
    )
    manager = case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": waiting}])
    message = f"1 of 1 nodes in flight: NodeDrain {case.name} (created by a user)"
    child = case.replacement(waiting)

    def reported() -> Any:
        return case.condition("Waiting", "NodeReplacement", child).get("message")

    wait_for("the wait that names the drain", lambda: reported() == message)
    config = ("--kubeconfig", str(case.target.kubeconfig))
    shown = navarchos.run("status", case.name, *config)
    assert message in shown.stdout
    planned = navarchos.run("plan", case.name, "-o", "json", *config).result
    (node,) = planned["rollouts"][0]["nodes"]
    assert (node["starts"], node["message"]) == ("MaxConcurrent", message)
    manager.kill()
    case.manager(name="second")
    assert not case.is_cordoned(waiting)
    case.delete("NodeDrain")
    case.wait_for_phase("Completed")
