"""The programs in `examples`, on an in-process cluster."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from navarchos.client import Client, Resource
from navarchos.client.options import WatchOptions
from navarchos.meta import Unstructured
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.cluster import ClusterOptions

EXAMPLES = Path(__file__).parents[2] / "examples"
NODES: Resource[Unstructured] = Resource(
    group="", version="v1", plural="nodes", kind="Node", namespaced=False, type=dict
)


class Programs:
    """Starts examples on one server, and kills the running ones at the end."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.running: list[subprocess.Popen[str]] = []

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        program = subprocess.Popen(
            [sys.executable, str(EXAMPLES / name), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.running.append(program)
        return program


@pytest.fixture
def programs(api_server: ApiServer, tmp_path: Path) -> Iterator[Programs]:
    kubeconfig = tmp_path / "kubeconfig"
    api_server.write_kubeconfig(kubeconfig)
    programs = Programs(kubeconfig)
    yield programs
    for program in programs.running:
        program.kill()
        program.communicate()


@pytest.fixture
def client(programs: Programs) -> Iterator[Client]:
    with Client.from_config(kubeconfig=programs.kubeconfig) as client:
        yield client


def read_until(program: "subprocess.Popen[str]", pattern: str) -> str:
    assert program.stdout is not None
    for line in program.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"ended with status {program.wait()} and no line like {pattern}")


def node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def test_the_watch_example_reports_a_cordon(
    api_server: ApiServer, programs: Programs, client: Client
) -> None:
    api_server.install(node("a"), node("b"))
    program = programs.start("01_watch_nodes.py")
    read_until(program, "^2 nodes")
    client.resource(NODES).patch("a", {"spec": {"unschedulable": True}})
    read_until(program, "^a cordoned")
    program.send_signal(signal.SIGINT)
    assert program.wait(timeout=10) == 0


def test_the_controller_restores_its_label(
    api_server: ApiServer, programs: Programs, client: Client
) -> None:
    api_server.install(node("a"))
    program = programs.start("02_label_ready_nodes.py")
    nodes = client.resource(NODES)
    with nodes.watch(options=WatchOptions(resource_version="0")) as events:
        label = "example.com/schedulable"
        for wanted, cordon in (("true", True), (None, False), ("true", None)):
            for event in events:
                if event.type == "BOOKMARK":  # the last line of the initial objects
                    continue
                assert isinstance(event.object, dict)
                labels = event.object["metadata"].get("labels", {})
                if labels.get(label) == wanted:
                    break
            if cordon is not None:
                nodes.patch("a", {"spec": {"unschedulable": cordon}})
    program.send_signal(signal.SIGTERM)
    assert program.wait(timeout=10) == 0


@pytest.fixture
def cluster_options() -> ClusterOptions:
    return ClusterOptions(nodes=3, pods_per_node=3, speed=100.0)


@pytest.mark.usefixtures("cluster")
def test_a_script_drains_a_node(api_server: ApiServer, programs: Programs) -> None:
    program = programs.start("03_drain_a_node.py", "node-1")
    read_until(program, r"^node-1: [1-9]\d* pods removed, \d+ ignored")
    assert program.wait(timeout=10) == 0
    assert api_server.get("nodes", "node-1")["spec"]["unschedulable"] is True
