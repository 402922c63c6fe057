"""What the actions and hooks of a run need beside the operator, and users who disturb them.

One step per second stands for the controller of Jobs, for programs that answer hooks, for a
controller whose pods have a hook, and for kubelets that report how their nodes are.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.model.cluster import Cluster
from tests.model.facts import GROUP, JsonObject, is_finished_job, node_of_job, owner_uid
from tests.model.serving import Server

from navarchos.meta import format_time
from navarchos.operator.marks import EXCLUDE_LABEL
from navarchos.operator.names import DRAIN_HOOK_ANNOTATION, HOOK_ANSWER_PREFIX
from navarchos.testing.cluster.options import Agent

__all__ = ["Actors"]

_CUSTOM: Final = f"/apis/{GROUP}/v1alpha1"
_JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"
_PODS: Final = "/api/v1/namespaces/default/pods"
_MARK: Final = "example.com/out-of-service"

_ANSWERS: Final[Mapping[str, tuple[float, float]]] = {
    "quick": (0.0, 3.0),
    "late": (10.0, 45.0),
    "never": (1e9, 1e9),
}
"""The hooks, and the seconds after which each one answers."""

_GUARD: Final = "guard"


class Actors:
    """Programs and users around actions and hooks.

    Attributes:
        results: Of the next Jobs, instead of random ones: `Complete`, `Failed` or `Hangs`.
    """

    def __init__(
        self,
        server: Server,
        cluster: Cluster,
        rand: random.Random,
        trace: Callable[[str, str], None],
    ) -> None:
        self._server = server
        self._cluster = cluster
        self._rand = rand
        self._trace = trace
        self.results: list[str] = []
        self._made = 0
        self._is_playing = self._is_healing = False
        self._due: dict[str, float] = {}  # by uid, or uid and hook
        self._result: dict[str, str] = {}  # of a Job, by its uid
        self._unwell: dict[str, float] = {}  # by node: until when it is not Ready
        self._acts: tuple[tuple[int, Callable[[], None]], ...] = (
            (1, self.cancel_rollout),
            (1, self.cancel_replacement),
            (4, self.delete_job),
            (3, self.delete_job_pod),
            (5, self.make_unwell),
            (2, self.remove_mark),
            (2, self.add_guard),
        )

    def begin(self) -> None:
        """Take part in this run."""
        self._is_playing = True
        for _ in range(self._rand.randrange(3)):
            self.add_guard()

    def act(self) -> None:
        """Make one change as a user."""
        weights = [weight for weight, _ in self._acts]
        self._rand.choices([act for _, act in self._acts], weights)[0]()

    def heal(self) -> None:
        """Let everything end that has begun."""
        self._is_healing = True
        self._unwell = dict.fromkeys(self._unwell, 0.0)

    def step(self) -> None:
        """Let every program do its next step."""
        if not self._is_playing:
            return
        for node in self._server.list("nodes"):
            self._report(node)
        for job in self._server.list("jobs", "batch"):
            self._follow(job)
        for drain in self._of("nodedrains"):
            self._answer(drain)

    def add_fields(self, spec: dict[str, Any]) -> None:
        """Let a rollout have an action, a preparation, or both."""
        rand = self._rand
        if rand.random() < 0.8:
            spec["action"] = self._action()
        if rand.random() < 0.5:
            spec["drain"]["prepare"] = self._preparation()

    def _action(self) -> dict[str, Any]:
        rand = self._rand
        limit = {"activeDeadlineSeconds": 25} if rand.random() < 0.6 else {}
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        template = {"spec": {**limit, "template": {"spec": pod}}}
        node = rand.choice(["Drained", "Drained", "Cordoned", "InService"])
        action: dict[str, Any] = {
            "job": {"namespace": "default", "template": template},
            "node": node,
            "afterwards": "Keep" if node != "InService" and rand.random() < 0.3 else "Return",
        }
        if rand.random() < 0.5:
            action["verify"] = {
                "readySeconds": rand.choice([0, 5, 20]),
                "timeoutSeconds": rand.choice([15, 60]),
                "daemonSets": rand.random() < 0.3,
                "rebooted": rand.random() < 0.4,
            }
        return action

    def _preparation(self) -> dict[str, Any]:
        rand = self._rand
        prepare: dict[str, Any] = {
            "settleSeconds": rand.choice([0, 5]),
            "hooks": rand.sample([*_ANSWERS], rand.choice([0, 0, 1, 2])),
            "timeoutSeconds": rand.choice([15, 30]),
            "onTimeout": rand.choice(["Fail", "Proceed"]),
        }
        if rand.random() < 0.5:
            prepare["excludeFromExternalLoadBalancers"] = True
        if rand.random() < 0.5:
            prepare["annotateNode"] = {"key": _MARK, "value": "yes"}
        return prepare

    # Users

    def cancel_rollout(self) -> None:
        """Cancel the nodes of a rollout that have not started."""
        self._cancel("noderollouts")

    def cancel_replacement(self) -> None:
        """Cancel one node, whether it has started or not."""
        self._cancel("nodereplacements")

    def delete_job(self) -> None:
        """Delete a Job, with its pods or before them."""
        jobs = self._server.list("jobs", "batch")
        if jobs:
            policy = self._rand.choice(["Foreground", "Background"])
            name = self._rand.choice(jobs)["metadata"]["name"]
            self._ask("DELETE", f"{_JOBS}/{name}?propagationPolicy={policy}")

    def delete_job_pod(self) -> None:
        """Delete the pod of a Job."""
        pods = [pod for pod in self._server.list("pods") if _owner_kind(pod) == "Job"]
        if pods:
            self._ask("DELETE", f"{_PODS}/{self._rand.choice(pods)['metadata']['name']}")

    def make_unwell(self, name: str = "", seconds: float = 0.0) -> None:
        """Let a node be not Ready for a while."""
        name = name or self._rand.choice(self._cluster.names)
        self._unwell[name] = self._now + (seconds or self._rand.choice([5.0, 30.0, 90.0]))
        self._trace("kubelet", f"node {name} is not Ready until {self._unwell[name]:.1f}")

    def remove_mark(self) -> None:
        """Remove a mark from a node, as another tool could."""
        for node in self._server.list("nodes"):
            metadata = node["metadata"]
            if EXCLUDE_LABEL in (metadata.get("labels") or {}):
                body: JsonObject = {"labels": {EXCLUDE_LABEL: None}}
            elif _MARK in (metadata.get("annotations") or {}):
                body = {"annotations": {_MARK: None}}
            else:
                continue
            self._ask("PATCH", f"/api/v1/nodes/{metadata['name']}", {"metadata": body})
            return

    def add_guard(self, name: str = "", hook: str = "") -> None:
        """Create a pod with a hook. Its controller removes it when the hook has answered.

        Args:
            name: The node; any by default.
            hook: The hook; any by default.
        """
        found = [node for node in self._server.list("nodes") if not _is_closed(node)]
        if self._is_healing or not found:
            return
        self._made += 1
        hook = hook or self._rand.choice([*_ANSWERS])
        name = name or self._rand.choice(found)["metadata"]["name"]
        metadata = {"name": f"{_GUARD}-{self._made}", "labels": {"app": _GUARD},
                    "annotations": {DRAIN_HOOK_ANNOTATION: hook}}  # fmt: skip
        self._pod(metadata, name)

    def _cancel(self, plural: str) -> None:
        found = self._of(plural)
        if found:
            name = self._rand.choice(found)["metadata"]["name"]
            self._ask("PATCH", f"{_CUSTOM}/{plural}/{name}", {"spec": {"cancel": True}})

    # Jobs

    def _follow(self, job: JsonObject) -> None:
        """Start a Job, or end it when its time has come."""
        uid = job["metadata"]["uid"]
        if is_finished_job(job) or job["metadata"].get("deletionTimestamp"):
            return
        if uid not in self._due:
            self._begin(job)
        pod = self._find_pod(uid)
        name = pod["metadata"]["name"] if pod is not None else ""
        limit = job["spec"].get("activeDeadlineSeconds")
        is_late = bool(limit) and self._now >= self._began(uid) + limit
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            # The pod ends first: a Job that has ended has no pod that runs.
            if pod is None:
                self._finish(job, "Failed", "BackoffLimitExceeded")
        elif is_late:
            self._write("DELETE", f"{_PODS}/{name}")
        elif self._now >= self._due[uid] or self._is_healing:
            result = "Failed" if self._result[uid] == "Failed" else "Complete"
            phase = "Succeeded" if result == "Complete" else "Failed"
            self._write("PATCH", f"{_PODS}/{name}/status", {"status": {"phase": phase}})
            self._finish(job, result, "ByTheModel")

    def _begin(self, job: JsonObject) -> None:
        metadata, rand = job["metadata"], self._rand
        results = self.results[:1] or ["Complete", "Complete", "Complete", "Failed", "Hangs"]
        what = rand.choice(results)
        del self.results[:1]
        seconds = rand.uniform(1.0, 20.0) if what != "Hangs" else 1e9
        self._due[metadata["uid"]] = self._now + seconds
        self._due[f"{metadata['uid']} began"] = self._now
        self._result[metadata["uid"]] = what
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        template = job["spec"]["template"]["metadata"]
        labels = {**template.get("labels", {}), "app": "job"}
        # A former job of this name may have left its pod.
        name = f"{metadata['name']}-{metadata['uid'][:5]}"
        self._pod({"name": name, "labels": labels, "ownerReferences": [owner]}, node_of_job(job))
        started = format_time(self._server.scheduler.now())
        self._status(job, {"startTime": started, "active": 1})

    def _began(self, uid: str) -> float:
        return self._due[f"{uid} began"]

    def _finish(self, job: JsonObject, result: str, reason: str) -> None:
        at = format_time(self._server.scheduler.now())
        early = "SuccessCriteriaMet" if result == "Complete" else "FailureTarget"
        conditions = [
            {"type": each, "status": "True", "reason": reason, "message": "by the model",
             "lastProbeTime": at, "lastTransitionTime": at}
            for each in (early, result)
        ]  # fmt: skip
        count = {"succeeded": 1, "completionTime": at} if result == "Complete" else {"failed": 1}
        self._status(job, {"conditions": conditions, "active": 0, **count})
        self._trace("job", f"{job['metadata']['name']} is {result}")
        if self._rand.random() < 0.7:
            self._boot(node_of_job(job))

    def _status(self, job: JsonObject, status: JsonObject) -> None:
        self._write("PATCH", f"{_JOBS}/{job['metadata']['name']}/status", {"status": status})

    # Kubelets

    def _boot(self, name: str) -> None:
        if self._server.find("nodes", name) is not None:
            info = {"nodeInfo": {"bootID": f"boot-{self._now:.0f}"}}
            self._write("PATCH", f"/api/v1/nodes/{name}/status", {"status": info})

    def _report(self, node: JsonObject) -> None:
        """Report whether a node is Ready, and since when."""
        name, status = node["metadata"]["name"], node.get("status") or {}
        ready: JsonObject = next(
            (c for c in status.get("conditions") or () if c["type"] == "Ready"), {}
        )
        wanted = "False" if self._now < self._unwell.get(name, 0.0) else "True"
        if ready.get("status") == wanted and ready.get("lastTransitionTime"):
            return
        at = format_time(self._server.scheduler.now())
        condition = {"type": "Ready", "status": wanted, "lastTransitionTime": at}
        body = {"status": {"conditions": [condition]}}
        self._write("PATCH", f"/api/v1/nodes/{name}/status", body)

    # Hooks

    def _answer(self, drain: JsonObject) -> None:
        """Answer the hooks of a drain that asks for them, and end the pods of the others."""
        status = drain.get("status") or {}
        asked = next((c for c in status.get("conditions") or () if c["type"] == "Prepared"), None)
        if asked is None or drain["metadata"].get("deletionTimestamp"):
            return
        node, metadata = drain["spec"]["nodeName"], drain["metadata"]
        guards = [
            pod for pod in self._server.list("pods")
            if pod["spec"].get("nodeName") == node and _hook(pod)
        ]  # fmt: skip
        prepare = drain["spec"].get("prepare") or {}
        known = metadata.get("annotations") or {}
        for hook in sorted({*prepare.get("hooks", ()), *map(_hook, guards)}):
            if known.get(f"{HOOK_ANSWER_PREFIX}{hook}") == "Done":
                continue
            key = f"{metadata['uid']} {hook}"
            if key not in self._due:
                self._due[key] = self._now + self._rand.uniform(*_ANSWERS[hook])
            if self._is_healing or self._now >= self._due[key]:
                answer = {f"{HOOK_ANSWER_PREFIX}{hook}": "Done"}
                path = f"{_CUSTOM}/nodedrains/{metadata['name']}"
                self._ask("PATCH", path, {"metadata": {"annotations": answer}})
        for pod in guards:
            if known.get(f"{HOOK_ANSWER_PREFIX}{_hook(pod)}") == "Done" or self._is_healing:
                path = f"{_PODS}/{pod['metadata']['name']}"
                self._write("DELETE", path, {"gracePeriodSeconds": 0})

    # Requests

    def _pod(self, metadata: JsonObject, node: str) -> None:
        ready = {"type": "Ready", "status": "True"}
        tolerations = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
        self._server.install(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**metadata, "namespace": "default"},
                "spec": {
                    "containers": [{"name": "c", "image": "i"}],
                    "nodeName": node,
                    "tolerations": tolerations,
                },
                "status": {"phase": "Running", "conditions": [ready]},
            }
        )

    @property
    def _now(self) -> float:
        return self._server.scheduler.seconds

    def _of(self, plural: str) -> list[dict[str, Any]]:
        return self._server.list(plural, GROUP)

    def _find_pod(self, owner: str) -> dict[str, Any] | None:
        pods = self._server.list("pods")
        return next((pod for pod in pods if owner_uid(pod) == owner), None)

    def _write(self, method: str, path: str, body: Any = None) -> None:
        self._server.request(method, path, body, agent=Agent.CONTROLLERS)

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        # Deletions by others are not caused by the operator, so no budget counts them.
        agent = "navarchos-simulator/user" if "/pods/" in path else "user"
        answer = self._server.request(method, path, body, agent=agent)
        self._trace("user", f"{method} {path.rpartition('/v1')[2]} {body or ''}: {answer.status}")


def _hook(pod: JsonObject) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(DRAIN_HOOK_ANNOTATION, ""))


def _is_closed(node: JsonObject) -> bool:
    return bool(node["spec"].get("unschedulable"))


def _owner_kind(pod: JsonObject) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["kind"] for owner in owners if owner.get("controller")), "")
