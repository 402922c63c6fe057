"""Fixtures of all cases: the server under contract, and namespaces for each test.

The cases run against the in-process server, and against a real one (`--server`). Beyond their
assertions, every response of the in-process server is compared with the recorded one of a real
server (`recorded.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import urllib3
from tests.cases.waiting import wait_for
from tests.contract.exchanges import Exchange, Http
from tests.contract.objects import Make, config_map, pod
from tests.contract.recorded import RecordedAnswers
from tests.contract.shared import Shared
from tests.contract.widgets import WIDGETS, widget_named
from tests.namespaces import namespaces_of_their_own
from tests.servers import IN_PROCESS, Served, named

from navarchos.client import Client, ClientConfig

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@contextmanager
def opened(config: ClientConfig) -> Iterator[Http]:
    """Yield a client whose exchanges are not compared."""
    headers = {"User-Agent": "contract"}
    if config.authorization is not None and (header := config.authorization()):
        headers["Authorization"] = header
    with urllib3.PoolManager(
        maxsize=32,  # the most requests that a case sends in parallel
        cert_reqs="REQUIRED" if config.verify else "NONE",
        ca_certs=config.ca_file,
        cert_file=config.cert_file,
        key_file=config.key_file,
    ) as pool:
        yield Http(config.host, pool, headers)


@pytest.fixture(scope="session")
def admin(served: Served) -> Iterator[Http]:
    """A client whose exchanges are not compared."""
    with opened(served.config) as http:
        yield http


@pytest.fixture(scope="session")
def answers(pytestconfig: pytest.Config) -> Iterator[RecordedAnswers]:
    """The recorded responses; with `--record`, the responses of this run replace them."""
    answers = RecordedAnswers(record=pytestconfig.getoption("--record"))
    yield answers
    answers.save()


@pytest.fixture
def compared(
    request: pytest.FixtureRequest, served: Served, answers: RecordedAnswers
) -> Iterator[list[Exchange]]:
    """The exchanges of the test, which are compared at its end."""
    exchanges: list[Exchange] = []
    yield exchanges
    if request.node.get_closest_marker("unrecorded"):
        return
    # A server outside this suite may have another version or other settings.
    if served.kind == IN_PROCESS or not named() or answers.record:
        answers.check(request.path.stem, request.node.name, exchanges)


@pytest.fixture
def http(admin: Http, compared: list[Exchange]) -> Http:
    """A client of the server under contract; its exchanges are compared."""
    return replace(admin, exchanges=compared)


@pytest.fixture(scope="module")
def namespaces(served: Served) -> Iterator[Callable[[], str]]:
    """Makes namespaces, which are deleted after the module."""
    with Client(served.config) as client, namespaces_of_their_own(client, "contract-") as make:
        yield make


@pytest.fixture
def namespace(namespaces: Callable[[], str]) -> str:
    """A namespace for the test."""
    return namespaces()


@pytest.fixture
def core(namespace: str) -> str:
    """The core API's path of the namespace."""
    return f"/api/v1/namespaces/{namespace}"


@pytest.fixture(scope="session")
def widgets(admin: Http) -> Iterator[str]:
    """The path of a custom kind that uses all keywords of schemas."""
    with defined(admin, WIDGETS) as path:
        yield path


@contextmanager
def defined(http: Http, definition: dict[str, Any]) -> Iterator[str]:
    """Serve a custom kind in a `with` block; yield its path."""
    path, name = (
        "/apis/{group}/v1/{names[plural]}".format(**definition["spec"]),
        definition["metadata"]["name"],
    )
    with http.unrecorded():
        http("DELETE", f"{DEFINITIONS}/{name}")  # left by a run that was killed
        wait_for("the old one's end", lambda: http("GET", f"{DEFINITIONS}/{name}").code == 404)
        http.create(DEFINITIONS, definition)
        wait_for("the kind", lambda: http("GET", path).code == 200)
    try:
        yield path
    finally:
        http("DELETE", f"{DEFINITIONS}/{name}")


@pytest.fixture(scope="module")
def shared_maps(admin: Http, namespaces: Callable[[], str]) -> Shared:
    """Three config maps, the only ones in their namespace."""
    shared = Shared(admin, f"/api/v1/namespaces/{namespaces()}/configmaps", config_map)
    shared.fill()
    return shared


@pytest.fixture(scope="module")
def shared_widgets(admin: Http, widgets: str) -> Iterator[Shared]:
    """Three custom objects, the only ones of their kind."""
    shared = Shared(admin, widgets, widget_named)
    shared.fill()
    yield shared
    shared.clear()


@pytest.fixture(params=["shared_maps", "shared_widgets"], ids=["maps", "widgets"])
def shared(request: pytest.FixtureRequest) -> Shared:
    """Three objects, of a built-in kind and of a custom one."""
    found: Shared = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def path(shared: Shared) -> str:
    """The path of the three objects, for cases that do not change them."""
    return shared.path


@pytest.fixture
def maps(shared_maps: Shared) -> str:
    """The path of the config maps, for cases that do not change them."""
    return shared_maps.path


@pytest.fixture
def changed(shared: Shared) -> Iterator[str]:
    """The path of the three objects, for cases that change them."""
    yield shared.path
    shared.renew()


@pytest.fixture
def changed_maps(shared_maps: Shared) -> Iterator[str]:
    """The path of the config maps, for cases that change them."""
    yield shared_maps.path
    shared_maps.renew()


@pytest.fixture
def widget(http: Http, widgets: str) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes widgets, and deletes them after the test."""
    made: list[str] = []

    def make(name: str = "", **spec: object) -> dict[str, Any]:
        found = http.create(widgets, widget_named(name, **spec))
        made.append(found["metadata"]["name"])
        return found

    yield make
    with http.unrecorded():
        for name in made:
            http("DELETE", f"{widgets}/{name}")


@pytest.fixture
def running(http: Http, core: str) -> Make:
    """Makes pods on a node, ready or not."""

    def make(
        name: str, *, ready: bool = True, phase: str = "Running", bound: bool = True
    ) -> dict[str, Any]:
        body = pod(name, app="web")
        if bound:
            body["spec"]["nodeName"] = "somewhere"
        value = "True" if ready else "False"
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": value}]}
        with http.unrecorded():
            http.create(f"{core}/pods", body)
            reply = http.merge(f"{core}/pods/{name}/status", {"status": status})
        assert reply.code == 200
        found: dict[str, Any] = reply.body
        return found

    return make


@pytest.fixture
def budget(http: Http, namespace: str) -> Make:
    """Makes disruption budgets with a status, as a controller would write it."""
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def make(name: str = "b", *, spec: object = None, **status: object) -> dict[str, Any]:
        given: dict[str, Any] = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 2}
        if isinstance(spec, dict):
            given.update(spec)
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": given,
        }
        held = {
            "observedGeneration": 1,
            "disruptionsAllowed": 0,
            "currentHealthy": 2,
            "desiredHealthy": 2,
            "expectedPods": 2,
            **status,
        }
        with http.unrecorded():
            http.create(path, body)
            reply = http.merge(f"{path}/{name}/status", {"status": held})
        assert reply.code == 200
        found: dict[str, Any] = reply.body
        return found

    return make


@pytest.fixture
def deployment(http: Http, namespace: str) -> str:
    """The path of a deployment."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "pause:3"}]},
            },
        },
    }
    with http.unrecorded():
        http.create(path, body)
    return f"{path}/a"
