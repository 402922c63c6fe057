"""Objects of the operator, built from the few facts that a test is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from navarchos.meta import ObjectMeta, OwnerReference, ResourceVersion
from navarchos.operator.api.v1alpha1 import (
    GROUP,
    VERSION,
    AttemptFailure,
    DrainPhase,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
    PlannedNode,
    RolloutPhase,
    Step,
    StepStatus,
)
from navarchos.operator.nodes import Node


class Make:
    """Builds objects as a server would have stored them. Times are whole seconds."""

    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

    def at(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def node(self, name: str, *, created: float = -1000, uid: str = "", **labels: str) -> Node:
        return Node(
            metadata=ObjectMeta(
                name=name,
                uid=uid or f"uid-{name}",
                creation_timestamp=self.at(created),
                labels={key.replace("_", "-"): value for key, value in labels.items()},
            )
        )

    def rollout(
        self,
        name: str = "roll",
        *,
        phase: RolloutPhase | None = RolloutPhase.IN_PROGRESS,
        nodes: tuple[str, ...] = (),
        annotations: dict[str, str] | None = None,
        deleting: bool = False,
        status: dict[str, Any] | None = None,
        **spec: Any,
    ) -> NodeRollout:
        base = NodeRollout(
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-{name}",
                generation=1,
                resource_version=ResourceVersion("1"),
                annotations=annotations or {},
                deletion_timestamp=self.now if deleting else None,
            )
        )
        given = msgspec.convert(spec, type(base.spec))
        known = msgspec.structs.replace(
            base.status,
            phase=phase,
            observed_generation=1,
            start_timestamp=self.at(-100) if phase is not None else None,
            nodes=tuple(PlannedNode(node, f"uid-{node}") for node in nodes),
        )
        known = msgspec.structs.replace(known, **(status or {}))
        return msgspec.structs.replace(base, spec=given, status=known)

    def replacement(
        self,
        node: str,
        *,
        rollout: str = "roll",
        step: Step = Step.WAITING,
        reason: str = "",
        since: float = 0,
        done: float | None = None,
        started: float | None = None,
        attempts: int = 0,
        failed_at: tuple[float, ...] = (),
        deleting: bool = False,
        annotations: dict[str, str] | None = None,
        status: dict[str, Any] | None = None,
        **spec: Any,
    ) -> NodeReplacement:
        name = f"{rollout}-{node}" if rollout else node
        owners = (self._owner("NodeRollout", rollout),) if rollout else ()
        given = {"nodeName": node, "nodeUID": f"uid-{node}", **spec}
        base = msgspec.convert({"spec": given}, NodeReplacement)
        known = msgspec.structs.replace(
            base.status,
            phase=step.phase,
            step=StepStatus(name=step, started_at=self.at(since), reason=reason),
            attempts=attempts or len(failed_at),
            failures=tuple(
                AttemptFailure(attempt=n + 1, at=self.at(at), reason="Timeout")
                for n, at in enumerate(failed_at)
            ),
            start_timestamp=None if started is None else self.at(started),
            completion_timestamp=None if done is None else self.at(done),
        )
        return msgspec.structs.replace(
            base,
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-{name}",
                resource_version=ResourceVersion("1"),
                generation=1,
                owner_references=owners,
                annotations=annotations or {},
                deletion_timestamp=self.now if deleting else None,
            ),
            status=msgspec.structs.replace(known, **(status or {})),
        )

    def drain(
        self,
        replacement: NodeReplacement,
        *,
        phase: DrainPhase | None = DrainPhase.DRAINING,
        cordoned: bool = True,
        deleting: bool = False,
        status: dict[str, Any] | None = None,
        **spec: Any,
    ) -> NodeDrain:
        conditions = [{"type": "Cordoned", "status": "True" if cordoned else "False"}]
        base = msgspec.convert(
            {
                "spec": {"nodeName": replacement.spec.node_name, **spec},
                "status": {"conditions": conditions, **(status or {})},
            },
            NodeDrain,
        )
        name = replacement.metadata.name
        return msgspec.structs.replace(
            base,
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-drain-{name}",
                owner_references=(self._owner("NodeReplacement", name),),
                deletion_timestamp=self.now if deleting else None,
            ),
            status=msgspec.structs.replace(base.status, phase=phase),
        )

    def _owner(self, kind: str, name: str) -> OwnerReference:
        return OwnerReference(
            api_version=f"{GROUP}/{VERSION}",
            kind=kind,
            name=name,
            uid=f"uid-{name}",
            controller=True,
        )


@pytest.fixture(scope="session")
def make() -> Make:
    """Builds objects; it has no state, so one serves all tests."""
    return Make()
