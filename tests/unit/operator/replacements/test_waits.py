"""Windows and waves in admission: which rollouts wait as a whole, and whom they delay."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import NodeReplacement, NodeRollout, Step
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import Decisions, admit
from navarchos.operator.replacements.snapshot import ClusterSnapshot

# `Make.now` is Thursday, 2026-01-01 12:00 UTC.
CLOSED = {"windows": [{"days": ["fri"], "start": "22:00", "end": "04:00"}]}
OPEN = {"windows": [{"days": ["thu"], "start": "9am", "end": "5pm"}]}
OPENS_IN = 34 * 3600.0
CLOSES_IN = 5 * 3600.0 + 1


def world(make: Make, rollouts: list[NodeRollout], *children: NodeReplacement) -> ClusterSnapshot:
    return ClusterSnapshot(
        replacements=children,
        rollouts={rollout.metadata.uid: rollout for rollout in rollouts},
        nodes={c.spec.node_name: make.node(c.spec.node_name) for c in children},
    )


def decide(
    make: Make, strategy: dict[str, Any], *children: NodeReplacement, at: float = 0, **status: Any
) -> Decisions:
    """Run admission for one rollout with this strategy."""
    names = tuple(sorted({child.spec.node_name for child in children}))
    rollout = make.rollout(nodes=names, strategy=strategy, status=status or None)
    return admit(world(make, [rollout], *children), make.at(at))


@pytest.mark.rule("NP-41")
def test_a_node_waits_for_the_next_window_and_names_it(make: Make) -> None:
    decisions = decide(make, CLOSED, make.replacement("a"), make.replacement("b"))
    assert decisions.start == ()
    assert decisions.waiting == {"roll-a": WaitReason.OUTSIDE_WINDOW, "roll-b": WaitReason.QUEUED}
    assert decisions.details == {"roll-a": "the next window opens at 2026-01-02 22:00:00 UTC"}
    assert decisions.recheck_after == OPENS_IN


@pytest.mark.rule("NP-41")
def test_nodes_start_when_the_window_opens_and_admission_runs_when_it_closes(make: Make) -> None:
    child = make.replacement("a")
    assert decide(make, CLOSED, child, at=OPENS_IN - 0.001).start == ()
    assert decide(make, CLOSED, child, at=OPENS_IN).start == ("roll-a",)
    decisions = decide(make, OPEN, child, make.replacement("b"))
    assert decisions.start == ("roll-a",)
    assert decisions.recheck_after == CLOSES_IN


@pytest.mark.rule("NP-41")
def test_a_blackout_closes_an_open_window(make: Make) -> None:
    blackouts = [{"from": "2026-01-01T12:00:00Z", "to": "2026-01-01T13:00:00Z"}]
    decisions = decide(make, {**OPEN, "blackouts": blackouts}, make.replacement("a"))
    assert decisions.waiting == {"roll-a": WaitReason.OUTSIDE_WINDOW}
    assert decisions.recheck_after == 3600.0
    decisions = decide(make, {"blackouts": blackouts}, make.replacement("a"))
    assert decisions.details == {"roll-a": "the blackout ends at 2026-01-01 13:00:00 UTC"}
    assert decide(make, {"blackouts": blackouts}, make.replacement("a"), at=3600).start


@pytest.mark.rule("NP-41")
@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"windows": [{"timeZone": "Mars/Olympus"}]}, "strategy.windows[0].timeZone='Mars/Olymp"),
        ({"windows": [{}, {"start": "9am", "end": "09:00"}]}, "strategy.windows[1].end='09:00'"),
        ({"windows": [{"start": "24:00"}]}, "strategy.windows[0].start='24:00'"),
        ({"windows": [{"days": ["x"]}]}, "strategy.windows[0].days[0]='x'"),
        ({"waves": [{"upTo": 2}, {"upTo": "10%"}]}, "strategy.waves[1].upTo='10%'"),
    ],
)
def test_an_invalid_strategy_starts_nothing_and_says_what_is_wrong(
    make: Make, strategy: dict[str, Any], message: str
) -> None:
    decisions = decide(make, strategy, make.replacement("a"), make.replacement("b"))
    assert decisions.start == ()
    assert decisions.waiting["roll-a"] is WaitReason.INVALID_STRATEGY
    assert decisions.details["roll-a"].startswith(message)
    assert decisions.recheck_after is None


@pytest.mark.rule("NP-41")
def test_a_replacement_of_a_user_obeys_its_own_windows(make: Make) -> None:
    child = make.replacement("a", rollout="", strategy=CLOSED)
    decisions = admit(world(make, [], child), make.now)
    assert decisions.waiting == {"a": WaitReason.OUTSIDE_WINDOW}
    assert admit(world(make, [], child), make.at(OPENS_IN)).start == ("a",)


@pytest.mark.rule("NP-41")
@pytest.mark.parametrize("mine", [-1, 0, 1])
def test_a_rollout_outside_its_window_delays_no_other(make: Make, mine: int) -> None:
    night = make.rollout("night", nodes=("a",), strategy=CLOSED)
    child = make.replacement("a", rollout="night", replacement={"priority": mine})
    seen = world(make, [night, make.rollout("day", nodes=("b",))], child)
    other = make.replacement("b", rollout="day")
    seen = world(make, list(seen.rollouts.values()), child, other)
    decisions = admit(seen, make.now)
    assert decisions.start == ("day-b",)
    assert decisions.waiting == {"night-a": WaitReason.OUTSIDE_WINDOW}


@pytest.mark.rule("NP-41")
@given(data=st.data())
def test_held_rollouts_change_nothing_for_the_others(make: Make, data: st.DataObject) -> None:
    """The others' decisions are those of a cluster without the held rollout's waiting nodes."""
    priorities = st.integers(0, 2)
    steps = st.sampled_from([Step.WAITING, Step.WAITING, Step.DONE, Step.FAILED])
    held = [
        make.replacement(
            f"h{number}",
            rollout="held",
            step=data.draw(steps),
            replacement={"priority": data.draw(priorities)},
        )
        for number in range(data.draw(st.integers(1, 3)))
    ]
    limit = {"maxConcurrent": data.draw(st.integers(1, 3))}
    others = [
        make.replacement(
            f"o{number}",
            rollout="other",
            step=data.draw(st.sampled_from([Step.WAITING, Step.DRAINING, Step.DONE])),
            replacement={"priority": data.draw(priorities)},
            strategy=limit,
        )
        for number in range(data.draw(st.integers(1, 4)))
    ]
    rollouts = [
        make.rollout("held", strategy={**CLOSED, "maxFailures": 9}),
        make.rollout("other", strategy=limit),
    ]
    both = admit(world(make, rollouts, *held, *others), make.now)
    alone = admit(world(make, rollouts, *others), make.now)
    assert both.start == alone.start
    names = {child.metadata.name for child in others}
    assert {name: why for name, why in both.waiting.items() if name in names} == alone.waiting
    reasons = [both.waiting.get(child.metadata.name) for child in held]
    assert reasons.count(WaitReason.OUTSIDE_WINDOW) <= 1


@pytest.mark.rule("NP-42")
@pytest.mark.parametrize(
    ("done", "left", "starts"), [(4, 60, True), (5, 60, False), (5, 600, True)]
)
def test_a_node_starts_only_if_it_fits(make: Make, done: int, left: int, starts: bool) -> None:
    ended = [
        make.replacement(f"d{n}", step=Step.DONE, started=-1000, done=-1000 + 60 * (n + 1))
        for n in range(done)
    ]
    at = CLOSES_IN - left
    decisions = decide(make, {**OPEN, "fitWindow": True}, make.replacement("a"), *ended, at=at)
    assert bool(decisions.start) is starts
    if not starts:
        assert decisions.waiting["roll-a"] is WaitReason.DOES_NOT_FIT
        assert (
            "a node takes 300 s; the next window opens at 2026-01-08"
            in (decisions.details["roll-a"])
        )
        assert decisions.recheck_after == timedelta(days=7, hours=-3).total_seconds() - at
