"""kill -9 after any single write: the next process has the same result."""

from collections.abc import Iterator

import pytest
from tests.unit.operator.drains.conftest import GROUP, Process, World

from navarchos.client import Client, ClientConfig, HttpRequest
from navarchos.client.http.pool import PooledTransport
from navarchos.client.transport import Response
from navarchos.meta import format_time


class Killed(BaseException):
    """The process was killed."""


class KillingTransport:
    """Dies when this many writes have reached the server; the last response is lost."""

    def __init__(self, config: ClientConfig, writes: int) -> None:
        self._inner = PooledTransport(config)
        self._left = writes
        self.killed = False

    def send(self, request: HttpRequest) -> Response:
        answer = self._inner.send(request)
        if request.method == "GET":
            return answer
        self._left -= 1
        if self._left == 0:
            answer.read()
            self.killed = True
            raise Killed
        return answer

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def crashing_client(world: World, writes: int) -> Iterator[Client]:
    config = ClientConfig(host=world.server.url)
    with Client(config, transport=KillingTransport(config, writes)) as client:
        yield client


def run_until_killed(world: World, client: Client) -> None:
    process = world.process(client)
    try:
        process.run(world.is_over, meanwhile=world.kubelet)
    except Killed:
        return
    finally:
        process.close()


@pytest.mark.rule("OP-26")
@pytest.mark.parametrize("writes", range(1, 9))
def test_a_drain_ends_the_same_after_a_kill_at_any_write(
    world: World, crashing_client: Client, writes: int
) -> None:
    world.node()
    world.pod("a")
    world.pod("b")
    world.drain()
    run_until_killed(world, crashing_client)
    world.clock.passed += 3

    successor = world.process()
    successor.run(world.is_over, meanwhile=world.kubelet)

    status = world.status()
    assert (status["phase"], status["reason"]) == ("Completed", "NodeDrained")
    assert status["evictedPods"] == ["default/a", "default/b"]
    assert (status["total"], status["evicted"]) == (2, 2)
    assert world.pods() == []
    assert world.mark == f"d/{world.get()['metadata']['uid']}"
    assert world.condition("NodeCordoned") == ("True", "NodeCordoned")


@pytest.mark.rule("OP-26")
@pytest.mark.parametrize("writes", range(1, 5))
def test_a_deleted_drain_uncordons_its_node_after_a_kill_at_any_write(
    world: World, crashing_client: Client, writes: int
) -> None:
    world.blocked_drain()
    process = world.process(crashing_client)
    try:
        process.step()
        world.delete_drain()
        process.step()
    except Killed:
        pass
    finally:
        process.close()
    if world.server.list("nodedrains", group=GROUP):
        if not world.get()["metadata"].get("deletionTimestamp"):
            world.delete_drain()
        world.process().step()
    assert world.server.list("nodedrains", group=GROUP) == []
    assert not world.is_cordoned()
    assert world.mark == ""
    assert world.terminating() == []


EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
KEY, STAMP = "node-detacher.variant.run/detached", "node-detacher.variant.run/detachment-timestamp"
BEFORE = {EXCLUDE: "false"}
WRITES = 12
"""The writes of a drain with all of `prepare`, and of its end."""
RECONCILES = 12
"""The reconciles of such a drain, if its pods are in the cache when it needs them first."""


def prepare(world: World) -> None:
    """Make a node that had a mark before, a pod, a pod with a hook, and a drain that prepares."""
    world.node()
    world.patch("/api/v1/nodes/n1", {"metadata": {"labels": BEFORE}})
    world.pod("a")
    world.pod("proxy", metadata={"annotations": {"navarchos.pusher.com/drain-hook": "ingress"}})
    world.drain(
        prepare={
            "excludeFromExternalLoadBalancers": True,
            "annotateNode": {"key": KEY},
            "waitForTimestamp": {"key": STAMP, "gracePeriodSeconds": 1},
            "settleSeconds": 1,
            "hooks": ["f5"],
        }
    )


