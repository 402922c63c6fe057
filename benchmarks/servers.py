"""The API servers that contenders ask, filled in seconds instead of minutes.

A real one gets its objects as etcd would have them: through the API twenty thousand
pods are forty thousand requests, of which none is what is measured. An API server reads
what another wrote, in JSON or protobuf; a pod that was put like this and one that was
created are the same to every client.
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
    """A server that runs.

    Attributes:
        server: The server.
        kubeconfig: How to reach it, as a file.
        account: What a pod finds around it, in a folder; see `accounts`. `None`
            where there are no service accounts.
        nodes: How many nodes it has.
        pods: How many pods it has.
        pod_annotations: What pods that are added bear beside the usual.
    """

    server: ApiServer | ControlPlane
    kubeconfig: Path
    account: Path | None = None
    nodes: int = 0
    pods: int = 0
    pod_annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        """Where a program finds all that it needs to reach the server, as in a pod if possible."""
        return self.account or self.kubeconfig

    def fill(self, nodes: int, pods: int) -> None:
        """Add what is missing to that many nodes and pods; nothing is ever removed."""
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
        """Return the processor seconds that the API server has had; 0 if it is in this process."""
        return 0.0 if isinstance(self.server, ApiServer) else _cpu_of(self.server, "kube-apiserver")

    def kubelets_cpu(self) -> float:
        """Return the processor seconds that kwok has had; 0 if kubelets are in this process."""
        return 0.0 if isinstance(self.server, ApiServer) else _cpu_of(self.server, "kwok")

    def client(self) -> Client:
        """Return a client of somebody who may do everything, to be closed by its user."""
        return Client(self.server.client_config(user_agent="benchmark"))

    def _put(self, objects: Iterable[JsonObject]) -> None:
        if isinstance(self.server, ApiServer):
            self.server.install(*objects)
        else:
            _put(self.server.etcd_url, objects)


@contextmanager
def real(*, unleased: bool = False) -> Iterator[Served]:
    """Start etcd and kube-apiserver; no controller that would clean up orphans.

    Args:
        unleased: Whether kubelets, if there will be any, keep no leases. A thousand
            of them write a hundred leases a second, which nobody reads here.
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
        with suppress(OSError):  # ended meanwhile
            command = (process / "cmdline").read_text(encoding="utf-8")
            called, _, arguments = command.partition("\0")
            if Path(called).name == program and str(plane.directory) in arguments:
                return cpu_of(int(process.name))
    raise RuntimeError(f"{program} has no process")


def _put(url: str, objects: Iterable[JsonObject]) -> None:
    """Write objects where an API server looks for them.

    One a write, as in life: what one transaction writes has one resourceVersion.
    """
    with (
        urllib3.connection_from_url(url, maxsize=_WRITERS) as etcd,
        ThreadPoolExecutor(_WRITERS) as writers,
    ):
        for batch in _batches(objects):
            # Whole batches: all at once would hold every object in memory.
            list(writers.map(partial(_put_one, etcd), batch))


def _put_one(etcd: urllib3.HTTPConnectionPool, obj: JsonObject) -> None:
    value = json.dumps(obj, separators=(",", ":"))
    put = {"key": _b64(_key(obj)), "value": _b64(value)}
    answer = etcd.request("POST", "/v3/kv/put", json=put)
    if answer.status != 200:
        raise RuntimeError(f"etcd refuses {_key(obj)}: {answer.data.decode()}")


def _batches(objects: Iterable[JsonObject]) -> Iterator[list[JsonObject]]:
    left = iter(objects)
    while batch := list(itertools.islice(left, _BATCH)):
        yield batch


def _key(obj: JsonObject) -> str:
    metadata = obj["metadata"]
    # Nodes have kept the name of their first release.
    folder = {"Node": "minions"}.get(obj["kind"], f"{obj['kind'].lower()}s")
    return "/".join(
        ("/registry", folder, *filter(None, [metadata.get("namespace")]), metadata["name"])
    )


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
