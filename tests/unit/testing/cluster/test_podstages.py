"""The stages of a pod and their times."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from navarchos.client.taints import Taint
from navarchos.testing.cluster.kinds import Node, Pod
from navarchos.testing.cluster.nodes import CORDON_TAINT, taints_of
from navarchos.testing.cluster.options import Span
from navarchos.testing.cluster.pod_lifecycle import (
    RUNS_FOR,
    STARTS_AFTER,
    TERMINATES_AFTER,
    PodStage,
    PodStageTimers,
    annotated_span,
    next_stage,
)

MakePod = Callable[..., Pod]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"node": "", "phase": "Pending"}, None),
        ({"phase": "Pending"}, PodStage.START),
        ({"phase": "Running"}, None),
        ({"phase": "Running", "owner": ("Job", "batch")}, PodStage.FINISH),
        ({"phase": "Succeeded", "owner": ("Job", "batch")}, None),
        ({"phase": "Running", "terminating": True}, PodStage.TERMINATE),
        ({"phase": "Pending", "terminating": True}, PodStage.TERMINATE),
    ],
)
def test_a_pod_goes_through_its_stages(
    make_pod: MakePod, options: Mapping[str, Any], expected: PodStage | None
) -> None:
    assert next_stage(make_pod(**options), node_exists=True) is expected


def test_a_pod_without_its_node_is_collected_whatever_it_does(make_pod: MakePod) -> None:
    assert next_stage(make_pod(), node_exists=False) is PodStage.COLLECT
    assert next_stage(make_pod(terminating=True), node_exists=False) is PodStage.COLLECT


@pytest.mark.parametrize(
    ("stage", "annotation"),
    [
        (PodStage.START, STARTS_AFTER),
        (PodStage.FINISH, RUNS_FOR),
        (PodStage.TERMINATE, TERMINATES_AFTER),
    ],
)
def test_a_pod_may_tell_how_long_a_stage_takes(
    make_pod: MakePod, stage: PodStage, annotation: str
) -> None:
    told = make_pod(annotations={annotation: "1m500ms"})
    assert annotated_span(told, stage) == Span(60.5, 60.5)
    assert [other for other in PodStage if annotated_span(told, other)] == [stage]
    assert annotated_span(make_pod(), stage) is None


def test_a_pace_that_is_no_duration_is_refused(make_pod: MakePod) -> None:
    with pytest.raises(ValueError, match="'soon' is not a duration"):
        annotated_span(make_pod(annotations={STARTS_AFTER: "soon"}), PodStage.START)


def test_a_timer_keeps_its_first_time_until_the_stage_or_the_pod_is_another() -> None:
    timers: PodStageTimers[str] = PodStageTimers()
    assert timers.due("web", "u1", PodStage.START, 10.0) == 10.0
    assert timers.due("web", "u1", PodStage.START, 99.0) == 10.0
    assert timers.due("web", "u1", PodStage.TERMINATE, 20.0) == 20.0
    assert timers.due("web", "u2", PodStage.TERMINATE, 30.0) == 30.0
    timers.forget("web")
    assert len(timers) == 0


def test_a_cordon_shows_as_a_taint_and_goes_with_it(make_node: Callable[..., Node]) -> None:
    gpu = {"key": "gpu", "effect": "NoSchedule"}
    cordoned = taints_of(make_node(unschedulable=True, taints=[gpu]), NOW)
    assert cordoned == (
        Taint("gpu", effect="NoSchedule"),
        Taint(CORDON_TAINT, effect="NoSchedule", time_added=NOW),
    )
    shown = {"key": CORDON_TAINT, "effect": "NoSchedule"}
    assert taints_of(make_node(unschedulable=True, taints=[shown]), NOW) == (
        Taint(CORDON_TAINT, effect="NoSchedule"),
    )
    assert taints_of(make_node(taints=[gpu, shown]), NOW) == (Taint("gpu", effect="NoSchedule"),)


def test_a_node_that_is_ready_loses_the_taint_that_it_is_not(
    make_node: Callable[..., Node],
) -> None:
    """Admission of a real server adds that taint to every new node."""
    fresh = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    gpu = {"key": "gpu", "effect": "NoSchedule"}
    kept = Taint("gpu", effect="NoSchedule")
    assert taints_of(make_node(taints=[fresh, gpu]), NOW) == (kept,)
    still = taints_of(make_node(ready=False, taints=[fresh, gpu]), NOW)
    assert [taint.key for taint in still] == ["node.kubernetes.io/not-ready", "gpu"]
    evicting = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    assert len(taints_of(make_node(taints=[evicting]), NOW)) == 1, "that is another controller's"
