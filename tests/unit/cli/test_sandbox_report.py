from navarchos.cli.sandbox.observer import Snapshot
from navarchos.cli.sandbox.runner import SandboxReport, why_not_completed
from navarchos.meta import ObjectMeta
from navarchos.operator.api.v1alpha1 import (
    BlockedPod,
    NodeReplacement,
    NodeReplacementSpec,
    NodeReplacementStatus,
    NodeRollout,
    NodeRolloutStatus,
    PlannedNode,
    PodNote,
    ReplacementPhase,
    RolloutPhase,
)
from navarchos.runtime.conditions import Condition


def rollout(name: str, phase: RolloutPhase, **status: object) -> NodeRollout:
    return NodeRollout(
        metadata=ObjectMeta(name=name),
        status=NodeRolloutStatus(phase=phase, nodes=(PlannedNode("a", "1"),), **status),  # type: ignore[arg-type]  # by test
    )


def snapshot(*rollouts: NodeRollout, replacements: tuple[NodeReplacement, ...] = ()) -> Snapshot:
    return Snapshot((), rollouts, replacements, (), 0, ())


def test_the_report_has_the_documented_keys() -> None:
    report = SandboxReport(
        rollouts=[rollout("r", RolloutPhase.COMPLETED, replacements_completed_count=1)],
        nodes=1,
        order=["a"],
        max_in_flight=1,
        evictions=3,
        api_requests={"list": 2, "get": 1},
        manager_peak_memory=50 * 2**20,
        seconds=1.25,
    )
    assert report.as_json() == {
        "rollouts": [
            {"name": "r", "phase": "Completed", "created": 0, "completed": 1, "failed": 0}
        ],
        "nodes": 1,
        "order": ["a"],
        "maxInFlight": 1,
        "evictions": 3,
        "apiRequests": {"get": 1, "list": 2},
        "managerPeakMemoryMiB": 50.0,
        "seconds": 1.25,
    }
    assert "r Completed: 1 of 1 nodes replaced" in report.as_text()


def test_a_halted_rollout_shows_the_reason_and_the_blocked_pods() -> None:
    halted = rollout(
        "r",
        RolloutPhase.HALTED,
        conditions=(
            Condition(type="Halted", status="True", reason="TooManyFailures", message="1 failed"),
        ),
    )
    failed = NodeReplacement(
        metadata=ObjectMeta(name="r-a"),
        spec=NodeReplacementSpec(node_name="a"),
        status=NodeReplacementStatus(
            phase=ReplacementPhase.FAILED,
            failed_pods=tuple(PodNote(f"shop/p{n}", "UnmanagedPod") for n in range(5)),
        ),
    )
    line = why_not_completed(snapshot(halted, replacements=(failed,)), ["r"])
    assert line == (
        "r is Halted (TooManyFailures: 1 failed); blocked by shop/p0 on a: UnmanagedPod, "
        "shop/p1 on a: UnmanagedPod, shop/p2 on a: UnmanagedPod, and 2 more"
    )


def test_a_late_rollout_shows_the_blocking_budget() -> None:
    late = rollout(
        "r",
        RolloutPhase.IN_PROGRESS,
        blocked=(BlockedPod(node="a", pod="shop/web-0", reason="PDBZero", budget="shop/web"),),
    )
    line = why_not_completed(snapshot(late, rollout("ok", RolloutPhase.COMPLETED)), ["r", "ok"])
    assert line == (
        "r is InProgress (0 of 1 nodes replaced); blocked by shop/web-0 on a: PDBZero shop/web"
    )


def test_a_deleted_rollout_is_named() -> None:
    assert why_not_completed(snapshot(), ["r"]) == "r was deleted"
