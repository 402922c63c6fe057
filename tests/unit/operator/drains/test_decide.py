"""What a reconcile decides, as a pure function of what it observes."""

from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.drains.conftest import NOW, observation, planned

from navarchos.drain import DrainPlan
from navarchos.operator.api.v1alpha1 import NodeDrainStatus
from navarchos.operator.drains.decide import (
    AdoptDrain,
    CordonNode,
    DrainDecision,
    EvictPods,
    ReleaseDrain,
    Report,
    UncordonNode,
    decide,
)
from navarchos.operator.drains.observation import DrainObservation, Read
from navarchos.operator.drains.status import compute_status
from navarchos.operator.nodes import Node
from navarchos.operator.throttle import REQUEUE_SOON

PLAN = DrainPlan(evict=(planned("a"), planned("b")))
ALL_READS = frozenset(Read)


def node(*, cordoned: bool) -> Node:
    metadata = {"name": "n1", "uid": "n"}
    return msgspec.convert({"metadata": metadata, "spec": {"unschedulable": cordoned}}, Node)


def fresh(now: datetime = NOW, *, cordoned: bool = True) -> DrainObservation:
    """Return what the first reconciles of a drain observe."""
    seen = observation(NodeDrainStatus(), now, plan=PLAN)
    return replace(seen, node=node(cordoned=cordoned), reads=ALL_READS)


def begun(now: datetime = NOW) -> DrainObservation:
    """Return what a reconcile observes when the pods have been recorded."""
    seen = fresh(now)
    status = compute_status(seen, Report.PROGRESS)
    return replace(seen, drain=msgspec.structs.replace(seen.drain, status=status))


def test_each_read_is_asked_for_before_it_is_used() -> None:
    seen = replace(begun(), reads=frozenset(), plan=None, node=None)
    assert decide(seen) is Read.NODE
    seen = replace(seen, reads=seen.reads | {Read.NODE}, node=node(cordoned=True))
    assert decide(seen) is Read.PODS
    seen = replace(seen, reads=seen.reads | {Read.PODS}, plan=PLAN)
    assert decide(seen) is Read.LIVE_NODE, "the node may have been replaced under its name"
    seen = replace(seen, reads=seen.reads | {Read.LIVE_NODE})
    decision = decide(seen)
    assert isinstance(decision, DrainDecision)
    assert [type(action) for action in decision.actions] == [EvictPods]


@pytest.mark.rule("IG-78")
def test_a_drain_without_evictions_ends_only_after_it_has_read_a_cordoned_node() -> None:
    seen = replace(fresh(), plan=DrainPlan())
    spec = msgspec.structs.replace(seen.drain.spec, evict=False)
    drain = msgspec.structs.replace(seen.drain, spec=spec)
    cached = replace(seen, drain=drain, reads=frozenset({Read.NODE, Read.PODS, Read.LIVE_PODS}))
    assert decide(cached) is Read.LIVE_NODE, "an earlier drain may have undone its cordon"
    live = replace(cached, reads=ALL_READS)
    assert decide(live) == DrainDecision(report=Report.DRAINED, is_over=True)
    decision = decide(replace(live, node=node(cordoned=False)))
    assert isinstance(decision, DrainDecision)
    assert [type(action) for action in decision.actions] == [CordonNode]


@pytest.mark.rule("OP-40")
def test_the_drain_is_adopted_before_the_node_is_cordoned() -> None:
    seen = fresh(cordoned=False)
    metadata = msgspec.structs.replace(seen.drain.metadata, finalizers=())
    strange = replace(seen, drain=msgspec.structs.replace(seen.drain, metadata=metadata))
    assert decide(strange) == DrainDecision((AdoptDrain("n"),), requeue_after=REQUEUE_SOON)
    decision = decide(seen)
    assert isinstance(decision, DrainDecision)
    assert [type(action) for action in decision.actions] == [CordonNode]
    assert decision.report is None, "the first status is written together with the pods"


@pytest.mark.rule("OP-47")
def test_a_cordon_waits_until_the_status_may_be_written() -> None:
    seen = replace(fresh(cordoned=False), status_wait=0.4)
    assert decide(seen) == DrainDecision(requeue_after=0.4)


@pytest.mark.rule("OP-40")
@given(
    has_begun=st.booleans(),
    is_suspended=st.booleans(),
    is_halted=st.booleans(),
    is_cordoned=st.booleans(),
    has_new_pod=st.booleans(),
    status_wait=st.sampled_from([0.0, 0.5]),
    passed=st.integers(0, 2000),
)
def test_pods_are_evicted_only_when_they_are_stored_and_the_node_is_cordoned(
    has_begun: bool,
    is_suspended: bool,
    is_halted: bool,
    is_cordoned: bool,
    has_new_pod: bool,
    status_wait: float,
    passed: int,
) -> None:
    seen = begun() if has_begun else fresh()
    plan = DrainPlan(evict=(*PLAN.evict, planned("late"))) if has_new_pod else PLAN
    seen = replace(
        seen,
        now=NOW + timedelta(seconds=passed),
        node=node(cordoned=is_cordoned),
        is_suspended=is_suspended,
        is_halted=is_halted,
        status_wait=status_wait,
        plan=plan,
    )
    decision = decide(seen)
    assert isinstance(decision, DrainDecision), "everything has been read"
    evicts = any(isinstance(action, EvictPods) for action in decision.actions)
    is_in_time = passed < 900
    may_evict = has_begun and is_cordoned and not (is_suspended or is_halted or has_new_pod)
    assert evicts is (may_evict and is_in_time)
    assert not (evicts and decision.report), "the next reconcile reports the responses"


@pytest.mark.rule("NP-12")
def test_a_deleted_drain_keeps_its_cordon_until_the_action_on_its_node_has_ended() -> None:
    seen = fresh()
    metadata = msgspec.structs.replace(seen.drain.metadata, deletion_timestamp=NOW)
    spec = msgspec.structs.replace(seen.drain.spec, uncordon_on_delete=True)
    drain = msgspec.structs.replace(seen.drain, metadata=metadata, spec=spec)
    assert decide(replace(seen, drain=drain, is_held=True)) == DrainDecision()
    released = decide(replace(seen, drain=drain))
    assert released == DrainDecision((UncordonNode(), ReleaseDrain()), is_over=True)
