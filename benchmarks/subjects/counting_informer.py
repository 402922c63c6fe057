"""Count the work of an informer per pod and per change: calls, memory blocks, copies.

python -m benchmarks.subjects.counting_informer KUBECONFIG PODS UPDATES

Counts do not depend on other load of the machine. Calls of Python functions, and of C
functions called from Python, are counted on the threads of the framework. Blocks are
allocated by the interpreter and not freed.
"""

import gc
import json
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from benchmarks.subjects.reporting import Reporter
from navarchos import Client, InformerFactory, logs
from navarchos.client import ClientSettings, ResourceClient
from navarchos.drain import PODS
from navarchos.drain.pods import Pod
from navarchos.informers import FactoryOptions, HandlerOptions, Tombstone

HANDLERS: Final = 2
ROUNDS: Final = 7
PATIENCE: Final = 30.0


class Calls:
    """Counts calls on every thread that starts after `install`."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def install(self) -> None:
        """Begin to count."""
        threading.setprofile(self._on_event)

    def total(self) -> int:
        """Return the number of calls."""
        return sum(self._counts.copy().values())

    def _on_event(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in {"call", "c_call"}:
            self._counts[threading.get_ident()] += 1


class Keeper:
    """A handler that keeps the last object of each name and signals its arrival."""

    def __init__(self) -> None:
        self.kept: dict[str, Pod] = {}
        self.heard = threading.Semaphore(0)

    def on_add(self, obj: Pod, is_in_initial_list: bool) -> None:
        """Keep it."""
        self.kept[obj.metadata.name] = obj

    def on_update(self, old: Pod, new: Pod) -> None:
        """Keep it."""
        self.kept[new.metadata.name] = new
        self.heard.release()

    def on_delete(self, obj: Pod | Tombstone[Pod]) -> None:
        """Fail, because no pod is deleted here."""
        raise AssertionError("a pod of this server was deleted")


def ratio(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """Run both in turn and return the ratio of their processor time on this thread."""
    rounds = [(_cpu_of(ours), _cpu_of(theirs)) for _ in range(ROUNDS)]
    return statistics.median(mine / other for mine, other in rounds)


def decoding(client: Client, pods: ResourceClient[Pod]) -> float:
    """Return the time of a typed list relative to fetching and parsing it with `json`."""

    def parsed() -> object:
        return json.loads(client.raw("GET", PODS.path()).body)

    return ratio(pods.list, parsed)


def change(client: Client, path: str, number: int) -> None:
    """Change a pod."""
    body = {"metadata": {"annotations": {"changed": str(number)}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    assert client.raw("PATCH", path, body=body, headers=headers).status == 200


def main() -> None:
    """Report the stages `counted` and `decoded`."""
    kubeconfig, pods, updates = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    logs.configure(level="warning")
    calls = Calls()
    reporter = Reporter()
    with (
        Client.from_config(
            kubeconfig=kubeconfig, settings=ClientSettings(user_agent="guard-informer")
        ) as client,
        Client.from_config(
            kubeconfig=kubeconfig, settings=ClientSettings(user_agent="guard-writer")
        ) as writer,
    ):
        # Imports and preparations of the first informer must not be counted for the second.
        warm = InformerFactory(writer, FactoryOptions(namespace="ns-0"))
        warm.informer(PODS)
        warm.start()
        warm.wait_for_sync()
        warm.shutdown()
        gc.collect()
        before = sys.getallocatedblocks()
        calls.install()
        factory = InformerFactory(client)
        informer = factory.informer(PODS)
        keepers = [Keeper() for _ in range(HANDLERS)]
        registrations = [
            informer.add_handler(keeper, HandlerOptions(name=f"keeper-{number}"))
            for number, keeper in enumerate(keepers)
        ]
        factory.start()
        factory.wait_for_sync(PATIENCE)
        for registration in registrations:
            registration.wait_for_sync(PATIENCE)
        synced = calls.total()
        gc.collect()
        blocks = sys.getallocatedblocks() - before
        found = informer.lister.list()
        for number in range(updates):
            metadata = found[number].metadata
            change(writer, PODS.path(metadata.namespace, metadata.name), number)
            for keeper in keepers:
                assert keeper.heard.acquire(timeout=PATIENCE), "an update did not arrive"
        followed = calls.total() - synced
        cached = {pod.metadata.name: pod for pod in informer.lister.list()}
        copies = sum(
            keeper.kept[name] is not pod for keeper in keepers for name, pod in cached.items()
        )
        factory.shutdown()
        threading.setprofile(None)
        reporter.end(
            "counted",
            objects=len(cached),
            blocks_per_pod=blocks / pods,
            calls_per_pod=synced / pods,
            calls_per_update=followed / updates,
            copies=copies,
        )
        reporter.end("decoded", ratio=decoding(writer, writer.resource(PODS)))


def _cpu_of(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.thread_time()
    work()
    return time.thread_time() - began


if __name__ == "__main__":
    main()
