"""The plugin in the tests of another project, and the cost of its fixtures."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from navarchos.testing.apiserver import ApiServer
from navarchos.testing.clock import FakeClock
from navarchos.testing.cluster import Cluster, ClusterOptions

CONFTEST = 'pytest_plugins = ["navarchos.testing.pytest"]\n'

SUITE = """
from navarchos.client import Resource
from navarchos.testing.definitions import DEFINITIONS

MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=dict)

def test_the_server_is_the_one_that_was_named(environment):
    with environment.client() as client:
        client.resource(MAPS).create({"metadata": {"name": environment.kind}}, "default")

def test_and_the_same_for_all(environment):
    with environment.client() as client:
        assert client.resource(MAPS).get(environment.kind, "default")
        served = client.resource(DEFINITIONS).list().items
        assert [found["metadata"]["name"] for found in served] == ["apples.example.com"]
"""

DEFINITION = """
import pytest

@pytest.fixture(scope="session")
def environment_crds():
    return [{
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "apples.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "apples", "kind": "Apple"},
            "versions": [{
                "name": "v1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    }]
"""


def node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def run_pytest(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.rule("TE-01")
def test_an_option_names_the_server_of_a_suite(tmp_path: Path, api_server: ApiServer) -> None:
    api_server.write_kubeconfig(tmp_path / "kubeconfig")
    (tmp_path / "conftest.py").write_text(CONFTEST + DEFINITION)
    (tmp_path / "test_it.py").write_text(SUITE)
    for arguments in ((), ("--navarchos-server=kubeconfig",)):
        done = run_pytest(tmp_path, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 passed" in done.stdout
    (made,) = api_server.list("configmaps", "default")  # the second one's
    assert made["metadata"]["name"] == "existing"
    assert api_server.list("customresourcedefinitions", group="apiextensions.k8s.io")


def test_a_test_without_the_fixture_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_nothing_of_it_is_loaded():\n"
        "    assert not [name for name in sys.modules if name.startswith('navarchos')]\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "navarchos" not in run_pytest(tmp_path, "--fixtures").stdout


def test_each_test_has_a_server_of_its_own(api_server: ApiServer) -> None:
    check_and_mark(api_server)


def test_and_this_one_has_another(api_server: ApiServer) -> None:
    check_and_mark(api_server)


def check_and_mark(server: ApiServer) -> None:
    """Fail if the second server has an object of the first one."""
    assert server.list("nodes") == []
    assert list(server.audit) == []
    server.install(node("mine"))


def test_a_server_costs_less_than_starting_python() -> None:
    def interpreter() -> None:
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)

    def server() -> None:
        with ApiServer():
            pass

    server()  # the first one compiles shared schemas
    assert median_time(server, 15) < median_time(interpreter, 5)


def median_time(call: Callable[[], None], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


@pytest.fixture
def cluster_options() -> ClusterOptions:
    return ClusterOptions(nodes=3, pods_per_node=2)


def test_a_cluster_has_settled_on_the_tests_server(cluster: Cluster, api_server: ApiServer) -> None:
    assert cluster.options.nodes == len(api_server.list("nodes")) == 3
    phases = {pod["status"]["phase"] for pod in api_server.list("pods")}
    assert phases == {"Running"}
    assert cluster.violations == []


def test_time_stands_still(fake_clock: FakeClock) -> None:
    before = fake_clock.monotonic()
    fake_clock.advance(60)
    assert fake_clock.monotonic() == before + 60
