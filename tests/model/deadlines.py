"""How soon the operator obeys: seconds of virtual time, with whole managers.

Nothing goes wrong meanwhile, and no resync covers up a wake-up that is missing.
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
    """A rollout whose first node is stalled at a pod that no budget lets go."""

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
            self.step(_STEP)  # whatever was under way has come to rest

    @property
    def drains(self) -> list[dict[str, Any]]:
        """The drains as the server has them."""
        return self._of("nodedrains")

    @property
    def node(self) -> str:
        """The name of the node that is stalled."""
        return str(self.drains[0]["spec"]["nodeName"])

    @property
    def steps(self) -> Mapping[str, str]:
        """The step of each node's replacement."""
        return {r["spec"]["nodeName"]: step_of(r) for r in self._of("nodereplacements")}

    def is_closed(self, name: str) -> bool:
        """Tell whether a node takes no pods."""
        node = self.server.find("nodes", name)
        return node is not None and bool(node["spec"].get("unschedulable"))

    def ask(self, method: str, path: str, body: Any = None) -> None:
        """Do something as a person does."""
        answer = self.server.request(method, path, body, agent="somebody")
        assert answer.status < 300, answer.body

    def wait(self, done: Callable[[], bool]) -> float:
        """Let time pass until something is so; return how much has."""
        began = self.scheduler.seconds
        while not done():
            assert self.scheduler.seconds < began + _LONGEST, "it does not happen"
            self.step(_STEP)
        return self.scheduler.seconds - began

    def _replicas(self) -> int:
        return 1

    def _workloads(self) -> list[Workload]:
        return [Workload("web", 12, {"maxUnavailable": 0})]


def _a_node_is_deleted(scene: Scene) -> float:
    """Return how long it takes until the slot of a node that is gone has another one."""
    stalled = scene.node
    scene.ask("DELETE", f"/api/v1/nodes/{stalled}")
    others = scene.steps.keys() - {stalled}
    return scene.wait(lambda: any(scene.steps[name] == "Draining" for name in others))


def _a_rollout_is_deleted(scene: Scene) -> float:
    """Return how long it takes until a node that is not empty is given back."""
    stalled = scene.node
    scene.ask("DELETE", f"{_ROLLOUTS}/r")
    return scene.wait(lambda: not scene.is_closed(stalled) and not scene.drains)


def _a_rollout_is_paused(scene: Scene) -> float:
    """Return how long it takes until the drain of a rollout that is paused says so."""
    scene.ask("PATCH", f"{_ROLLOUTS}/r", {"spec": {"paused": True}})
    return scene.wait(lambda: _is_paused(scene.drains[0]))


def _a_budget_is_relaxed(scene: Scene) -> float:
    """Return how long it takes until the first pod is asked again that a budget held up."""
    scene.cluster.set_budget("web", {"maxUnavailable": 2})
    return scene.wait(lambda: bool(scene.judge.evicted))


def _is_paused(drain: Mapping[str, Any]) -> bool:
    conditions = drain["status"].get("conditions") or ()
    return any(c["type"] == "Paused" and c["status"] == "True" for c in conditions)


DEADLINES: Final[Mapping[str, Callable[[Scene], float]]] = {
    "a node is deleted": _a_node_is_deleted,
    "a rollout is deleted": _a_rollout_is_deleted,
    "a rollout is paused": _a_rollout_is_paused,
    "a budget is relaxed": _a_budget_is_relaxed,
}
"""By what somebody does."""


def measure(what: str) -> float:
    """Return how many seconds of virtual time pass until the operator has obeyed."""
    scene = Scene()
    try:
        return DEADLINES[what](scene)
    finally:
        scene.close()
