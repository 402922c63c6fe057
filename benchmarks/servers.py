"""Start the API servers for contenders, and fill them in seconds instead of minutes.

The objects of a real server are written directly into etcd: creating twenty thousand pods
through the API takes forty thousand requests, none of which is measured. An API server
reads such objects in JSON or protobuf, and clients cannot distinguish them from objects
that were created through the API.
"""

import base64
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import urllib3

from benchmarks import population
from benchmarks.accounts import write_account
from benchmarks.processes import cpu_of
from navarchos.client import Client
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.controlplane import ControlPlane

__all__ = ["Served", "in_process", "real"]

_BATCH: Final = 1_000
_WRITERS: Final = 4
_QUOTA: Final = 8 * 2**30
_READY_TIMEOUT: Final = 180.0

JsonObject = dict[str, Any]


@dataclass
class Served:
    """A running server.

    Attributes:
        server: The server.
        kubeconfig: A kubeconfig file for it.
        account: A folder with the service account of a pod; see `accounts`. `None`
            where the server has no service accounts.
        nodes: The number of its nodes.
        pods: The number of its pods.
        pod_annotations: Additional annotations of pods that are added.
    """

    server: ApiServer | ControlPlane
    kubeconfig: Path
    account: Path | None = None
    nodes: int = 0
    pods: int = 0
    pod_annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        """The account folder if the server has service accounts, otherwise the kubeconfig."""
        return self.account or self.kubeconfig

    def fill(self, nodes: int, pods: int) -> None:
        """Add nodes and pods until there are that many. Nothing is ever removed."""
        nodes, pods = max(nodes, self.nodes), max(pods, self.pods)
        parts = [
            () if self.nodes else population.namespaces(),
            () if self.nodes else population.owners(),
            map(population.node, range(self.nodes, nodes)),
            (
                population.pod(number, population.node_name(number % nodes), self.pod_annotations)
                for number in range(self.pods, pods)
            ),
        ]
        self._put(itertools.chain(*parts))
        self.nodes, self.pods = nodes, pods

    def cpu(self) -> float:
        """Return the processor seconds of the API server; 0 if it is in this process."""
        return 0.0 if isinstance(self.server, ApiServer) else _cpu_of(self.server, "kube-apiserver")

    def kubelets_cpu(self) -> float:
        """Return the processor seconds of kwok; 0 if kubelets are in this process."""
        return 0.0 if isinstance(self.server, ApiServer) else _cpu_of(self.server, "kwok")

    def client(self) -> Client:
        """Return a client of an administrator. The caller must close it."""
        return Client(self.server.client_config(user_agent="benchmark"))

    def _put(self, objects: Iterable[JsonObject]) -> None:
        if isinstance(self.server, ApiServer):
            self.server.install(*objects)
        else:
            _put(self.server.etcd_url, objects)


@contextmanager
def real(*, unleased: bool = False) -> Iterator[Served]:
    """Start etcd and kube-apiserver, without controllers that would delete orphaned objects.

    Args:
        unleased: Whether kubelets write no leases. A thousand of them write a hundred
            leases a second, which no program reads here.
    """
    arguments = {"etcd": [f"--quota-backend-bytes={_QUOTA}"]}
    if unleased:
        arguments["kwok"] = ["--node-lease-duration-seconds=0"]
    plane = ControlPlane(
        controllers=False, scheduler=False, arguments=arguments, timeout=_READY_TIMEOUT
    )
    with plane as server, tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        yield Served(server, kubeconfig, write_account(server, Path(folder)))


@contextmanager
def in_process() -> Iterator[Served]:
    """Start the API server for tests."""
    with ApiServer() as server, tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        yield Served(server, kubeconfig)


def _cpu_of(plane: ControlPlane, program: str) -> float:
    """Return the processor seconds of one of a control plane's processes."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended meanwhile
            command = (process / "cmdline").read_text(encoding="utf-8")
            called, _, arguments = command.partition("\0")
            if Path(called).name == program and str(plane.directory) in arguments:
                return cpu_of(int(process.name))
    raise RuntimeError(f"no process of {program} is running")


def _put(url: str, objects: Iterable[JsonObject]) -> None:
    """Write objects into etcd, under the keys of the API server.

    Each object is a separate write, because objects of one transaction would share a
    resourceVersion, which real objects do not.
    """
    with (
        urllib3.connection_from_url(url, maxsize=_WRITERS) as etcd,
        ThreadPoolExecutor(_WRITERS) as writers,
    ):
        for batch in _batches(objects):
            # In batches, because all at once would hold every object in memory.
            list(writers.map(partial(_put_one, etcd), batch))


def _put_one(etcd: urllib3.HTTPConnectionPool, obj: JsonObject) -> None:
    value = json.dumps(obj, separators=(",", ":"))
    put = {"key": _b64(_key(obj)), "value": _b64(value)}
    answer = etcd.request("POST", "/v3/kv/put", json=put)
    if answer.status != 200:
        raise RuntimeError(f"etcd refused {_key(obj)}: {answer.data.decode()}")


def _batches(objects: Iterable[JsonObject]) -> Iterator[list[JsonObject]]:
    left = iter(objects)
    while batch := list(itertools.islice(left, _BATCH)):
        yield batch


def _key(obj: JsonObject) -> str:
    metadata = obj["metadata"]
    # The key of nodes still has the name from their first release.
    folder = {"Node": "minions"}.get(obj["kind"], f"{obj['kind'].lower()}s")
    return "/".join(
        ("/registry", folder, *filter(None, [metadata.get("namespace")]), metadata["name"])
    )


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
