"""Waves: which one is the current one, what it waits for, and which approvals count."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.unit.operator.conftest import Make

from navarchos.errors import ConfigError
from navarchos.operator.api.v1alpha1 import (
    GateState,
    GateStatus,
    NodeReplacement,
    NodeRollout,
    Step,
    WaveApproval,
    WaveState,
    WaveStatus,
)
from navarchos.operator.names import APPROVE_ANNOTATION
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import Decisions, admit
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.operator.waves import (
    WaveProgress,
    judge_approval,
    pending_approval,
    wave_counts,
    wave_progress,
)

NAMES = tuple("abcdefgh")
WAVES: list[dict[str, Any]] = [
    {"upTo": 1, "soakSeconds": 60},
    {"upTo": "50%", "approval": True},
    {"upTo": "100%"},
]


def rollout(make: Make, waves: Sequence[dict[str, Any]] = WAVES, **fields: Any) -> NodeRollout:
    strategy = {"waves": waves, "maxConcurrent": 8, "maxFailures": 8}
    return make.rollout(nodes=NAMES, strategy=strategy, **fields)


def children(make: Make, **steps: Step) -> list[NodeReplacement]:
    """Return replacements of all nodes; done nodes ended at their place in seconds."""
    return [
        make.replacement(
            name,
            step=steps.get(name, Step.WAITING),
            started=None if steps.get(name, Step.WAITING) is Step.WAITING else -500,
            done=number if steps.get(name) in {Step.DONE, Step.FAILED} else None,
            strategy={"maxConcurrent": 8},
        )
        for number, name in enumerate(NAMES)
    ]


def progress(make: Make, seen: NodeRollout, at: float = 0, **steps: Any) -> WaveProgress:
    found = wave_progress(seen, children(make, **steps), make.at(at))
    assert found is not None
    return found


def approved(make: Make, number: int, up_to: int, at: float = 0) -> dict[str, Any]:
    approval = WaveApproval(number=number, up_to=up_to, by="jane", at=make.at(at))
    wave = WaveStatus(
        number=number, of=3, up_to=up_to, state=WaveState.AWAITING_APPROVAL, approvals=(approval,)
    )
    return {"wave": wave}


def admitted(make: Make, seen: NodeRollout, replacements: list[NodeReplacement]) -> Decisions:
    return admit(
        ClusterSnapshot(
            replacements=replacements,
            rollouts={seen.metadata.uid: seen},
            nodes={name: make.node(name) for name in NAMES},
        ),
        make.now,
    )


DONE, DRAINING = Step.DONE, Step.DRAINING


@pytest.mark.rule("NP-43")
@pytest.mark.parametrize(
    ("steps", "at", "number", "state", "new_nodes"),
    [
        ({}, 0, 1, WaveState.IN_PROGRESS, 1),
        ({"a": DRAINING}, 0, 1, WaveState.IN_PROGRESS, 0),
        ({"a": DONE}, 59, 1, WaveState.SOAKING, 0),
        ({"a": DONE}, 60, 2, WaveState.IN_PROGRESS, 3),
        ({"a": Step.FAILED}, 60, 2, WaveState.IN_PROGRESS, 3),
        ({"a": DONE, "b": DRAINING}, 0, 2, WaveState.IN_PROGRESS, 2),
        ({"a": DONE, "b": DONE, "c": DONE, "d": DRAINING}, 0, 2, WaveState.IN_PROGRESS, 0),
        ({"a": DONE, "b": DONE, "c": DONE, "d": DONE}, 9, 2, WaveState.AWAITING_APPROVAL, 0),
        (dict.fromkeys(NAMES[:5], DONE), 9, 3, WaveState.IN_PROGRESS, 3),
        (dict.fromkeys(NAMES, DONE), 9, 3, WaveState.COMPLETED, None),
    ],
)
def test_the_current_wave_follows_from_the_children(
    make: Make,
    steps: dict[str, Any],
    at: float,
    number: int,
    state: WaveState,
    new_nodes: int | None,
) -> None:
    found = progress(make, rollout(make), at, **steps)
    assert (found.status.number, found.status.state) == (number, state)
    assert found.new_nodes == new_nodes


@pytest.mark.rule("NP-43")
def test_soaking_begins_with_the_last_node_and_with_gates_that_are_true(make: Make) -> None:
    seen = rollout(make, [{"upTo": 2, "soakSeconds": 60}])
    found = progress(make, seen, 2, a=DONE, b=DONE)
    assert (found.status.since, found.status.until) == (make.at(1), make.at(61))

    def with_gates(state: GateState, since: float) -> NodeRollout:
        strategy = {"waves": [{"upTo": 2, "soakSeconds": 60}]}
        gates = [
            {"name": "ready", "nodes": {"maxUnready": 0}},
            {"name": "quiet", "alerts": {"url": "http://prometheus.example.com"}},
        ]
        known = (GateStatus(name="ready", state=state, since=make.at(since)),)
        return make.rollout(nodes=NAMES, strategy=strategy, gates=gates, status={"gates": known})

    found = progress(make, with_gates(GateState.OPEN, 30), 62, a=DONE, b=DONE)
    assert found.status.until == make.at(90)
    found = progress(make, with_gates(GateState.OPEN, 30), 90, a=DONE, b=DONE)
    assert found.status.state is WaveState.COMPLETED
    found = progress(make, with_gates(GateState.CLOSED, 30), 500, a=DONE, b=DONE)
    assert (found.status.state, found.status.until) == (WaveState.SOAKING, None)


@pytest.mark.rule("NP-43")
def test_an_approval_counts_for_a_wave_of_the_same_number_and_size(make: Make) -> None:
    ended: dict[str, Any] = dict.fromkeys(NAMES[:4], DONE)
    seen = rollout(make, status=approved(make, 2, 4))
    assert progress(make, seen, 9, **ended).status.number == 3
    for number, up_to in ((1, 4), (2, 3)):
        seen = rollout(make, status=approved(make, number, up_to))
        assert progress(make, seen, 9, **ended).status.state is WaveState.AWAITING_APPROVAL


@pytest.mark.rule("NP-43")
def test_a_node_that_was_cancelled_or_gone_takes_no_place_in_a_wave(make: Make) -> None:
    seen = rollout(make, [{"upTo": 1}])
    replacements = children(make)
    replacements[0] = make.replacement("a", step=Step.CANCELLED)
    replacements[1] = make.replacement("b", step=Step.DONE, reason="NodeGone", done=1)
    found = wave_progress(seen, replacements, make.now)
    assert found is not None
    assert found.new_nodes == 1


@pytest.mark.rule("NP-43")
def test_children_that_were_deleted_still_count(make: Make) -> None:
    seen = rollout(make, status={"replacements_completed": ("a",)})
    found = wave_progress(seen, children(make)[1:], make.now)
    assert found is not None
    assert (found.status.number, found.new_nodes) == (2, 3)  # its end is not known any more


@pytest.mark.rule("NP-43")
def test_waves_of_equal_size_are_valid_and_smaller_ones_are_not(make: Make) -> None:
    assert wave_counts(rollout(make, [{"upTo": 1}, {"upTo": "10%"}, {"upTo": "100%"}])) == (1, 1, 8)
    assert wave_counts(rollout(make, [{"upTo": 100}])) == (8,)
    with pytest.raises(ConfigError, match=r"strategy.waves\[1\].upTo='10%': it is 1 of 8 nodes"):
        wave_counts(rollout(make, [{"upTo": 2}, {"upTo": "10%"}]))
    # The second wave holds no further node, but its approval is needed.
    seen = rollout(make, [{"upTo": 1}, {"upTo": "10%", "approval": True}])
    found = progress(make, seen, a=DONE)
    assert (found.status.number, found.status.state) == (2, WaveState.AWAITING_APPROVAL)


@pytest.mark.rule("NP-43")
def test_admission_starts_no_node_beyond_the_wave(make: Make) -> None:
    decisions = admitted(make, rollout(make), children(make))
    assert decisions.start == ("roll-a",)
    assert decisions.waiting["roll-b"] is WaitReason.WAVE
    assert decisions.details["roll-b"] == "wave 1 of 3 has not finished: it has 1 node"
    assert {decisions.waiting[f"roll-{name}"] for name in "cdefgh"} == {WaitReason.QUEUED}


@pytest.mark.rule("NP-43")
def test_a_full_wave_lets_its_nodes_start_again_and_delays_no_other_rollout(make: Make) -> None:
    replacements = children(make)
    replacements[0] = make.replacement(
        "a", started=-500, failed_at=(-100.0,), strategy={"maxConcurrent": 8}
    )
    decisions = admitted(make, rollout(make), replacements)
    assert decisions.start == ("roll-a",)
    assert decisions.waiting["roll-b"] is WaitReason.WAVE
    # The nodes beyond the wave have a higher priority than the other rollout.
    soaking = children(make, a=DONE)
    soaking[1:] = [
        make.replacement(name, replacement={"priority": 5}, strategy={"maxConcurrent": 8})
        for name in NAMES[1:]
    ]
    other = make.replacement("x", rollout="other", strategy={"maxConcurrent": 8})
    both = {r.metadata.uid: r for r in (rollout(make), make.rollout("other", nodes=("x",)))}
    nodes = {name: make.node(name) for name in (*NAMES, "x")}
    seen = ClusterSnapshot(replacements=[*soaking, other], rollouts=both, nodes=nodes)
    decisions = admit(seen, make.now)
    assert decisions.start == ("other-x",)
    assert decisions.waiting["roll-b"] is WaitReason.WAVE
    assert decisions.recheck_after == 60.0


def judged(
    make: Make, annotation: str, wave: WaveStatus, before: WaveStatus | None = None
) -> tuple[WaveStatus, str | None]:
    annotations = {APPROVE_ANNOTATION: annotation} if annotation else {}
    seen = rollout(make, annotations=annotations, status={"wave": before})
    return judge_approval(seen, wave, make.now)


WAITING = WaveStatus(number=2, of=3, up_to=4, state=WaveState.AWAITING_APPROVAL)


@pytest.mark.rule("NP-43")
@pytest.mark.parametrize("annotation", ["2", '{"wave":2,"by":"jane","at":"now"}'])
def test_an_approval_of_the_waiting_wave_is_recorded_once(make: Make, annotation: str) -> None:
    wave, why = judged(make, annotation, WAITING)
    assert why == ""
    by = "jane" if "jane" in annotation else ""
    assert wave.approvals == (WaveApproval(number=2, up_to=4, by=by, at=make.now),)
    assert judged(make, annotation, wave, wave) == (wave, None)


@pytest.mark.rule("NP-43")
@pytest.mark.parametrize(
    ("annotation", "state", "message"),
    [
        ("1", WaveState.AWAITING_APPROVAL, "wave 1 does not wait for an approval; wave 2 of 3 do"),
        ("3", WaveState.AWAITING_APPROVAL, "wave 3 does not wait"),
        ("2", WaveState.SOAKING, "wave 2 does not wait for an approval; wave 2 of 3 soaks"),
        ("2", WaveState.IN_PROGRESS, "wave 2 of 3 has not finished"),
        ("2", WaveState.COMPLETED, "no wave holds nodes back any more"),
        ("yes", WaveState.AWAITING_APPROVAL, "neither the number of a wave nor"),
        ('{"by":"jane"}', WaveState.AWAITING_APPROVAL, "neither the number of a wave nor"),
    ],
)
def test_a_wrong_approval_is_refused_for_ever(
    make: Make, annotation: str, state: WaveState, message: str
) -> None:
    seen = msgspec.structs.replace(WAITING, state=state)
    wave, why = judged(make, annotation, seen)
    assert why is not None
    assert message in why
    assert wave.approvals == ()
    # The wave waits later: the same annotation still approves nothing.
    again, why = judged(make, annotation, WAITING, wave)
    assert (again.approvals, why) == ((), None)


@pytest.mark.parametrize(
    ("annotation", "judged_before", "number"),
    [
        ("", "", None),
        ("2", "", 2),
        ("2", "2", None),
        ('{"wave":2,"by":"jane"}', "2", 2),
        ("yes", "", None),
    ],
)
def test_an_approval_is_pending_until_it_is_judged(
    make: Make, annotation: str, judged_before: str, number: int | None
) -> None:
    wave = msgspec.structs.replace(WAITING, judged=judged_before)
    annotations = {APPROVE_ANNOTATION: annotation}
    seen = rollout(make, annotations=annotations, status={"wave": wave})
    assert pending_approval(seen) == number


def test_no_annotation_changes_nothing(make: Make) -> None:
    assert judged(make, "", WAITING) == (WAITING, "")
