"""A sandbox's cluster of real nodes: a control plane, kubelets and containers on this machine."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.cli.manifest_files import Manifest
from navarchos.cli.sandbox.clusters import MANAGER_AGENT, definitions_of
from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NODE_ROLLOUTS
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.systems import System
from navarchos.testing.apiserver import BucketId, Change
from navarchos.testing.cluster import ClusterOptions
from navarchos.testing.cluster.kinds import NODES
from navarchos.testing.cluster.nodes import ROLE_LABEL, ZONE_LABEL, Machine, machines, successor
from navarchos.testing.cluster.population import populate
from navarchos.testing.controlplane import BinariesMissing, ControlPlane, ControlPlaneError
from navarchos.testing.nodes import Lab, MachineLacks, Nodes, NodesError
from navarchos.testing.nodes.images import ImageError
from navarchos.testing.nodes.testimages import BUSYBOX, TestImages

__all__ = ["RealCluster", "runnable"]

JsonObject = dict[str, Any]

_READY_TIMEOUT: Final = 120.0
_KINDS: Final = frozenset({"DaemonSet", "Deployment", "Job", "PodDisruptionBudget", "StatefulSet"})
_RUNS: Final = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done")
_RUNS_ONCE: Final = ("sh", "-c", "sleep 2")
_PRESENT: Final = frozenset({"default", "kube-system"})
_OBSERVED: Final = (
    BucketId("nodes", ""),
    BucketId("pods", ""),
    BucketId(NODE_REPLACEMENTS.plural, NODE_REPLACEMENTS.group),
    BucketId(NODE_ROLLOUTS.plural, NODE_ROLLOUTS.group),
)


class RealCluster:
    """Real nodes on this machine, with the workloads of the simulated cluster as containers.

    Nodes have the names, roles and zones of simulated ones. A machine whose node is labelled as
    drained is removed, and another one takes its place.

    Args:
        nodes: The number of nodes.
        pods_per_node: The approximate number of pods on each node.
        images: OCI archives for pods that the user creates.
        systems: The systems that the manager runs.
        report: Called with a line about something that is done in another way than in the
            simulated cluster.
    """

    checks_budgets = False

    def __init__(
        self,
        nodes: int,
        pods_per_node: int,
        *,
        images: Sequence[Path],
        systems: Sequence[System],
        report: Callable[[str], None],
    ) -> None:
        self.nodes = nodes
        self._options = ClusterOptions(nodes=nodes, pods_per_node=pods_per_node)
        self._images = images
        self._report = report
        self._lab = Lab()
        self._server = ControlPlane(network=self._lab, crds=definitions_of(systems))
        self._machines = {each.name: each for each in machines(nodes, pods_per_node)}
        self._last_number = nodes
        self._replaced: list[Future[None]] = []

    def serve(self, stack: ExitStack, on_change: Callable[[Change], None]) -> None:
        """Start the lab and the control plane, and call `on_change` after every change."""
        with _errors_of_the_command():
            stack.enter_context(self._lab)
            stack.enter_context(self._server)
            stack.callback(self._server.subscribe(on_change, kinds=_OBSERVED))

    def populate(self, stack: ExitStack) -> None:
        """Start the nodes and the workloads, and wait until the nodes are Ready."""
        with _errors_of_the_command():
            nodes = self._start_nodes(stack)
            self._server.install(*_population(self._options, self._server.clock.now()))
        cloud = ThreadPoolExecutor(1, "sandbox-cloud")
        stack.callback(cloud.shutdown, cancel_futures=True)

        def on_node(change: Change) -> None:
            name, labels = change.object["metadata"]["name"], change.object["metadata"]["labels"]
            if change.type != "DELETED" and DRAIN_COMPLETED_LABEL in labels:
                machine = self._machines.pop(name, None)
                if machine is not None:
                    self._replaced.append(cloud.submit(self._replace, nodes, machine))

        stack.callback(self._server.subscribe(on_node, kinds=_OBSERVED[:1]))

    def _start_nodes(self, stack: ExitStack) -> Nodes:
        images = [TestImages().busybox(), *self._images]
        nodes = stack.enter_context(Nodes(self._server, 0, images=images))
        self._client = stack.enter_context(self._server.client(user_agent="navarchos-cloud/1"))
        for machine in self._machines.values():
            nodes.add(machine.name)
        if not nodes.wait_until_ready(_READY_TIMEOUT):
            raise CommandError(f"the nodes are not Ready after {_READY_TIMEOUT:g} s")
        for machine in self._machines.values():
            self._describe(machine)
        return nodes

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return self._server.url

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig to a file."""
        self._server.write_kubeconfig(path)

    def adapt(self, manifests: Sequence[Manifest]) -> Sequence[Manifest]:
        """Return the objects with the image of the sandbox in all pods, and report this."""
        return [Manifest(each.file, self._with_image(each.document)) for each in manifests]

    @property
    def violations(self) -> Sequence[object]:
        """Nothing: a real API server enforces budgets by itself.

        Raises:
            CommandError: A machine could not be replaced.
        """
        with _errors_of_the_command():
            for replaced in list(self._replaced):
                if replaced.done():
                    replaced.result()
        return ()

    @property
    def evictions(self) -> int:
        """The number of evictions that the server granted."""
        return sum(
            event.is_eviction
            and event.response_status is not None
            and event.response_status.code == HTTPStatus.CREATED
            for event in self._server.audit_events()
        )

    def manager_requests(self) -> Mapping[str, int]:
        """Return the number of the manager's requests, by verb."""
        return self._server.requests_by(MANAGER_AGENT)

    def _replace(self, nodes: Nodes, machine: Machine) -> None:
        self._last_number += 1
        nodes.remove(machine.name)
        heir = successor(machine, self._last_number, self._last_number)
        nodes.add(heir.name)
        nodes.wait_until_ready(_READY_TIMEOUT)
        self._machines[heir.name] = heir
        self._describe(heir)

    def _describe(self, machine: Machine) -> None:
        """Give a node the labels and taints of its role, which its kubelet may not set itself."""
        labels = {ROLE_LABEL: machine.role, ZONE_LABEL: machine.zone, **machine.labels}
        patch: JsonObject = {"metadata": {"labels": labels}}
        if machine.taints:
            patch["spec"] = {"taints": [dict(taint) for taint in machine.taints]}
        self._client.resource(NODES.projected(dict)).patch(machine.name, patch)

    def _with_image(self, document: Mapping[str, object]) -> Mapping[str, object]:
        changed: JsonObject = copy.deepcopy(dict(document))
        for container in _containers(changed):
            if container.get("image") != BUSYBOX:
                self._report(
                    f"{container.get('image')} is not on the nodes: container "
                    f"{container.get('name')} runs `sleep 2` of {BUSYBOX}"
                )
                _run(container, _RUNS_ONCE)
        return changed


