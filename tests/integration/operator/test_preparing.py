"""Nodes that are taken out of service before their cordon, and drains without evictions."""

from datetime import UTC, datetime

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for

from navarchos.client import ApiError
from navarchos.meta import format_time

pytestmark = pytest.mark.timeout(240)

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
KEY, STAMP = "node-detacher.variant.run/detached", "node-detacher.variant.run/detachment-timestamp"
RECORD = "navarchos.pusher.com/detached-for"
MARKS = {
    "excludeFromExternalLoadBalancers": True,
    "annotateNode": {"key": KEY, "value": "true"},
}


def marks(case: Case, node: str) -> tuple[bool, bool, bool]:
    """Return whether a node has the label, the annotation and the record."""
    metadata = case.node(node)["metadata"]
    annotations = metadata.get("annotations") or {}
    return EXCLUDE in metadata["labels"], KEY in annotations, RECORD in annotations


def answer(case: Case, drain: str, hook: str, text: str) -> None:
    annotations = {f"hook.navarchos.pusher.com/{hook}": text}
    case.target.patch("NodeDrain", drain, {"metadata": {"annotations": annotations}})


@pytest.mark.rule("IG-70")
@pytest.mark.rule("IG-74")
def test_a_rollout_prepares_each_node_before_its_cordon(case: Case) -> None:
    nodes = case.add_nodes(2)
    case.add(manifests.deployment(case.name, "web", 2))
    case.add_nodes(1, first=3)
    case.manager()
    wait = {"key": STAMP, "gracePeriodSeconds": 1}
    prepare = {**MARKS, "waitForTimestamp": wait, "settleSeconds": 1, "hooks": ["f5"]}
    names = [{"name": name} for name in nodes]
    case.roll(nodeSelectors=[], nodeNames=names, drain={"prepare": prepare})
    for node in nodes:
        name = case.replacement(node)
        case.wait_for_phase("Preparing", "NodeDrain", name)
        wait_for("the step", lambda: _step(case, name) == "Preparing")  # noqa: B023 - called at once
        assert marks(case, node) == (True, True, True)
        assert not case.is_cordoned(node)
        stamp = {STAMP: format_time(datetime.now(UTC))}
        case.target.patch("Node", node, {"metadata": {"annotations": stamp}})
        answer(case, name, "f5", "Waiting: connections")
        wait_for("the answer", lambda: "connections" in _said(case, name))  # noqa: B023 - at once
        answer(case, name, "f5", "Done")
        case.wait_for_phase("Completed", "NodeReplacement", name)
        assert case.condition("Prepared", "NodeReplacement", name)["status"] == "True"
        assert case.is_cordoned(node)
    case.wait_for_phase("Completed")
    assert all(marks(case, node) == (True, True, True) for node in nodes)

    case.delete("NodeRollout")
    wait_for("the drains to be gone", lambda: not case.target.list("NodeDrain"))
    assert all(marks(case, node) == (True, True, True) for node in nodes), "they stay drained"
    case.target.patch("Node", nodes[0], {"spec": {"unschedulable": None}})
    wait_for("the marks to be gone", lambda: marks(case, nodes[0]) == (False, False, False))


def _said(case: Case, drain: str) -> str:
    message: str = case.condition("Prepared", "NodeDrain", drain).get("message", "")
    return message


def _step(case: Case, replacement: str) -> str:
    step: str = case.status("NodeReplacement", replacement).get("step", {}).get("name", "")
    return step


@pytest.mark.rule("IG-73")
def test_a_node_that_is_not_prepared_in_time_is_given_back(case: Case) -> None:
    (node,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 1))
    case.manager()
    prepare = {**MARKS, "hooks": ["f5"], "timeoutSeconds": 2}
    case.roll(strategy={"retries": 0}, drain={"prepare": prepare})
    case.wait_for_phase("Halted")
    (failure,) = case.status("NodeReplacement", case.replacement(node))["failures"]
    assert failure["reason"] == "PrepareTimeout"
    assert "hook f5: has not answered" in failure["message"]
    wait_for("the marks to be gone", lambda: marks(case, node) == (False, False, False))
    assert not case.is_cordoned(node)
    assert case.checker.evictions(case.name) == 0


@pytest.mark.rule("NP-12")
def test_a_rollout_that_is_deleted_while_it_prepares_gives_the_node_back(case: Case) -> None:
    (node,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 1))
    case.manager()
    case.roll(drain={"prepare": {**MARKS, "hooks": ["f5"]}})
    case.wait_for_phase("Preparing", "NodeDrain", case.replacement(node))
    case.delete("NodeRollout")
    wait_for("the marks to be gone", lambda: marks(case, node) == (False, False, False))
    assert not case.is_cordoned(node)
    assert case.checker.evictions(case.name) == 0


@pytest.mark.rule("IG-78")
def test_a_drain_without_evictions_only_cordons(case: Case) -> None:
    (node,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 2))
    case.manager()
    case.create(manifests.drain(case.name, node, evict=False))
    status = case.wait_for_phase("Completed", "NodeDrain")
    assert status["reason"] == "CordonedOnly"
    assert case.is_cordoned(node)
    assert len(case.pods(node)) == 2
    assert case.checker.evictions(case.name) == 0
    case.delete("NodeDrain")
    wait_for("the node to be uncordoned", lambda: not case.is_cordoned(node))


@pytest.mark.rule("IG-70")
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ({"waitForTimestamp": {"key": STAMP}}, "waitForTimestamp requires annotateNode"),
        ({"annotateNode": {"key": "navarchos.pusher.com/x"}}, "must not belong to Kubernetes"),
        ({"annotateNode": {"key": "node.kubernetes.io/x"}}, "must not belong to Kubernetes"),
        ({"annotateNode": {"key": "a b"}}, "must be the key of an annotation"),
        ({"hooks": ["a/b"]}, "hooks"),
        ({"onTimeout": "Ignore"}, "onTimeout"),
    ],
)
def test_a_preparation_that_cannot_work_is_refused(
    case: Case, prepare: dict[str, object], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        case.roll(drain={"prepare": prepare})
