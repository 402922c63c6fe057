from typing import Any

import msgspec
import pytest
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import NodeReplacement, PlannedNode, Step
from navarchos.operator.names import MAX_NAME_LENGTH, RESUME_ANNOTATION, child_name
from navarchos.operator.rollouts.children import child_manifest, child_patch

NODE = PlannedNode("a", "uid-a", 7)


def created(make: Make, rollout: Any, **status: Any) -> NodeReplacement:
    """Return the child as the API server stores it after its creation."""
    base = make.replacement("a", **status)
    spec = msgspec.convert(child_manifest(rollout, NODE)["spec"], type(base.spec))
    return msgspec.structs.replace(base, spec=spec)


@pytest.mark.rule("OP-02")
@pytest.mark.rule("N-11")
def test_a_child_has_a_deterministic_name_and_one_owner(make: Make) -> None:
    body: Any = child_manifest(make.rollout("roll"), NODE)
    assert body["metadata"]["name"] == "roll-a"
    (owner,) = body["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-roll"
    assert owner["controller"] is True
    assert owner["blockOwnerDeletion"] is True


@pytest.mark.rule("N-9")
def test_a_child_has_numbers_instead_of_percentages(make: Make) -> None:
    rollout = make.rollout(
        nodes=tuple("abcde"),
        strategy={"maxConcurrent": "30%", "maxFailures": "30%"},
        drain={"timeoutSeconds": 5},
        paused=True,
    )
    spec: Any = child_manifest(rollout, NODE)["spec"]
    assert spec["nodeName"] == "a"
    assert spec["nodeUID"] == "uid-a"
    assert spec["replacement"] == {"priority": 7}
    assert spec["strategy"]["maxConcurrent"] == 2
    assert spec["strategy"]["maxFailures"] == 1
    assert spec["drain"]["timeoutSeconds"] == 5
    assert spec["paused"] is True


def test_a_child_that_is_up_to_date_needs_no_patch(make: Make) -> None:
    rollout = make.rollout(nodes=("a",), drain={"podSelector": {"matchLabels": {"x": "y"}}})
    assert child_patch(rollout, NODE, created(make, rollout)) == {}


@pytest.mark.rule("OP-10")
def test_a_child_that_has_not_started_follows_edits(make: Make) -> None:
    before = make.rollout(nodes=("a",), drain={"podSelector": {"matchLabels": {"x": "y"}}})
    after = make.rollout(
        nodes=("a",),
        drain={"podSelector": {"matchLabels": {"z": "y"}}, "timeoutSeconds": 1},
    )
    node = PlannedNode("a", "uid-a", 8)
    assert child_patch(after, node, created(make, before)) == {
        "spec": {
            "replacement": {"priority": 8},
            "drain": {"timeoutSeconds": 1, "podSelector": {"matchLabels": {"x": None, "z": "y"}}},
        }
    }


@pytest.mark.rule("OP-10")
@pytest.mark.parametrize("step", [Step.RESERVED, Step.DRAINING, Step.RELEASING])
def test_a_child_in_flight_follows_nothing_but_pause(make: Make, step: Step) -> None:
    child = created(make, make.rollout(nodes=("a",)), step=step)
    edited = make.rollout(nodes=("a",), drain={"timeoutSeconds": 1})
    assert child_patch(edited, NODE, child) == {}
    paused = make.rollout(nodes=("a",), drain={"timeoutSeconds": 1}, paused=True)
    assert child_patch(paused, NODE, child) == {"spec": {"paused": True}}


@pytest.mark.parametrize("step", [step for step in Step if step.is_finished])
def test_a_finished_child_follows_nothing(make: Make, step: Step) -> None:
    child = created(make, make.rollout(nodes=("a",)), step=step)
    assert child_patch(make.rollout(nodes=("a",), paused=True), NODE, child) == {}


@pytest.mark.rule("OP-08")
def test_a_failed_child_receives_the_resume_annotation(make: Make) -> None:
    resumed = make.rollout(nodes=("a",), annotations={RESUME_ANNOTATION: "now"})
    child = created(make, make.rollout(nodes=("a",)), step=Step.FAILED)
    assert child_patch(resumed, NODE, child) == {
        "metadata": {"annotations": {RESUME_ANNOTATION: "now"}}
    }


def test_a_name_that_is_too_long_ends_in_a_hash_of_the_whole() -> None:
    first = child_name("r" * 200, "n" * 100)
    second = child_name("r" * 200, "n" * 100 + "x")
    assert len(first) == len(second) == MAX_NAME_LENGTH
    assert first != second
    assert first == child_name("r" * 200, "n" * 100)
    assert child_name("roll", "node-1") == "roll-node-1"


@pytest.mark.rule("NP-54")
@pytest.mark.parametrize("limit", [63, 242, MAX_NAME_LENGTH])
def test_a_child_name_keeps_the_limit_of_its_kind(limit: int) -> None:
    exact = child_name("r" * (limit - 2), "n", limit=limit)
    assert exact == "r" * (limit - 2) + "-n", "a name that fits is not shortened"
    longer = [child_name("r" * (limit - 1), last, limit=limit) for last in "nm"]
    assert {len(name) for name in longer} == {limit}
    assert len(set(longer)) == 2, "two children have one name"


@pytest.mark.rule("OP-10")
def test_a_failed_child_is_corrected_in_the_request_that_resumes_it(make: Make) -> None:
    drain = {"timeoutSeconds": 7}
    resumed = make.rollout(nodes=("a",), annotations={RESUME_ANNOTATION: "now"}, drain=drain)
    failed = created(make, make.rollout(nodes=("a",)), step=Step.FAILED)
    assert child_patch(resumed, NODE, failed) == {
        "metadata": {"annotations": {RESUME_ANNOTATION: "now"}},
        "spec": {"drain": {"timeoutSeconds": 7}},
    }
    assert child_patch(make.rollout(nodes=("a",), drain=drain), NODE, failed) == {}
