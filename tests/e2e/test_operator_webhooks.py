"""Admission webhooks that refuse, that fail, and that keep a namespace from ending."""

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
    """Webhooks of ours listen on this machine's loopback."""
    if case.target.lacks_kubelets:
        pytest.skip("the API server of somebody's cluster does not reach a webhook here")


def populate(case: Case) -> str:
    """Make a node with two pods that nothing but a webhook keeps, and room for them."""
    (name,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 2))
    case.add_nodes(1, first=2)
    return name


def roll(case: Case, node: str) -> None:
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": node}])


def wait_for_blockers(case: Case, node: str, reason: str, words: str) -> list[dict[str, Any]]:
    """Wait until every blocker of a node has the reason, and the words in its message."""

    def found() -> list[dict[str, Any]]:
        blockers = case.status("NodeDrain", case.replacement(node)).get("blockers", [])
        told = [each for each in blockers if each["reason"] == reason and words in each["message"]]
        return told if len(told) == len(blockers) else []

    return wait_for(f"blockers that say {reason}: {words}", found)


def test_what_a_webhook_says_against_an_eviction_is_told_until_it_allows_it(
    case: Case, tmp_path: Path
) -> None:
    node = populate(case)
    with webhook(case, tmp_path) as hook:
        hook.behaviour = Deny("the database moves first")
        roll(case, node)
        said = f'admission webhook "{hook.name}" denied the request: the database moves first'
        found = wait_for_blockers(case, node, "WebhookDenied", said)
        assert len(found) == 2
        assert {each["nextAction"] for each in found} == {
            "tried again; the webhook may move the pod itself"
        }
        # What a server says that is busy, and what one says whose budget is in the way.
        for code in (429, 500):
            hook.behaviour = Deny(f"still no, {code}", code)
            wait_for_blockers(case, node, "WebhookDenied", f"denied the request: still no, {code}")
        assert case.checker.evictions(case.name) == 0
        hook.behaviour = Allow()
        case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 2
    assert "EvictionBlocked" in case.events(case.replacement(node))


def test_a_webhook_that_fails_is_told_and_in_nobodys_way_where_failures_are_ignored(
    case: Case, tmp_path: Path
) -> None:
    node = populate(case)
    with webhook(case, tmp_path, seconds=1) as hook:
        hook.behaviour = Break(500)
        roll(case, node)
        said = f'failed calling webhook "{hook.name}"'
        wait_for_blockers(case, node, "WebhookFailed", said)
        hook.behaviour = Hang()
        wait_for_blockers(case, node, "WebhookFailed", "deadline exceeded")
        assert case.checker.evictions(case.name) == 0
        hook.fail("Ignore")
        case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 2


def test_the_pods_of_a_namespace_in_deletion_go_with_it(case: Case, tmp_path: Path) -> None:
    """Kept by what denies deletions, for otherwise they go faster than anybody evicts."""
    case.checker.bypasses_budgets = True  # the namespace does
    node = populate(case)
    case.add(manifests.budget(case.name, "web", minAvailable=2))
    with webhook(case, tmp_path, POD_DELETIONS) as hook:
        roll(case, node)
        wait_for_blockers(case, node, "BlockedByBudget", "web")
        case.target.of("Namespace").delete(case.name)
        found = wait_for_blockers(case, node, "NamespaceTerminating", case.name)
        assert {each["nextAction"] for each in found} == {"waits for the deletion of its namespace"}
        hook.behaviour = Allow()
        case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 0
    assert case.status("NodeReplacement", case.replacement(node))["evictedPodsCount"] == 2
