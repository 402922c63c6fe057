"""Real nodes: kubelets with containers, in a lab beside a control plane."""

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

from navarchos.client import TransportError
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStarted, ConfigError, NotStarted, Stopped
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.testing.controlplane import NODE_TOOLS, Binary, ControlPlane, Lookup, Tool
from navarchos.testing.controlplane.binaries import Cache, cache_directory, find_binaries
from navarchos.testing.controlplane.tools import CONTAINERD, NODE
from navarchos.testing.nodes.configuration import MAX_NODES, RealMachine, write_files
from navarchos.testing.nodes.imported import ImportedImages
from navarchos.testing.nodes.lab import Lab
from navarchos.testing.nodes.node import Node
from navarchos.testing.nodes.requirements import NodeFailed, NodesNotReady, check_watchers
from navarchos.testing.nodes.testimages import TestImages

__all__ = ["Nodes", "node_lookup", "why_not_ready"]

JsonObject = dict[str, Any]

_PERIOD: Final = 0.05
_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_log = get_logger(__name__)


def node_lookup(directory: Path | None = None) -> Lookup:
    """Return what finds the programs of a node.

    Args:
        directory: The cache folder; by default below the user's cache folder.
    """
    return Lookup(
        cache=Cache(directory or cache_directory(projects=NODE)),
        command="python -m navarchos.testing.nodes",
    )


