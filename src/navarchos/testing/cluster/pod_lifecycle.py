"""The stages of a pod's life and their times: the decisions of a kubelet."""

import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from navarchos.runtime.durations import parse_duration
from navarchos.testing.cluster.kinds import Pod
from navarchos.testing.cluster.options import Span

__all__ = [
    "RUNS_FOR",
    "STARTS_AFTER",
    "TERMINATES_AFTER",
    "PodStage",
    "PodStageTimers",
    "annotated_span",
    "next_stage",
]

K = TypeVar("K", bound=Hashable)

STARTS_AFTER: Final = "kwok.x-k8s.io/starts-after"
"""Annotation of a pod: how long it takes to start."""

RUNS_FOR: Final = "kwok.x-k8s.io/runs-for"
"""Annotation of a Job's pod: how long it runs until it succeeds."""

TERMINATES_AFTER: Final = "kwok.x-k8s.io/terminates-after"
"""Annotation of a pod: how long it takes to end."""


class PodStage(StrEnum):
    """A stage that a pod enters by itself after some time."""

    START = "start"
    FINISH = "finish"
    TERMINATE = "terminate"
    SYNC = "sync"
    """The conditions of its readiness gates have changed, so its `Ready` does."""
    COLLECT = "collect"
    """Its node does not exist, so no kubelet reports its end."""


def next_stage(pod: Pod, *, node_exists: bool) -> PodStage | None:
    """Return the next stage of a pod, or `None` if the pod does not change by itself.

    Args:
        pod: The pod.
        node_exists: Whether the pod's node exists.
    """
    if not pod.spec.node_name:
        return None
    if not node_exists:
        return PodStage.COLLECT
    if pod.is_terminating:
        return PodStage.TERMINATE
    if pod.status.phase != "Running":
        return PodStage.START if pod.status.phase == "Pending" else None
    if pod.spec.readiness_gates and pod.is_ready is bool(pod.closed_gates):
        return PodStage.SYNC
    owner = pod.owner
    return PodStage.FINISH if owner is not None and owner.kind == "Job" else None


_ANNOTATIONS: Final[Mapping[PodStage, str]] = {
    PodStage.START: STARTS_AFTER,
    PodStage.FINISH: RUNS_FOR,
    PodStage.TERMINATE: TERMINATES_AFTER,
}


def annotated_span(pod: Pod, stage: PodStage) -> Span | None:
    """Return the duration of a stage from the pod's annotations, in simulated seconds.

    kwok uses the same annotations (`navarchos.testing.controlplane.kwok`), so a pod has
    the same durations with both.

    Raises:
        ValueError: The annotation is not a duration.
    """
    value = pod.metadata.annotations.get(_ANNOTATIONS.get(stage, ""))
    if value is None:
        return None
    seconds = parse_duration(value)
    return Span(seconds, seconds)


@dataclass(frozen=True, slots=True)
class _Timer:
    uid: str
    stage: PodStage
    due: float


class PodStageTimers(Generic[K]):
    """The times at which the next stage of each pod is due.

    A timer starts at the first request for it. It starts again for another pod of the same
    name, or for another stage.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._timers_lock = threading.Lock()
        self._timers: dict[K, _Timer] = {}  # guarded by _timers_lock

    def due(self, key: K, uid: str, stage: PodStage, at: float) -> float:
        """Return when the stage is due: `at` for the first request."""
        with self._timers_lock:
            timer = self._timers.get(key)
            if timer is None or (timer.uid, timer.stage) != (uid, stage):
                timer = self._timers[key] = _Timer(uid, stage, at)
            return timer.due

    def forget(self, key: K) -> None:
        """Remove the timer of a pod."""
        with self._timers_lock:
            self._timers.pop(key, None)

    def __len__(self) -> int:
        with self._timers_lock:
            return len(self._timers)
