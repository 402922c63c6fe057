"""What happens to a pod next, and when: the kubelet's decisions."""

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
    "Stage",
    "StageTimers",
    "next_stage",
    "told_span",
]

K = TypeVar("K", bound=Hashable)

STARTS_AFTER: Final = "kwok.x-k8s.io/starts-after"
"""Annotation of a pod: how long it takes to start."""

RUNS_FOR: Final = "kwok.x-k8s.io/runs-for"
"""Annotation of a Job's pod: how long it runs until it succeeds."""

TERMINATES_AFTER: Final = "kwok.x-k8s.io/terminates-after"
"""Annotation of a pod: how long it takes to end."""


class Stage(StrEnum):
    """What happens to a pod by itself, after a while."""

    START = "start"
    FINISH = "finish"
    TERMINATE = "terminate"
    COLLECT = "collect"
    """Its node is gone, so nobody will report its end."""


def next_stage(pod: Pod, *, node_exists: bool) -> Stage | None:
    """Return what happens to a pod next; `None` if nothing does by itself.

    Args:
        pod: The pod.
        node_exists: Whether the node that it is bound to is there.
    """
    if not pod.spec.node_name:
        return None
    if not node_exists:
        return Stage.COLLECT
    if pod.is_terminating:
        return Stage.TERMINATE
    if pod.status.phase == "Pending":
        return Stage.START
    owner = pod.owner
    runs_to_its_end = owner is not None and owner.kind == "Job"
    return Stage.FINISH if pod.status.phase == "Running" and runs_to_its_end else None


_TOLD: Final[Mapping[Stage, str]] = {
    Stage.START: STARTS_AFTER,
    Stage.FINISH: RUNS_FOR,
    Stage.TERMINATE: TERMINATES_AFTER,
}


def told_span(pod: Pod, stage: Stage) -> Span | None:
    """Return how long a stage takes by the pod's annotations, in simulated seconds.

    They are the ones that kwok goes by (`navarchos.testing.controlplane.kwok`), so
    that a pod keeps its pace whoever runs it.

    Raises:
        ValueError: The annotation is no duration.
    """
    told = pod.metadata.annotations.get(_TOLD.get(stage, ""))
    if told is None:
        return None
    seconds = parse_duration(told)
    return Span(seconds, seconds)


@dataclass(frozen=True, slots=True)
class _Timer:
    uid: str
    stage: Stage
    due: float


class StageTimers(Generic[K]):
    """When the next stage of each pod is due; it starts when it is first asked for.

    A pod that another one has taken the name of, or that is at another stage by
    now, starts anew.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._timers_lock = threading.Lock()
        self._timers: dict[K, _Timer] = {}  # guarded by _timers_lock

    def due(self, key: K, uid: str, stage: Stage, at: float) -> float:
        """Return when the stage is due; `at` if it has not been asked for before."""
        with self._timers_lock:
            timer = self._timers.get(key)
            if timer is None or (timer.uid, timer.stage) != (uid, stage):
                timer = self._timers[key] = _Timer(uid, stage, at)
            return timer.due

    def forget(self, key: K) -> None:
        """Drop the timer of a pod that needs none."""
        with self._timers_lock:
            self._timers.pop(key, None)

    def __len__(self) -> int:
        with self._timers_lock:
            return len(self._timers)