class Nodes:
    """Real nodes of a control plane: kubelet, containerd, kube-proxy, and containers.

    ```python
    with Lab() as lab, ControlPlane(network=lab) as server, Nodes(server, 3) as nodes:
        nodes["real-1"].power_off()
    ```

    Each node has a separate network, disk, processes and control groups. Pods of different nodes
    reach each other and the API server, and nothing else: no name service, and no registry. Pods
    use the images that are given here, with an `imagePullPolicy` of `IfNotPresent`.

    Promises: after `stop` no process, link, mount, control group or file of the nodes is left;
    `Lab` says what holds when this process is killed.

    Lifecycle: `start`, then `stop`, which may be called repeatedly; then `start` again.
    The object is a context manager. The lab and the control plane must run meanwhile.
    Threads: every method is safe from any thread.

    Args:
        control_plane: The control plane, whose `network` is a `Lab`.
        count: The number of nodes of `start`, called `real-1`, `real-2` and so on.
        images: OCI archives of the images for pods; by default the one with the shell,
            `navarchos.test/busybox:1`.
        prefix: The names of nodes begin with it.
        labels: Labels of each node.
        kubelet: Fields of the configuration of each kubelet, such as
            `{"nodeLeaseDurationSeconds": 8}`.
        timeout: Seconds until the nodes must be Ready in `start`.
        lookup: Finds the programs; see `make nodes`.
        stop: Setting this token ends a wait for nodes.
        clock: The clock for deadlines.

    Raises:
        ConfigError: A setting is out of range.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        count: int = 1,
        *,
        images: Sequence[Path] | None = None,
        prefix: str = "real",
        labels: Mapping[str, str] | None = None,
        kubelet: Mapping[str, object] | None = None,
        timeout: float = 180.0,
        lookup: Lookup | None = None,
        stop: StopToken | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not 0 <= count <= MAX_NODES:
            raise ConfigError("count", count, f"it must be 0 to {MAX_NODES}")
        if timeout <= 0:
            raise ConfigError("timeout", timeout, "it must be above 0")
        network = control_plane.network
        if not isinstance(network, Lab):
            raise ConfigError("control_plane", network, "its network must be a Lab")
        self._server = control_plane
        self._lab = network
        self._count = count
        self._images = images
        self._prefix = prefix
        self._labels = dict(labels or {})
        self._kubelet = dict(kubelet or {})
        self._timeout = timeout
        self._lookup = lookup if lookup is not None else node_lookup()
        self._clock = clock
        self._stop = stop if stop is not None else StopToken(clock=clock)
        self._lock = threading.RLock()
        self._nodes: dict[str, Node] = {}  # these are guarded by _lock
        self._cleanup = ExitStack()
        self._imported: ImportedImages | None = None
        self._binaries: dict[Tool, Binary] = {}

    def start(self) -> Self:
        """Start the nodes and wait until all are Ready.

        Raises:
            AlreadyStarted: The nodes run.
            WatchersMissing: The machine allows too few nodes.
            BinariesMissing: Programs were not found.
            ImageError: The images cannot be imported.
            NodeFailed: A node does not start, or has ended.
            NodesNotReady: The timeout passed.
        """
        with self._lock:
            if self._imported is not None:
                raise AlreadyStarted("the nodes")
            began = self._clock.monotonic()
            check_watchers(self._count)
            self._binaries = find_binaries(NODE_TOOLS, self._lookup)
            images = TestImages()
            wanted = self._images if self._images is not None else [images.busybox()]
            imported = ImportedImages(
                self._binaries[CONTAINERD].path.parent, [images.pause(), *wanted]
            )
            self._imported = self._cleanup.enter_context(imported)
            try:
                added = [self._prepare() for _ in range(self._count)]
                for node in added:
                    node.launch()
                for node in added:
                    node.finish_launch()
                self._wait(added, self._timeout)
            except BaseException:
                self.stop()
                raise
        seconds = round(self._clock.monotonic() - began, 2)
        _log.info("nodes_ready", count=self._count, seconds=seconds)
        return self

    def stop(self) -> None:
        """Remove all nodes, with their disks and, if the API server answers, their Node objects.

        A Node object that stays counts as Ready for some time, and gets pods.
        """
        with self._lock:
            removed = self.all
            with ExitStack() as steps:  # the last one first, each of them also after a failure
                steps.callback(self._cleanup.close)
                for node in removed:
                    steps.callback(self._discard, node)
                for node in removed:
                    steps.callback(node.kill)
                self._imported = None
            try:
                self._delete_objects([node.name for node in removed])
            except (NotStarted, TransportError) as error:
                _log.warning("node_objects_kept", error=str(error))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __iter__(self) -> Iterator[Node]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, name: str) -> Node:
        with self._lock:
            return self._nodes[name]

    @property
    def all(self) -> Sequence[Node]:
        """The nodes, in the order of their start."""
        with self._lock:
            return tuple(self._nodes.values())

    def add(
        self,
        name: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> Node:
        """Start a further node, and return it when its programs have been started.

        Args:
            name: The name of the node; by default the next one. A removed node's name may be
                used again: that is another machine, with an empty disk.
            labels: Labels besides the labels of each node.
            taints: The taints with which the node registers.

        Raises:
            NotStarted: The nodes have not been started.
            WatchersMissing: The machine allows too few nodes.
            ConfigError: A node has this name.
            NodeFailed: The node does not start.
        """
        with self._lock:
            check_watchers(1)
            node = self._prepare(name, labels or {}, taints)
            try:
                node.power_on()
            except BaseException:
                self._discard(node)
                raise
        return node

    def remove(self, name: str) -> None:
        """Remove a node for good, with its disk and its Node object, as a cloud does.

        Raises:
            KeyError: No node has this name.
        """
        with self._lock:
            self._discard(self._nodes[name])
        self._delete_objects([name])

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until each node that has power is Ready, since its latest start.

        Args:
            timeout: Maximum wait in seconds; `None` waits without limit.

        Returns:
            `False` if the timeout passed.

        Raises:
            NodeFailed: A node, or one of its programs, has ended.
        """
        try:
            self._wait([node for node in self.all if node.is_on], timeout)
        except NodesNotReady as error:
            _log.warning("nodes_not_ready", waiting_for=error.names)
            return False
        return True

    def _prepare(
        self,
        name: str = "",
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> Node:
        """Make the disk and the files of a new node."""
        if self._imported is None:
            raise NotStarted("the nodes")
        used = {node.machine.number for node in self._nodes.values()}
        number = min(set(range(1, MAX_NODES + 2)) - used)
        machine = RealMachine(
            name or f"{self._prefix}-{number}",
            number,
            {**self._labels, **(labels or {})},
            taints,
            self._kubelet,
        )
        if machine.name in self._nodes:
            raise ConfigError("name", machine.name, "a node has this name")
        node = Node(machine, self._lab, self._binaries)
        self._nodes[machine.name] = node
        try:
            self._write_disk(node, self._imported)
            self._lab.run(["ip", "route", "replace", machine.pod_range, "via", machine.address])
        except BaseException:
            self._discard(node)
            raise
        return node

    def _write_disk(self, node: Node, imported: ImportedImages) -> None:
        disk = node.directory / "var"
        for folder in ("lib", "log"):
            (disk / folder).mkdir(parents=True)
        imported.copy_to(disk / "lib" / "containerd")
        write_files(node.machine, self._server, node.directory / "etc")

    def _discard(self, node: Node) -> None:
        node.power_off()
        if node.directory.exists():
            shutil.rmtree(node.directory)
        del self._nodes[node.name]

    def _delete_objects(self, names: Sequence[str]) -> None:
        if not names:
            return
        with self._server.client(user_agent="navarchos-lab") as client:
            for name in names:
                response = client.raw("DELETE", f"/api/v1/nodes/{name}")
                if response.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
                    raise NodeFailed(name, f"its Node is not deleted: {response.body!r}")

    def _wait(self, nodes: Sequence[Node], timeout: float | None) -> None:
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while waiting := self._not_ready(nodes):
            for node in nodes:
                node.check()
            if deadline is not None and self._clock.monotonic() >= deadline:
                assert timeout is not None
                tail = self._nodes[next(iter(waiting))].tail("kubelet")
                raise NodesNotReady(waiting, timeout, tail)
            if self._stop.wait(_PERIOD):
                raise Stopped(self._stop.reason or "stopped")

    def _not_ready(self, nodes: Sequence[Node]) -> dict[str, str]:
        found = {each["metadata"]["name"]: each for each in self._server.list("nodes")}
        reasons = {node.name: why_not_ready(node, found.get(node.name)) for node in nodes}
        return {name: why for name, why in reasons.items() if why}


def why_not_ready(node: Node, found: JsonObject | None) -> str:
    """Return why a node is not Ready since its latest start; empty if it is."""
    if found is None:
        return "not registered"
    status = found.get("status", {})
    if status.get("nodeInfo", {}).get("bootID") != node.boot_id:
        return "no report since its start"
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    if "Ready" not in conditions:
        return "no condition Ready"
    if conditions["Ready"]["status"] != "True":
        return str(conditions["Ready"].get("message") or conditions["Ready"].get("reason"))
    taints = [taint["key"] for taint in found.get("spec", {}).get("taints", ())]
    left = [key for key in taints if key in _NOT_READY]
    return f"taint {left[0]}" if left else ""
