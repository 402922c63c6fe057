"""kill -9 after any single write: the next process has the same result."""

from collections.abc import Iterator

import pytest
from tests.unit.operator.drains.conftest import GROUP, World

from navarchos.client import Client, ClientConfig, HttpRequest
from navarchos.client.http.pool import PooledTransport
from navarchos.client.transport import Response


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


@pytest.mark.rule("IG-74")
@pytest.mark.parametrize("writes", range(1, 15))
def test_marks_are_given_back_after_a_kill_at_any_write(
    world: World, crashing_client: Client, writes: int
) -> None:
    exclude = "node.kubernetes.io/exclude-from-external-load-balancers"
    world.node()
    labels = {exclude: "false"}
    world.patch("/api/v1/nodes/n1", {"metadata": {"labels": labels}})
    world.pod("a")
    marks = {"excludeFromExternalLoadBalancers": True, "annotateNode": {"key": "example.com/out"}}
    world.drain(prepare={**marks, "hooks": ["f5"]})
    world.answer("f5", "Done")
    process = world.process(crashing_client)
    try:
        process.run(world.is_over, meanwhile=world.kubelet)
        world.delete_drain()
        process.step()
    except Killed:
        pass
    finally:
        process.close()
    world.clock.passed += 3
    if world.server.list("nodedrains", group=GROUP):
        successor = world.process()
        if not world.get()["metadata"].get("deletionTimestamp"):
            successor.run(world.is_over, meanwhile=world.kubelet)
            assert world.status()["reason"] == "NodeDrained"
            assert world.condition("Prepared") == ("True", "Prepared")
            assert world.node_now["metadata"]["labels"] == {exclude: "true"}
            world.delete_drain()
        successor.step()
    assert world.server.list("nodedrains", group=GROUP) == []
    assert world.node_now["metadata"]["labels"] == labels
    assert not world.node_now["metadata"].get("annotations")
    assert not world.is_cordoned()
