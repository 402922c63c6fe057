"""One case: its nodes, workloads and objects, checked from beginning to end."""

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import yaml
from tests.cases import manifests
from tests.cases.checker import Checker
from tests.cases.managers import ManagerProcess
from tests.cases.target import JsonObject, Target
from tests.cases.waiting import LATE, wait_for

from navarchos.client import Propagation, ignore_not_found
from navarchos.testing.controlplane.guard import Guard

__all__ = ["Case", "case_name"]

_OURS: Final = ("NodeRollout", "NodeReplacement", "NodeDrain")
_WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "Job")


def case_name(test: str) -> str:
    """Return a unique name for the objects of a test."""
    words = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_"))
    unique = hashlib.sha256(f"{test} {os.getpid()}".encode()).hexdigest()
    return f"{words[:30].strip('-')}-{unique[:4]}"


class Case:
    """Changes the cluster for one case and waits for results.

    Attributes:
        name: The name of its namespace and rollout, and the beginning of its nodes' names.
        target: The cluster.
        checker: Checks all changes; fails the case on any violation.
    """

    def __init__(
        self, name: str, target: Target, checker: Checker, guard: Guard, account: Path
    ) -> None:
        self.name = name
        self.target = target
        self.checker = checker
        self._guard = guard
        self._account = account
        self._managers: list[ManagerProcess] = []
        self._has_namespace = False

    # Creating and changing objects.

    def add_nodes(self, count: int, *, first: int = 1, **labels: str) -> list[str]:
        """Make nodes and wait until they are ready."""
        names = [f"{self.name}-{number}" for number in range(first, first + count)]
        for name in names:
            node = manifests.node(name, self.name, **labels)
            if not self.target.runs_kwok:
                node["status"] = manifests.ready_status(name)
            self.target.create(node)
        self.wait_until_ready(names)
        return names

    def wait_until_ready(self, names: Sequence[str]) -> None:
        """Wait until nodes can take pods."""
        for name in names:
            wait_for(f"node {name} to be ready", lambda: self._takes_pods(name))  # noqa: B023 - called at once

    def add(self, *made: JsonObject) -> None:
        """Create objects in the case's namespace and wait until their pods are ready."""
        if not self._has_namespace:
            self.target.create(manifests.namespace(self.name))
            self._has_namespace = True
        self.target.create(*made)
        self.settle()

    def settle(self) -> None:
        """Wait until workloads have all their pods and budgets count them."""
        lacking: list[str] = []

        def is_ready() -> bool:
            lacking[:] = self._unsettled()
            return not lacking

        try:
            wait_for(f"the workloads of {self.name}", is_ready)
        except AssertionError as error:
            error.add_note(f"still missing: {lacking}")
            raise

    def create(self, manifest: JsonObject) -> JsonObject:
        """Create one object of the operator's kinds."""
        (made,) = self.target.create(manifest)
        return made

    def roll(self, **spec: Any) -> JsonObject:
        """Create a rollout of the nodes of the case."""
        return self.create(manifests.rollout(self.name, **spec))

    def change_budget(self, name: str, **spec: object) -> None:
        """Change a budget, after announcing it to the checker."""
        budgets, body = self.target.of("PodDisruptionBudget"), {"spec": spec}
        self.checker.expect(budgets.patch(name, body, self.name, dry_run=True))
        budgets.patch(name, body, self.name)

    def delete(self, kind: str) -> None:
        """Delete the object of this kind with the case's name, as kubectl does.

        The garbage collector deletes its dependents later.
        """
        self.target.of(kind).delete(self.name, propagation=Propagation.BACKGROUND)

    @property
    def account(self) -> Path:
        """The kubeconfig of managers."""
        return self._account

    def manager(self, *arguments: str, name: str = "") -> ManagerProcess:
        """Start a manager with the default lease durations and wait until it is ready."""
        process = self.new_manager(*arguments, name=name)
        process.start()
        return process

    def new_manager(
        self, *arguments: str, name: str = "", kubeconfig: Path | None = None
    ) -> ManagerProcess:
        """Return a manager that was not started yet; with another kubeconfig if one is given."""
        name = f"{self.name}-{name or 'manager'}"
        process = ManagerProcess(self._guard, name, kubeconfig or self._account, *arguments)
        self._managers.append(process)
        return process

    # Reading.

    def status(self, kind: str = "NodeRollout", name: str = "") -> dict[str, Any]:
        """Return the status of an object; empty if it does not exist."""
        found = self.target.find(kind, name or self.name)
        return (found or {}).get("status") or {}

    def phase(self, kind: str = "NodeRollout", name: str = "") -> str:
        """Return the phase of an object; empty if it does not exist."""
        phase = self.status(kind, name).get("phase", "")
        assert isinstance(phase, str)
        return phase

    def condition(self, type_: str, kind: str = "NodeRollout", name: str = "") -> dict[str, Any]:
        """Return a condition of an object; empty if it does not exist."""
        conditions = self.status(kind, name).get("conditions", ())
        return next((each for each in conditions if each["type"] == type_), {})

    def wait_for_phase(
        self, phase: str, kind: str = "NodeRollout", name: str = "", timeout: float = LATE
    ) -> dict[str, Any]:
        """Wait for a phase and return the status."""
        what = f"{kind} {name or self.name} to be {phase}"
        try:
            wait_for(what, lambda: self.phase(kind, name) == phase, timeout)
        except AssertionError as error:
            error.add_note(self._describe())
            raise
        return self.status(kind, name)

    def node(self, name: str) -> JsonObject:
        """Return a node."""
        return self.target.get("Node", name)

    def is_cordoned(self, name: str) -> bool:
        """Return whether a node is cordoned."""
        return bool(self.node(name)["spec"].get("unschedulable"))

    def pods(self, node: str = "") -> list[JsonObject]:
        """Return the pods of the case, or of one of its nodes."""
        found = self.target.list("Pod", self.name)
        return [each for each in found if not node or each["spec"].get("nodeName") == node]

    def replacement(self, node: str) -> str:
        """Return the name of the replacement of a node, by its rollout."""
        return f"{self.name}-{node}"

    def events(self, name: str) -> dict[str, list[JsonObject]]:
        """Return the events about an object of the operator, by reason."""
        found: dict[str, list[JsonObject]] = {}
        for event in self.target.list("Event", "default"):
            if event["regarding"]["name"] == name:
                found.setdefault(event["reason"], []).append(event)
        return found

    def logs(self) -> dict[str, str]:
        """Return the logs of the managers, by name."""
        return {manager.name: manager.log() for manager in self._managers}

    # The end of the case.

    def judge(self) -> None:
        """Fail on any violation."""
        self.checker.settle()
        self.checker.judge_the_end()
        violations = self.checker.violations
        assert not violations, "\n".join(map(str, violations))

    def end(self) -> None:
        """Stop the managers and delete everything that the case created."""
        with ExitStack() as stack:
            # In reverse order; each step runs even if others fail.
            stack.callback(self._remove)
            for manager in self._managers:
                stack.callback(self._stop, manager)

    def _describe(self) -> str:
        """Return the state of the case as a text, to explain a failure."""
        kinds = {kind: self.target.list(kind) for kind in _OURS}
        kinds["Pod"] = self.pods()
        for each in (each for found in kinds.values() for each in found):
            each["metadata"].pop("managedFields", None)
        return yaml.safe_dump(kinds)

    def _stop(self, manager: ManagerProcess) -> None:
        if manager.is_started:
            status = manager.stop()
            assert status == 0, f"{manager.name} ended with {status}:\n{manager.log()[-3000:]}"

    def _remove(self) -> None:
        for kind in _OURS:
            for each in self.target.list(kind):
                self._remove_ours(kind, each)
        wait_for("the deletion of objects", lambda: not any(map(self.target.list, _OURS)))
        for node in self._nodes():
            self.target.patch("Node", node, {"spec": {"unschedulable": None}})
        if self._has_namespace:
            self._remove_workloads()
        for node in self._nodes():
            self.target.of("Node").delete(node)

    def _remove_ours(self, kind: str, each: JsonObject) -> None:
        name = each["metadata"]["name"]
        with ignore_not_found():
            # No manager is left to undo its cordon.
            self.target.patch(kind, name, {"metadata": {"finalizers": None}})
            self.target.of(kind).delete(name, propagation=Propagation.BACKGROUND)

    def _remove_workloads(self) -> None:
        with ignore_not_found():  # the case itself may have ended it
            self.target.of("Namespace").delete(self.name)
        for kind in _WORKLOADS:
            for each in self.target.list(kind, self.name):
                with ignore_not_found():
                    name = each["metadata"]["name"]
                    self.target.of(kind).delete(name, self.name, propagation=Propagation.BACKGROUND)
        wait_for(f"the deletion of the pods of {self.name}", self._no_pods)

    def _no_pods(self) -> bool:
        pods = self.pods()
        for pod in pods:
            with ignore_not_found():
                self.target.of("Pod").delete(
                    pod["metadata"]["name"], self.name, grace_period_seconds=0
                )
        return not pods

    def _nodes(self) -> list[str]:
        selector = f"{manifests.CASE_LABEL}={self.name}"
        found = self.target.list("Node", label_selector=selector)
        return [node["metadata"]["name"] for node in found]

    def _takes_pods(self, name: str) -> bool:
        node = self.node(name)
        conditions = node.get("status", {}).get("conditions", ())
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        keys = [taint["key"] for taint in node["spec"].get("taints", ())]
        return ready and "node.kubernetes.io/not-ready" not in keys

    def _unsettled(self) -> list[str]:
        """Return the workloads and budgets that are not ready yet."""
        lacking = []
        for kind in _WORKLOADS:
            for each in self.target.list(kind, self.name):
                wanted, ready = _replicas(kind, each)
                if wanted != ready:
                    lacking.append(f"{kind} {each['metadata']['name']}: {ready} of {wanted}")
        pods = [pod for pod in self.pods() if (pod["status"].get("phase") != "Running")]
        lacking += [f"pod {pod['metadata']['name']}" for pod in pods]
        for each in self.target.list("PodDisruptionBudget", self.name):
            status = each.get("status", {})
            if status.get("currentHealthy", 0) != self._matching(each):
                lacking.append(f"budget {each['metadata']['name']}")
        return lacking

    def _matching(self, budget: JsonObject) -> int:
        labels = budget["spec"]["selector"]["matchLabels"]
        pods = self.pods()
        return sum(labels.items() <= pod["metadata"].get("labels", {}).items() for pod in pods)


def _replicas(kind: str, workload: JsonObject) -> tuple[int, int]:
    spec, status = workload["spec"], workload.get("status", {})
    match kind:
        case "Deployment":
            return spec["replicas"], status.get("availableReplicas", 0)
        case "StatefulSet":
            return spec["replicas"], status.get("readyReplicas", 0)
        case "DaemonSet":
            # Before its controller has processed it, the number is -1.
            seen = "observedGeneration" in status
            return status["desiredNumberScheduled"] if seen else -1, status.get("numberReady", 0)
        case _:
            return spec["parallelism"], status.get("ready", 0) + status.get("succeeded", 0)
