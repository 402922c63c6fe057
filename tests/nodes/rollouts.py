"""Rollouts of the shipped Deployment on real nodes, with every change checked."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml
from tests.cases import manifests
from tests.cases.checker import Checker
from tests.cases.target import Target
from tests.cases.waiting import wait_for

from navarchos.client import Propagation, ignore_not_found
from navarchos.clock import SYSTEM_CLOCK
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.nodes import Nodes

__all__ = [
    "HELD",
    "NAMESPACE",
    "RealCase",
    "Story",
    "config",
    "deployment",
    "is_ready",
    "real_case",
    "told",
]

JsonObject = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
NAMESPACE, NAME, LEASE = "kube-system", "navarchos", "navarchos-leader-election"
BUSYBOX: Final = "navarchos.test/busybox:1"
LIMIT: Final = 180.0

_STORY: Final = "/var/story"
_TELL: Final = (
    'tell() { echo "$1 $(cut -d" " -f1 /proc/uptime)" >> "/story/$HOSTNAME"; }; '
    "trap 'tell TERM; ended' TERM; tell start; "
)
_LOOP: Final = "while :; do sleep 0.1; done"

HELD: Final = f"{_TELL}ended() {{ until [ -e /story/go ]; do sleep 0.1; done; exit 0; }}; {_LOOP}"
"""A script that ends some time after SIGTERM: when the test lets it go."""


def told(seconds: float = 0.0, *, ends: bool = True, beside: str = "") -> str:
    """Return a script that records SIGTERM, and ends some seconds later or never.

    Args:
        seconds: The time until its end.
        ends: Whether it ends by itself.
        beside: Commands that run in the background; they may use `tell WORD`.
    """
    background = f"({beside}) & " if beside else ""
    if ends:
        return f"{_TELL}{background}ended() {{ sleep {seconds}; tell end; exit 0; }}; {_LOOP}"
    return f"{_TELL}{background}ended() {{ :; }}; while :; do sleep 0.2; tell tick; done"


def config(folder: str) -> Iterator[JsonObject]:
    """Return the manifests of a folder of `config`."""
    for path in sorted((ROOT / "config" / folder).glob("*.yaml")):
        yield from filter(None, yaml.safe_load_all(path.read_text(encoding="utf-8")))


def deployment(
    namespace: str, name: str, script: str, *, first: str, replicas: int = 1, **container: Any
) -> JsonObject:
    """Return a Deployment whose first pods are on one node, if pods may be there.

    Args:
        namespace: The namespace.
        name: The name, also of the label `app`.
        script: What each container runs, with the folder `/story` of its node.
        first: The node that the scheduler prefers.
        replicas: The number of pods.
        container: Fields of the container; `grace` is the grace period, and `volumes` more volumes.
    """
    grace, volumes = container.pop("grace", 60), container.pop("volumes", [])
    prefers = {
        "weight": 100,
        "preference": {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [first]}
            ]
        },
    }
    story = {"name": "story", "hostPath": {"path": _STORY, "type": "DirectoryOrCreate"}}
    spec = {
        "terminationGracePeriodSeconds": grace,
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefers]}
        },
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 2,
            }
            for key in ("not-ready", "unreachable")
        ],
        "volumes": [story, *volumes],
        "containers": [
            {
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "story", "mountPath": "/story"}],
                **container,
            }
        ],
    }
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


@dataclass(frozen=True)
class Story:
    """What a container wrote about its end.

    Attributes:
        words: The words in their order.
        times: The time of each word, in seconds since the machine's start.
    """

    words: Sequence[str]
    times: Sequence[float]

    def at(self, word: str) -> float:
        """Return the time of the first of a word."""
        return self.times[self.words.index(word)]

    def seconds(self, first: str, last: str) -> float:
        """Return the seconds from the first of a word to the last of another one."""
        ends = [at for word, at in zip(self.words, self.times, strict=True) if word == last]
        return ends[-1] - self.at(first)


class RealCase:
    """One case on real nodes: its namespace, its rollout, and the checker of all changes.

    Attributes:
        name: The name of the namespace and the rollout, and the label of the nodes.
        checker: Fails the case on any violation.
        forged: The kinds of violations that the test itself made.
    """

    def __init__(
        self, name: str, server: ControlPlane, nodes: Nodes, target: Target, checker: Checker
    ) -> None:
        self.name = name
        self.checker = checker
        self._server = server
        self._nodes = nodes
        self._target = target
        self.forged: set[str] = set()
        self._undo = ExitStack()
        self._began = SYSTEM_CLOCK.now()

    # The operator.

    def replicas(self) -> list[JsonObject]:
        """Return the pods of the Deployment that are Ready and stay."""
        pods = self._target.list("Pod", NAMESPACE, label_selector=f"app={NAME}")
        return [each for each in pods if is_ready(each)]

    def leader(self) -> JsonObject:
        """Wait until two replicas are Ready and one leads; return the leader's pod."""

        def look() -> JsonObject | None:
            lease = self._target.find("Lease", LEASE, NAMESPACE) or {}
            holder = str(lease.get("spec", {}).get("holderIdentity") or "")
            pods = self.replicas()
            if len(pods) != 2:
                return None
            return next((p for p in pods if holder.startswith(p["metadata"]["name"])), None)

        return wait_for("two ready replicas, of which one leads", look, LIMIT)

    def others(self) -> list[str]:
        """Return the nodes without a replica of the operator."""
        self.leader()
        used = {each["spec"]["nodeName"] for each in self.replicas()}
        return [node.name for node in self._nodes if node.name not in used]

    # Workloads.

    def add(self, *made: JsonObject) -> None:
        """Create objects, and wait until the Deployments among them have all their pods."""
        self._target.create(*made)
        names = [each["metadata"]["name"] for each in made if each["kind"] == "Deployment"]
        for name in names:
            wait_for(f"Deployment {name}", lambda: self._is_available(name), LIMIT)  # noqa: B023

    def pods(self, node: str = "", app: str = "") -> list[JsonObject]:
        """Return the pods of the case, of one of its nodes, or of a Deployment."""
        selector = f"app={app}" if app else ""
        found = self._target.list("Pod", self.name, label_selector=selector)
        return [each for each in found if not node or each["spec"].get("nodeName") == node]

    def pod_on(self, node: str, app: str) -> JsonObject:
        """Return the only pod of a Deployment, which must be on this node."""
        (pod,) = self.pods(node, app)
        return pod

    def running(self, node: str, prefix: str) -> JsonObject | None:
        """Return a Ready pod on a node whose name begins like this."""
        found = [each for each in self.pods(node) if each["metadata"]["name"].startswith(prefix)]
        return next(filter(is_ready, found), None)

    def succeeded(self, job: str) -> bool:
        """Return whether a Job is Complete."""
        status = self._target.get("Job", job, self.name).get("status", {})
        return bool(status.get("succeeded") == 1 and not status.get("failed"))

    def story(self, node: str, pod: JsonObject) -> Story:
        """Return what the container of a pod wrote on its node."""
        path = self._disk(node) / pod["metadata"]["name"]
        # A container that has not started has written nothing.
        text = path.read_text(encoding="ascii") if path.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        return Story([word for word, _ in lines], [float(at) for _, at in lines])

    def let_go(self) -> None:
        """End the pods with the script `HELD` that got SIGTERM, now and later."""
        for node in self._nodes:
            disk = self._disk(node.name)
            disk.mkdir(exist_ok=True)
            (disk / "go").touch()

    # The rollout.

    def roll(self, nodes: Sequence[str], **spec: Any) -> None:
        """Create a rollout of these nodes."""
        for name in nodes:
            self._label(name, self.name)
        self._target.create(manifests.rollout(self.name, **spec))

    def status(self, kind: str = "NodeRollout", name: str = "") -> JsonObject:
        """Return the status of an object; empty if it does not exist."""
        return (self._target.find(kind, name or self.name) or {}).get("status") or {}

    def drain_of(self, node: str) -> JsonObject:
        """Return the NodeDrain of a node; empty if it does not exist."""
        drains = self._target.list("NodeDrain")
        return next((each for each in drains if each["spec"]["nodeName"] == node), {})

    def wait_for_end_of_pod(self, node: str, pod: JsonObject) -> None:
        """Wait until a pod got SIGTERM, in the middle of the drain of its node."""
        wait_for("SIGTERM", lambda: "TERM" in self.story(node, pod).words, LIMIT)

    def complete(self) -> JsonObject:
        """Wait until the rollout is Completed and return its status."""
        ended = ("Completed", "Halted")
        wait_for(f"rollout {self.name}", lambda: self.status().get("phase") in ended, LIMIT)
        status = self.status()
        assert status["phase"] == "Completed", status
        assert not status.get("replacementsFailed"), status
        return status

    def assert_drained(self, *names: str) -> None:
        """Check that nodes are cordoned, labelled, and have no pods of the case."""
        for name in names:
            node = self._target.get("Node", name)
            assert node["spec"].get("unschedulable"), name
            assert DRAIN_COMPLETED_LABEL in node["metadata"]["labels"], name
            left = [each for each in self.pods(name) if "ownerReferences" in each["metadata"]]
            owners = {each["metadata"]["ownerReferences"][0]["kind"] for each in left}
            assert owners <= {"DaemonSet", "Node"}, left

    def assert_nothing_was_done_twice(self, *, drains: int) -> None:
        """Check the requests since the beginning: one NodeDrain a node, one eviction a pod."""
        evicted: Counter[str] = Counter()
        made = 0
        for event in self._server.audit_events():
            status, reference = event.response_status, event.object_ref
            if status is None or status.code != HTTPStatus.CREATED or reference is None:
                continue
            assert event.stage_timestamp is not None
            if event.is_eviction and reference.namespace == self.name:
                evicted[reference.name] += 1
            elif event.verb == "create" and reference.resource == "nodedrains":
                made += event.stage_timestamp >= self._began
        assert made == drains
        assert evicted
        assert set(evicted.values()) == {1}, evicted

    # Failures of nodes.

    def undo(self, step: Callable[[], object]) -> None:
        """Register a step that repairs a node, for `undo_now` and for the end of the case."""
        self._undo.callback(step)

    def undo_now(self) -> None:
        """Repair the nodes."""
        self._undo.close()

    # The end of the case.

    def judge(self) -> None:
        """Fail on any violation, except the ones in `forged`."""
        self.checker.settle()
        self.checker.judge_the_end()
        found = [each for each in self.checker.violations if each.what not in self.forged]
        assert not found, "\n".join(map(str, found))

    def end(self) -> None:
        """Delete all objects of the case, and wait until its nodes can take pods again."""
        self.let_go()
        with ExitStack() as steps:
            steps.callback(self._restore_nodes)
            steps.callback(self._remove_namespace)
            steps.callback(self._remove_rollout)
            steps.callback(self._power_on)
            steps.callback(self.undo_now)

    def _power_on(self) -> None:
        for node in self._nodes:
            node.power_on()
        assert self._nodes.wait_until_ready(LIMIT)

    def _remove_rollout(self) -> None:
        with ignore_not_found():
            self._target.of("NodeRollout").delete(self.name, propagation=Propagation.FOREGROUND)
        kinds = ("NodeRollout", "NodeReplacement", "NodeDrain")
        wait_for("the end of the rollout", lambda: not any(map(self._target.list, kinds)), LIMIT)

    def _remove_namespace(self) -> None:
        self._target.of("Namespace").delete(self.name)  # it takes some seconds

        def no_pods() -> bool:
            pods = [each["metadata"]["name"] for each in self.pods()]
            for pod in pods:
                with ignore_not_found():
                    self._target.of("Pod").delete(pod, self.name, grace_period_seconds=1)
            return not pods

        for kind in ("Deployment", "DaemonSet", "Job"):
            for each in self._target.list(kind, self.name):
                with ignore_not_found():
                    self._target.of(kind).delete(
                        each["metadata"]["name"], self.name, propagation=Propagation.BACKGROUND
                    )
        wait_for(f"the end of the pods of {self.name}", no_pods, LIMIT)

    def _restore_nodes(self) -> None:
        for node in self._nodes:
            self._label(node.name, None)
            for path in self._disk(node.name).glob("*"):
                path.unlink()
        self.leader()

    def _label(self, node: str, value: str | None) -> None:
        labels = {manifests.CASE_LABEL: value} | ({} if value else {DRAIN_COMPLETED_LABEL: None})
        spec = {} if value else {"spec": {"unschedulable": None}}
        self._target.patch("Node", node, {"metadata": {"labels": labels}, **spec})

    def _disk(self, node: str) -> Path:
        return self._nodes[node].directory / "var" / Path(_STORY).name

    def _is_available(self, name: str) -> bool:
        found = self._target.get("Deployment", name, self.name)
        return bool(found.get("status", {}).get("availableReplicas") == found["spec"]["replicas"])


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is Ready and not terminating."""
    conditions = pod["status"].get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


@contextmanager
def real_case(
    name: str, server: ControlPlane, nodes: Nodes, target: Target, *, in_flight: int = 1
) -> Iterator[RealCase]:
    """Run a case with the checker beside it, and clean up."""
    with Checker(target.connect("nodes-checker/1"), in_flight=in_flight) as checker:
        case = RealCase(name, server, nodes, target, checker)
        target.create(manifests.namespace(name))
        try:
            yield case
            case.judge()
        finally:
            case.end()
