"""Admission webhooks that deny, that fail, and that block the deletion of a namespace."""

from pathlib import Path
from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for
from tests.cases.webhooks import POD_DELETIONS, Allow, Break, Deny, Hang, webhook

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def webhooks_are_in_reach(case: Case) -> None:
    """The webhooks of these tests listen on the loopback of this machine."""
    if case.target.lacks_kubelets:
        pytest.skip("the API server of an external cluster cannot reach a webhook here")


def populate(case: Case) -> str:
    """Create a node with two pods that only a webhook blocks, and capacity for them elsewhere."""
    (name,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 2))
    case.add_nodes(1, first=2)
    return name


def roll(case: Case, node: str) -> None:
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": node}])


def wait_for_blockers(case: Case, node: str, reason: str, words: str) -> list[dict[str, Any]]:
    """Wait until every blocker of a node has the reason, and the text in its message."""

    def found() -> list[dict[str, Any]]:
        blockers = case.status("NodeDrain", case.replacement(node)).get("blockers", [])
        told = [each for each in blockers if each["reason"] == reason and words in each["message"]]
        return told if len(told) == len(blockers) else []

    return wait_for(f"blockers that say {reason}: {words}", found)


def test_the_denial_of_a_webhook_is_reported_until_the_webhook_allows_the_eviction(
    case: Case, tmp_path: Path
) -> None:
    node = populate(case)
    with webhook(case, tmp_path) as hook:
        hook.behaviour = Deny("the database moves first")
        roll(case, node)
        message = f'admission webhook "{hook.name}" denied the request: the database moves first'
        found = wait_for_blockers(case, node, "WebhookDenied", message)
        assert len(found) == 2
        assert {each["nextAction"] for each in found} == {
            "retried; the webhook may move the pod itself"
        }
        # The codes that the server also uses for an overload and for a budget.
        for code in (429, 500):
            hook.behaviour = Deny(f"still no, {code}", code)
            wait_for_blockers(case, node, "WebhookDenied", f"denied the request: still no, {code}")
        assert case.checker.evictions(case.name) == 0
        hook.behaviour = Allow()
        case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 2
    assert "EvictionBlocked" in case.events(case.replacement(node))


def test_a_failing_webhook_is_reported_and_blocks_only_with_the_policy_fail(
    case: Case, tmp_path: Path
) -> None:
    node = populate(case)
    with webhook(case, tmp_path, seconds=1) as hook:
        hook.behaviour = Break(500)
        roll(case, node)
        message = f'failed calling webhook "{hook.name}"'
        wait_for_blockers(case, node, "WebhookFailed", message)
        hook.behaviour = Hang()
        wait_for_blockers(case, node, "WebhookFailed", "deadline exceeded")
        assert case.checker.evictions(case.name) == 0
        hook.fail("Ignore")
        case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 2


def test_pods_of_a_terminating_namespace_are_deleted_with_it(case: Case, tmp_path: Path) -> None:
    """A webhook denies their deletion first, so that the drain sees them."""
    case.checker.bypasses_budgets = True  # the namespace does
    node = populate(case)
    case.add(manifests.budget(case.name, "web", minAvailable=2))
    with webhook(case, tmp_path, POD_DELETIONS) as hook:
        roll(case, node)
        wait_for_blockers(case, node, "BlockedByBudget", "web")
        case.target.of("Namespace").delete(case.name)
        found = wait_for_blockers(case, node, "NamespaceTerminating", case.name)
        assert {each["nextAction"] for each in found} == {"deleted together with its namespace"}
        hook.behaviour = Allow()
        case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 0
    assert case.status("NodeReplacement", case.replacement(node))["evictedPodsCount"] == 2
