from typing import Any

import msgspec
import pytest
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import DrainPhase, OwnerKey, ReplacementPhase, Step
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.status import (
    failed_attempt_status,
    node_gone_status,
    released_status,
    reserved_status,
    reset_requested,
    reset_status,
    waiting_status,
    with_drain_report,
)
from navarchos.runtime.conditions import find_condition


def condition(status: Any, type_: str) -> tuple[str, str]:
    found = find_condition(status.conditions, type_)
    assert found is not None
    return found.status, found.reason


@pytest.mark.rule("OP-21")
def test_an_unchanged_wait_reason_is_not_a_change(make: Make) -> None:
    replacement = make.replacement("a")
    status = waiting_status(replacement, WaitReason.QUEUED, make.now)
    assert status is not None
    assert condition(status, "Waiting") == ("True", "Queued")
    assert status.phase is ReplacementPhase.NEW
    again = msgspec.structs.replace(replacement, status=status)
    assert waiting_status(again, WaitReason.QUEUED, make.at(60)) is None
    assert waiting_status(again, WaitReason.PAUSED, make.at(60)) is not None


def test_a_changed_message_of_a_wait_is_written_and_the_wait_does_not_start_again(
    make: Make,
) -> None:
    replacement = make.replacement("a")
    first = waiting_status(replacement, WaitReason.MAX_CONCURRENT, make.now, "node-7 is in flight")
    assert first is not None
    again = msgspec.structs.replace(replacement, status=first)
    at = make.at(60)
    assert waiting_status(again, WaitReason.MAX_CONCURRENT, at, "node-7 is in flight") is None
    second = waiting_status(again, WaitReason.MAX_CONCURRENT, at, "node-8 is in flight")
    assert second is not None
    assert second.step == first.step
    found = find_condition(second.conditions, "Waiting")
    assert found is not None
    assert found.message == "node-8 is in flight"
    without = waiting_status(again, WaitReason.MAX_CONCURRENT, at)
    assert without is not None
    found = find_condition(without.conditions, "Waiting")
    assert found is not None
    assert found.message == WaitReason.MAX_CONCURRENT.message


def test_a_wait_for_pending_pods_has_a_deadline(make: Make) -> None:
    replacement = make.replacement("a", strategy={"pendingPodsTimeoutSeconds": 60})
    status = waiting_status(replacement, WaitReason.PENDING_PODS, make.now)
    assert status is not None
    assert status.step is not None
    assert status.step.deadline == make.at(60)


def test_occupying_a_slot_ends_the_wait_and_sets_the_start_once(make: Make) -> None:
    first = reserved_status(make.replacement("a"), make.now)
    assert first.current is Step.RESERVED
    assert condition(first, "Waiting") == ("False", "Started")
    assert first.start_timestamp == make.now
    again = msgspec.structs.replace(make.replacement("a"), status=first)
    assert reserved_status(again, make.at(60)).start_timestamp == make.now


@pytest.mark.rule("OP-25")
def test_a_failed_attempt_waits_again_until_its_retries_are_used_up(make: Make) -> None:
    replacement = make.replacement("a", step=Step.DRAINING, strategy={"retries": 1})
    for attempt, end in ((1, Step.WAITING), (2, Step.FAILED)):
        failed = failed_attempt_status(replacement, "Timeout", "why", make.now)
        assert failed.current is Step.RELEASING
        assert failed.attempts == len(failed.failures) == attempt
        replacement = msgspec.structs.replace(replacement, status=failed)
        status = released_status(replacement, make.now)
        assert status.current is end
        replacement = msgspec.structs.replace(replacement, status=status)
    assert replacement.status.phase is ReplacementPhase.FAILED
    assert replacement.status.completion_timestamp == make.now
    assert replacement.status.step is not None
    assert replacement.status.step.reason == "Timeout"


@pytest.mark.rule("OP-08")
def test_a_reset_makes_a_failed_node_wait_again_with_all_its_retries(make: Make) -> None:
    failed = make.replacement(
        "a",
        step=Step.FAILED,
        failed_at=(-9, -8),
        done=-8,
        annotations={RESUME_ANNOTATION: "please"},
    )
    assert reset_requested(failed)
    status = reset_status(failed, make.now)
    assert status.current is Step.WAITING
    assert status.completion_timestamp is None
    assert status.counted_attempts == 0
    assert status.attempts == 2, "the names of further drains continue the numbers"
    assert status.failures == ()
    obeyed = msgspec.structs.replace(failed, status=status)
    assert not reset_requested(obeyed)


def test_a_reset_does_not_change_the_step_of_a_node_in_flight(make: Make) -> None:
    draining = make.replacement(
        "a", step=Step.DRAINING, failed_at=(-9,), annotations={RESUME_ANNOTATION: "please"}
    )
    status = reset_status(draining, make.now)
    assert status.current is Step.DRAINING
    assert status.counted_attempts == 0


@pytest.mark.rule("OP-20")
def test_a_deleted_node_is_completed_with_its_reason(make: Make) -> None:
    status = node_gone_status(make.replacement("a"), make.now)
    assert status.phase is ReplacementPhase.COMPLETED
    assert status.completion_timestamp == make.now
    assert status.step is not None
    assert status.step.reason == "NodeGone"
    assert condition(status, "NodeDrained") == ("False", "NodeGone")


def test_the_report_of_the_drain_is_copied_with_counts(make: Make) -> None:
    replacement = make.replacement("a", step=Step.DRAINING)
    drain = make.drain(
        replacement,
        phase=DrainPhase.DRAINING,
        status={
            "nodePods": ["default/a", "default/b", "default/c"],
            "evictedPods": ["default/a"],
            "ignoredPods": [{"name": "default/b", "reason": "DaemonSet"}],
            "failedPods": [{"name": "default/c", "reason": "why"}],
        },
    )
    status = with_drain_report(replacement, drain, make.now)
    assert status.node_pods == ("default/a", "default/b", "default/c")
    assert (
        status.node_pods_count,
        status.evicted_pods_count,
        status.ignored_pods_count,
        status.failed_pods_count,
    ) == (3, 1, 1, 1)
    assert condition(status, "NodeCordoned") == ("True", "NodeCordoned")
    again = msgspec.structs.replace(replacement, status=status)
    assert with_drain_report(again, drain, make.at(60)) == status


def test_owners_of_evicted_pods_are_kept_over_attempts(make: Make) -> None:
    first = OwnerKey("default", "ReplicaSet", "web", "uid-web")
    replacement = make.replacement("a", step=Step.DRAINING, status={"evicted_owners": (first,)})
    second = {"namespace": "default", "kind": "ReplicaSet", "name": "api", "uid": "uid-api"}
    drain = make.drain(replacement, status={"evictedOwners": [second]})
    status = with_drain_report(replacement, drain, make.now)
    assert [owner.name for owner in status.evicted_owners] == ["api", "web"]
