"""Measure how soon the operator reacts, in virtual seconds, with whole managers.

There are no faults, and no resync hides a missing trigger.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.model.cluster import Workload
from tests.model.judging import GROUP, step_of
from tests.model.run import Run

__all__ = ["DEADLINES", "measure"]

_SEED: Final = 3
_STEP: Final = 0.25
_LONGEST: Final = 300.0
_ROLLOUTS: Final = f"/apis/{GROUP}/v1alpha1/noderollouts"


class Scene(Run):
    """A rollout whose first node is stalled, because a budget blocks one of its pods."""

    def __init__(self) -> None:
        super().__init__(_SEED)
        for name in self.cluster.workloads:
            self.cluster.set_budget(name, {"maxUnavailable": 0})
        self.cluster.count_budgets()
        spec = {"nodeSelectors": [{"matchAll": True}], "drain": {"evictionRetrySeconds": 3600}}
        self.ask(
            "POST",
            _ROLLOUTS,
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "NodeRollout",
                "metadata": {"name": "r"},
                "spec": spec,
            },
        )
        self.wait(lambda: any(drain.get("status", {}).get("blocked") for drain in self.drains))
        for _ in range(40):
            self.step(_STEP)  # everything in progress has ended

    @property
    def drains(self) -> list[dict[str, Any]]:
        """Return the drains of the server."""
        return self._of("nodedrains")

    @property
    def node(self) -> str:
        """Return the name of the stalled node."""
        return str(self.drains[0]["spec"]["nodeName"])

    @property
    def steps(self) -> Mapping[str, str]:
        """Return the step of each node's replacement."""
        return {r["spec"]["nodeName"]: step_of(r) for r in self._of("nodereplacements")}

    def is_closed(self, name: str) -> bool:
        """Return whether a node is cordoned."""
        node = self.server.find("nodes", name)
        return node is not None and bool(node["spec"].get("unschedulable"))

    def ask(self, method: str, path: str, body: Any = None) -> None:
        """Send a request as a user does."""
        answer = self.server.request(method, path, body, agent="user")
        assert answer.status < 300, answer.body

    def wait(self, done: Callable[[], bool]) -> float:
        """Let time pass until a condition holds; return the elapsed seconds."""
        began = self.scheduler.seconds
        while not done():
            assert self.scheduler.seconds < began + _LONGEST, "the condition does not hold in time"
            self.step(_STEP)
        return self.scheduler.seconds - began

    def _replicas(self) -> int:
        return 1

    def _workloads(self) -> list[Workload]:
        return [Workload("web", 12, {"maxUnavailable": 0})]


def _a_node_is_deleted(scene: Scene) -> float:
    """Return how long it takes until another node has the slot of a deleted node."""
    stalled = scene.node
    scene.ask("DELETE", f"/api/v1/nodes/{stalled}")
    others = scene.steps.keys() - {stalled}
    return scene.wait(lambda: any(scene.steps[name] == "Draining" for name in others))


def _a_rollout_is_deleted(scene: Scene) -> float:
    """Return how long it takes until a node that is not empty is uncordoned."""
    stalled = scene.node
    scene.ask("DELETE", f"{_ROLLOUTS}/r")
    return scene.wait(lambda: not scene.is_closed(stalled) and not scene.drains)


def _a_rollout_is_paused(scene: Scene) -> float:
    """Return how long it takes until the drain of a paused rollout shows the pause."""
    scene.ask("PATCH", f"{_ROLLOUTS}/r", {"spec": {"paused": True}})
    return scene.wait(lambda: _is_paused(scene.drains[0]))


def _a_budget_is_relaxed(scene: Scene) -> float:
    """Return how long it takes until the first blocked pod is evicted again."""
    scene.cluster.set_budget("web", {"maxUnavailable": 2})
    return scene.wait(lambda: bool(scene.judge.drains.evicted))


def _is_paused(drain: Mapping[str, Any]) -> bool:
    conditions = drain["status"].get("conditions") or ()
    return any(c["type"] == "Paused" and c["status"] == "True" for c in conditions)


DEADLINES: Final[Mapping[str, Callable[[Scene], float]]] = {
    "a node is deleted": _a_node_is_deleted,
    "a rollout is deleted": _a_rollout_is_deleted,
    "a rollout is paused": _a_rollout_is_paused,
    "a budget is relaxed": _a_budget_is_relaxed,
}
"""Measurements by the user's action."""


def measure(what: str) -> float:
    """Return the virtual seconds until the operator has reacted."""
    scene = Scene()
    try:
        return DEADLINES[what](scene)
    finally:
        scene.close()