@contextmanager
def _errors_of_the_command() -> Iterator[None]:
    """Turn errors of the machine and of its programs into the ones of the command."""
    try:
        yield
    except (MachineLacks, BinariesMissing, ImageError) as error:
        raise CommandError(f"--real-nodes: {error}", status=ExitStatus.USAGE) from error
    except (NodesError, ControlPlaneError) as error:
        raise CommandError(f"--real-nodes: {error}") from error


def _population(options: ClusterOptions, now: datetime) -> Iterator[JsonObject]:
    """Return the workloads of a simulated cluster as a user would create them."""
    population = populate(options, now)
    for name in population.namespaces:
        if name not in _PRESENT:
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for manifest in population.manifests:
        if manifest["kind"] in _KINDS:
            yield runnable(manifest)


def runnable(manifest: JsonObject) -> JsonObject:
    """Return a workload of the simulator without its state, and with containers that run."""
    metadata = {
        key: value
        for key, value in manifest["metadata"].items()
        if key not in {"uid", "creationTimestamp", "generation"}
    }
    made = copy.deepcopy({**manifest, "metadata": metadata})
    made.pop("status", None)
    if made["kind"] == "Job":  # the server chooses them
        made["spec"].pop("selector", None)
        labels = made["spec"]["template"]["metadata"]["labels"]
        for key in ("batch.kubernetes.io/job-name", "job-name"):
            labels.pop(key, None)
    for container in _containers(made):
        _run(container, _RUNS)
    return made


def _containers(found: object) -> Iterator[JsonObject]:
    """Return all containers inside an object."""
    match found:
        case dict():
            for key, value in found.items():
                if key in {"containers", "initContainers"} and isinstance(value, list):
                    yield from value
                else:
                    yield from _containers(value)
        case list():
            for each in found:
                yield from _containers(each)


def _run(container: JsonObject, command: Sequence[str]) -> None:
    container |= {"image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": list(command)}
    container.pop("args", None)
