"""Users and other programs that change the objects of the operator."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.model.cluster import Cluster
from tests.model.judging import GROUP, Judge
from tests.model.scheduling import Scheduler
from tests.model.serving import Server
from tests.model.trouble import Shaken, Trace

from navarchos.operator.names import RESUME_ANNOTATION

__all__ = ["People"]

_CUSTOM: Final = f"/apis/{GROUP}/v1alpha1"
_TIGHT: Final = ({"maxUnavailable": 1}, {"minAvailable": 1}, {"maxUnavailable": 0})


class People:
    """Makes random changes on request.

    Attributes:
        cordoned: Nodes that a user cordoned, by uid.
        interfered: Nodes whose cordon a user has changed, by uid.
        add_fields: Adds fields of further features to the spec of a rollout.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        server: Server,
        cluster: Cluster,
        trouble: Shaken,
        judge: Judge,
        rand: random.Random,
        trace: Trace,
    ) -> None:
        self.cordoned: set[str] = set()
        self.interfered: set[str] = set()
        self.add_fields: Callable[[dict[str, Any]], None] = lambda _: None
        self._scheduler = scheduler
        self._server = server
        self._cluster = cluster
        self._trouble = trouble
        self._judge = judge
        self._rand = rand
        self._trace = trace
        self._rollouts = 0
        self._is_healing = False
        self._returning: list[tuple[float, str]] = []
        self._acts: tuple[tuple[int, Callable[[], None]], ...] = (
            (2, self.cordon),
            (2, self.uncordon),
            (4, self.touch_node),
            (6, self.pause),
            (2, self.pause_replacement),
            (3, self.delete_pod),
            (2, self.delete_child),
            (3, self.edit_rollout),
            (2, self.resume),
            (3, self.lose_node),
            (3, self.change_budget),
            (1, self.delete_rollout),
            (2, self.add_rollout),
            (2, self.toggle_webhook),
            (2, self.toggle_endless),
            (1, self.toggle_hopeless),
        )

    def act(self) -> None:
        """Make one change."""
        weights = [weight for weight, _ in self._acts]
        self._rand.choices([act for _, act in self._acts], weights)[0]()

    def step(self) -> None:
        """Re-create machines whose time has come, and end holds that began recently."""
        if self._is_healing:
            self._let_latecomers_go()
        now = self._scheduler.seconds
        due = [name for at, name in self._returning if at <= now]
        self._returning = [(at, name) for at, name in self._returning if at > now]
        for name in due:
            self._trace.add("cloud", f"node {name} comes back as another machine")
            self._cluster.add_node(name)

    def heal(self) -> None:
        """End everything that users began."""
        self._is_healing = True
        self._cluster.endless = self._cluster.hopeless = False
        for name in self._cluster.workloads:
            self._cluster.set_budget(name, {"maxUnavailable": 1})
        # Where no node is left for its pods, only a user can end a drain on hold.
        let_go = {"spec": {"paused": False, "drain": {"onTimeout": "Fail"}}}
        for obj in (*self._of("noderollouts"), *self._of("nodereplacements")):
            self._patch(obj, let_go)
        for drain in self._of("nodedrains"):
            self._patch(drain, {"spec": {"onTimeout": "Fail"}})

    def _let_latecomers_go(self) -> None:
        # A replacement that was made from an outdated rollout starts with its old spec
        # (OP-10), and a user sees it on hold.
        for found in self._of("nodereplacements"):
            if found["spec"]["drain"].get("onTimeout") == "Hold":
                self._patch(found, {"spec": {"drain": {"onTimeout": "Fail"}}})
        for drain in self._of("nodedrains"):
            if drain["spec"].get("onTimeout") == "Hold":
                self._patch(drain, {"spec": {"onTimeout": "Fail"}})

    def add_rollout(self) -> None:
        """Create a rollout."""
        rand = self._rand
        self._rollouts += 1
        names = self._cluster.names
        chosen = rand.sample(names, rand.randint(1, len(names)))
        if rand.random() < 0.5:
            spec: dict[str, Any] = {"nodeSelectors": [{"matchAll": True}]}
        else:
            spec = {"nodeNames": [{"name": name, **self._priority()} for name in chosen]}
        if "nodeSelectors" in spec and rand.random() < 0.5:
            zone = {"matchLabels": {"zone": "a"}, **self._priority()}
            spec["nodeSelectors"].append(zone)
        spec["strategy"] = {
            "maxConcurrent": rand.choice([1, 1, 2, 3]),
            "maxFailures": rand.choice([0, 0, 1, 5]),
            "retries": rand.choice([0, 1, 1, 2]),
            "onNodeFailure": rand.choice(["Uncordon", "Uncordon", "Keep"]),
            "pendingPods": rand.choice(["Evicted", "Evicted", "Any", "Ignore"]),
            "pendingPodsTimeoutSeconds": 60,
            "settleSeconds": rand.choice([0, 5, 15]),
            **({"topologyKey": "zone"} if rand.random() < 0.3 else {}),
            "taintWaitingNodes": len(chosen) % 2 == 0,
        }
        spec["drain"] = {
            "timeoutSeconds": rand.choice([30, 60, 120]),
            "onTimeout": rand.choice(["Fail", "Fail", "Hold"]),
            "gracePeriodSeconds": rand.choice([-1, 5]),
            "evictionRetrySeconds": 5,
        }
        spec["paused"] = rand.random() < 0.1
        self.add_fields(spec)
        name = f"r{self._rollouts}"
        self._trace.add("user", f"creates rollout {name} {spec}")
        self._server.request(
            "POST",
            f"{_CUSTOM}/noderollouts",
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "NodeRollout",
                "metadata": {"name": name},
                "spec": spec,
            },
        )

    def cordon(self) -> None:
        """Cordon a node that is not cordoned."""
        node = self._choose([n for n in self._nodes() if not n["spec"].get("unschedulable")])
        if node is not None:
            self.cordoned.add(node["metadata"]["uid"])
            self.interfered.add(node["metadata"]["uid"])
            self._patch_node(node, {"spec": {"unschedulable": True}})

    def uncordon(self) -> None:
        """Uncordon a cordoned node."""
        node = self._choose([n for n in self._nodes() if n["spec"].get("unschedulable")])
        if node is not None:
            self.cordoned.discard(node["metadata"]["uid"])
            self.interfered.add(node["metadata"]["uid"])
            self._patch_node(node, {"spec": {"unschedulable": None}})

    def touch_node(self) -> None:
        """Change a node in a way that does not matter to the operator."""
        node = self._choose(self._nodes())
        if node is not None:
            what = self._rand.choice(["labels", "annotations"])
            value = str(self._rand.randrange(1000))
            self._patch_node(node, {"metadata": {what: {"user": value}}})

    def pause(self) -> None:
        """Pause or resume a rollout."""
        rollout = self._choose(self._of("noderollouts"))
        if rollout is not None:
            self._patch(rollout, {"spec": {"paused": not rollout["spec"].get("paused")}})

    def pause_replacement(self) -> None:
        """Pause or resume a replacement; its rollout will undo it."""
        found = self._choose(self._of("nodereplacements"))
        if found is not None:
            self._patch(found, {"spec": {"paused": not found["spec"].get("paused")}})

    def delete_pod(self) -> None:
        """Delete a pod as its controller would."""
        pods = [p for p in self._server.list("pods") if p["metadata"]["namespace"] == "default"]
        pod = self._choose(pods)
        if pod is not None:
            path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
            self._ask("DELETE", path)
            # An eviction before the budget is updated would be granted, here as on
            # a real server, and violate it, which its sender could not know.
            self._cluster.count_budgets()

    def delete_child(self) -> None:
        """Delete an object that the operator has created."""
        plural = self._rand.choice(["nodereplacements", "nodedrains"])
        found = self._choose(self._of(plural))
        if found is not None:
            self._ask("DELETE", f"{_CUSTOM}/{plural}/{found['metadata']['name']}")

    def edit_rollout(self) -> None:
        """Edit a running rollout."""
        rollout = self._choose(self._of("noderollouts"))
        if rollout is not None:
            field, value = self._rand.choice(
                [
                    ("maxConcurrent", self._rand.choice([1, 2, 3, "50%"])),
                    ("maxFailures", self._rand.choice([0, 1, 3])),
                    ("retries", self._rand.choice([0, 1, 2])),
                    ("onNodeFailure", self._rand.choice(["Uncordon", "Keep"])),
                ]
            )
            self._patch(rollout, {"spec": {"strategy": {field: value}}})

    def resume(self) -> None:
        """Reset the failures of a rollout."""
        rollout = self._choose(self._of("noderollouts"))
        if rollout is not None:
            token = str(self._rand.randrange(10**6))
            self._patch(rollout, {"metadata": {"annotations": {RESUME_ANNOTATION: token}}})

    def lose_node(self) -> None:
        """Remove a machine; another one may appear under its name."""
        node = self._choose(self._nodes())
        if node is None or len(self._nodes()) < 2:
            return
        name = node["metadata"]["name"]
        self._ask("DELETE", f"/api/v1/nodes/{name}")
        self._judge.disturbed()
        if self._rand.random() < 0.8:
            back = self._scheduler.seconds + self._rand.choice([0.0, 0.5, 5.0, 20.0])
            self._returning.append((back, name))

    def change_budget(self) -> None:
        """Replace or remove the budget of a workload."""
        name = self._rand.choice(sorted(self._cluster.workloads))
        rule: Mapping[str, int] | None = self._rand.choice([*_TIGHT, None])
        self._trace.add("user", f"gives {name} the budget {rule}")
        self._cluster.set_budget(name, rule)

    def delete_rollout(self) -> None:
        """Delete a rollout."""
        rollout = self._choose(self._of("noderollouts"))
        if rollout is not None:
            self._ask("DELETE", f"{_CUSTOM}/noderollouts/{rollout['metadata']['name']}")

    def delete_rollouts(self) -> None:
        """Delete every rollout."""
        for rollout in self._of("noderollouts"):
            self._ask("DELETE", f"{_CUSTOM}/noderollouts/{rollout['metadata']['name']}")

    def toggle_webhook(self) -> None:
        """Start or stop an admission webhook that refuses evictions."""
        self._trouble.refuses_evictions = not self._trouble.refuses_evictions
        self._trace.add("webhook", f"refuses: {self._trouble.refuses_evictions}")

    def toggle_endless(self) -> None:
        """Toggle whether deleted pods terminate."""
        self._cluster.endless = not self._cluster.endless
        self._trace.add("kubelet", f"pods do not end: {self._cluster.endless}")

    def toggle_hopeless(self) -> None:
        """Toggle whether new pods become ready."""
        self._cluster.hopeless = not self._cluster.hopeless
        self._trace.add("kubelet", f"new pods stay pending: {self._cluster.hopeless}")

    def _priority(self) -> dict[str, Any]:
        return {"replacement": {"priority": self._rand.choice([0, 0, 5, 9])}}

    def _choose(self, found: list[dict[str, Any]]) -> dict[str, Any] | None:
        return self._rand.choice(found) if found else None

    def _nodes(self) -> list[dict[str, Any]]:
        return self._server.list("nodes")

    def _of(self, plural: str) -> list[dict[str, Any]]:
        return self._server.list(plural, GROUP)

    def _patch(self, obj: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        plural = f"{obj['kind'].lower()}s"
        self._ask("PATCH", f"{_CUSTOM}/{plural}/{obj['metadata']['name']}", body)

    def _patch_node(self, node: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        self._ask("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", body)

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        # Deletions by others are not caused by the operator, so no budget counts them.
        agent = "navarchos-simulator/user" if "/pods/" in path else "user"
        answer = self._server.request(method, path, body, agent=agent)
        short = path.rpartition("v1alpha1/")[2].removeprefix("/api/v1/")
        self._trace.add("user", f"{method} {short} {body or ''}: {answer.status}")