def others_act(world: World) -> None:
    """Play the kubelet, the detacher and the owners of the hooks."""
    world.kubelet()
    annotations = world.node_now["metadata"].get("annotations") or {}
    if KEY in annotations and STAMP not in annotations:
        stamp = {STAMP: format_time(world.clock.now())}
        world.patch("/api/v1/nodes/n1", {"metadata": {"annotations": stamp}})
    if world.phase() == "Preparing":
        for hook in ("f5", "ingress"):
            world.answer(hook, "Done")
    if world.phase() == "Draining" and "proxy" in world.pods():
        world.end("proxy")


def drained(world: World) -> None:
    """Assert that the drain has ended well and that the node has its marks."""
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Completed", "NodeDrained")
    assert status["evictedPods"] == ["default/a", "default/proxy"]
    assert world.condition("Prepared") == ("True", "Prepared")
    assert world.node_now["metadata"]["labels"] == {EXCLUDE: "true"}
    assert KEY in world.node_now["metadata"]["annotations"]


def given_back(world: World) -> None:
    """Assert that the drain is gone and that the node is as it was before."""
    assert world.server.list("nodedrains", group=GROUP) == []
    assert world.node_now["metadata"]["labels"] == BEFORE
    assert not set(world.node_now["metadata"].get("annotations") or {}) - {STAMP}
    assert not world.is_cordoned()


@pytest.mark.rule("IG-74")
@pytest.mark.parametrize("writes", range(1, WRITES + 2))
def test_marks_are_given_back_after_a_kill_at_any_write(
    world: World, crashing_client: Client, writes: int
) -> None:
    prepare(world)
    process, is_killed = world.process(crashing_client), False
    try:
        process.run(world.is_over, meanwhile=lambda: others_act(world))
        world.delete_drain()
        process.step()
    except Killed:
        is_killed = True
    finally:
        process.close()
    assert is_killed is (writes <= WRITES), "every write is followed by a kill"
    world.clock.passed += 3
    if world.server.list("nodedrains", group=GROUP):
        successor = world.process()
        if not world.get()["metadata"].get("deletionTimestamp"):
            successor.run(world.is_over, meanwhile=lambda: others_act(world))
            drained(world)
            world.delete_drain()
        successor.step()
    given_back(world)


@pytest.mark.rule("IG-74")
@pytest.mark.parametrize("reconciles", range(RECONCILES + 1))
def test_a_drain_that_is_deleted_after_any_reconcile_gives_its_node_back(
    world: World, process: Process, reconciles: int
) -> None:
    prepare(world)
    advance(world, process, reconciles)
    terminating, evictions = world.terminating(), world.evictions
    world.delete_drain()
    process.step()
    given_back(world)
    assert (world.terminating(), world.evictions) == (terminating, evictions)


@pytest.mark.rule("IG-73")
@pytest.mark.parametrize("reconciles", range(RECONCILES + 1))
def test_a_drain_that_is_paused_after_any_reconcile_waits_and_then_continues(
    world: World, process: Process, reconciles: int
) -> None:
    prepare(world)
    advance(world, process, reconciles)
    # On a slow machine a watch can bring two changes at once, and a reconcile less is enough.
    assert world.is_over() or reconciles < RECONCILES
    world.edit(paused=True)
    before = (world.terminating(), world.evictions, world.node_now["metadata"]["labels"])
    for seconds in (2, 1000, 1000):  # the status is written once a second
        process.step()
        world.clock.passed += seconds
    process.step()
    assert (
        world.terminating(), world.evictions, world.node_now["metadata"]["labels"],
    ) == before  # fmt: skip
    assert world.is_over() is (world.pods() == []), "an empty node needs no further action"
    world.edit(paused=False)
    process.run(world.is_over, meanwhile=lambda: others_act(world))
    drained(world)


def advance(world: World, process: Process, reconciles: int) -> None:
    """Reconcile so many times, moving time as each result asks.

    The watch of the pods begins before: a reconcile that starts it continues at once only if
    its first list is faster than that reconcile, so their number would be a matter of chance.
    """
    process.runtime.watches.pods("d", "n1")
    for _ in range(reconciles):
        result = process.reconcile_once()
        others_act(world)
        world.clock.passed += min(result.requeue_after or 1.0, 1.0) + 0.01
