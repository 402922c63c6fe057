"""What every case gets: the server under contract, and objects of its own.

The cases hold for ours and for a real one (`--server`). Beyond what they assert, all
that they say to ours is compared with what a real one said (`answers.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
import urllib3
from tests.contract.answers import Answers
from tests.contract.exchanges import Http
from tests.contract.objects import GROUP
from tests.contract.widgets import WIDGETS
from tests.servers import IN_PROCESS, REAL, Served, named

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# What cases leave in their namespaces; a server without controllers does not tidy up.
LEFT = (
    "/api/v1/{}/pods",
    "/api/v1/{}/configmaps",
    "/api/v1/{}/events",
    "/api/v1/{}/services",
    "/api/v1/{}/serviceaccounts",
    "/apis/apps/v1/{}/deployments",
    "/apis/apps/v1/{}/replicasets",
    "/apis/apps/v1/{}/statefulsets",
    "/apis/apps/v1/{}/daemonsets",
    "/apis/batch/v1/{}/jobs",
    "/apis/policy/v1/{}/poddisruptionbudgets",
    "/apis/coordination.k8s.io/v1/{}/leases",
)


@pytest.fixture(scope="session")
def admin(served: Served) -> Iterator[Http]:
    """A client that nobody listens to."""
    config = served.config
    headers = {"User-Agent": "contract"}
    if config.authorization is not None and (header := config.authorization()):
        headers["Authorization"] = header
    with urllib3.PoolManager(
        maxsize=4,
        cert_reqs="REQUIRED" if config.verify else "NONE",
        ca_certs=config.ca_file,
        cert_file=config.cert_file,
        key_file=config.key_file,
    ) as pool:
        yield Http(config.host, pool, headers)


@pytest.fixture(scope="session")
def answers(pytestconfig: pytest.Config) -> Iterator[Answers]:
    """What a real server answered; with `--record`, what this one does."""
    answers = Answers(record=pytestconfig.getoption("--record"))
    yield answers
    answers.save()


@pytest.fixture
def http(
    request: pytest.FixtureRequest, admin: Http, served: Served, answers: Answers
) -> Iterator[Http]:
    """A client of the server under contract; the answers are compared with the record."""
    http = Http(admin.url, admin.pool, admin.headers)
    yield http
    if request.node.get_closest_marker("unrecorded"):
        return
    # A server that somebody else runs may be of another version, or set up otherwise.
    if served.kind == IN_PROCESS or not named() or answers.record:
        answers.check(request.path.stem, request.node.name, http.exchanges)


@pytest.fixture
def namespace(admin: Http, served: Served) -> Iterator[str]:
    """A namespace of the test's own."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "contract-"}}
    name = admin.create("/api/v1/namespaces", body)["metadata"]["name"]
    # Pods need one, and there may be no controller that makes it.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    admin("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
    yield name
    if served.kind == REAL:
        for path in LEFT:
            admin("DELETE", path.format(f"namespaces/{name}"), gracePeriodSeconds=0)
    admin("DELETE", f"/api/v1/namespaces/{name}")
    left = admin("GET", f"/api/v1/namespaces/{name}")
    if left.code == 200:
        final = {**left.body, "spec": {"finalizers": []}}
        admin("PUT", f"/api/v1/namespaces/{name}/finalize", final)


@pytest.fixture
def core(namespace: str) -> str:
    """The core API's path of that namespace."""
    return f"/api/v1/namespaces/{namespace}"


@pytest.fixture(scope="session")
def widgets(admin: Http) -> Iterator[str]:
    """A custom kind with everything that schemas can say; yields its path."""
    with defined(admin, WIDGETS) as path:
        yield path


@contextmanager
def defined(http: Http, definition: dict[str, Any]) -> Iterator[str]:
    """Serve a custom kind for the length of a `with` block; returns its path."""
    path, name = (
        "/apis/{group}/v1/{names[plural]}".format(**definition["spec"]),
        definition["metadata"]["name"],
    )
    with http.silent():
        http("DELETE", f"{DEFINITIONS}/{name}")  # of a run that was killed
        until(lambda: http("GET", f"{DEFINITIONS}/{name}").code == 404)
        http.create(DEFINITIONS, definition)
        until(lambda: http("GET", path).code == 200)
    try:
        yield path
    finally:
        http("DELETE", f"{DEFINITIONS}/{name}")


def until(done: Callable[[], bool], tries: int = 600) -> None:
    """Wait until something is so that another process makes so."""
    never = Event()
    assert any(done() or never.wait(0.05) for _ in range(tries)), "it never came true"


@pytest.fixture
def widget(http: Http, widgets: str) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes widgets, and removes them after the test."""
    made: list[str] = []

    def make(name: str = "", **spec: object) -> dict[str, Any]:
        body = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Widget",
            "metadata": {"name": name} if name else {"generateName": "w-"},
            "spec": {"size": 1, **spec},
        }
        found = http.create(widgets, body)
        made.append(found["metadata"]["name"])
        return found

    yield make
    with http.silent():
        for name in made:
            http("DELETE", f"{widgets}/{name}")
