"""The server under contract: ours by default, any other by environment variables.

`NAVARCHOS_CONTRACT_URL`, `NAVARCHOS_CONTRACT_TOKEN` and `NAVARCHOS_CONTRACT_CA` name a
real kube-apiserver. The cases assert only what both answer.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3

from navarchos.testing.apiserver import ApiServer

GROUP = "contract.example.com"


@dataclass
class Reply:
    """An answer, decoded."""

    code: int
    body: Any
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        return self.body.get("reason", "")

    @property
    def message(self) -> str:
        return self.body.get("message", "")

    @property
    def causes(self) -> list[dict[str, str]]:
        return self.body.get("details", {}).get("causes", [])


@dataclass
class Http:
    """Requests against the server under contract."""

    url: str
    pool: urllib3.PoolManager
    headers: dict[str, str] = field(default_factory=dict)

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: str = "application/json",
        content_type: str = "application/json",
        **query: object,
    ) -> Reply:
        raw = None if body is None else json.dumps(body).encode()
        response = self.pool.request(
            method,
            self._url(path, query),
            body=raw,
            headers={**self.headers, "Accept": accept, "Content-Type": content_type},
        )
        text = response.data
        decoded = json.loads(text) if text[:1] in {b"{", b"["} else text.decode()
        return Reply(response.status, decoded, dict(response.headers))

    def create(self, path: str, body: object, **query: object) -> dict[str, Any]:
        reply = self("POST", path, body, **query)
        assert reply.code == 201, reply.body
        return reply.body

    def merge(self, path: str, body: object, **query: object) -> Reply:
        return self("PATCH", path, body, content_type="application/merge-patch+json", **query)

    def watch(self, path: str, count: int, **query: object) -> list[dict[str, Any]]:
        """Return the first `count` events, or fewer when the watch ends before."""
        query = {"watch": "true", "timeoutSeconds": 10, **query}
        response = self.pool.request(
            "GET", self._url(path, query), headers=self.headers, preload_content=False
        )
        found: list[dict[str, Any]] = []
        try:
            while len(found) < count and (line := response.readline()):
                found.append(json.loads(line))
        finally:
            response.close()
        return found

    def _url(self, path: str, query: dict[str, object]) -> str:
        text = urlencode({key: value for key, value in query.items() if value is not None})
        return f"{self.url}{path}" + (f"?{text}" if text else "")


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of the server under contract."""
    given = os.environ.get("NAVARCHOS_CONTRACT_URL")
    if given:
        yield given.rstrip("/")
        return
    with ApiServer() as server:
        yield server.url


@pytest.fixture(scope="session")
def http(server_url: str) -> Iterator[Http]:
    """A client of the server under contract."""
    token = os.environ.get("NAVARCHOS_CONTRACT_TOKEN")
    authority = os.environ.get("NAVARCHOS_CONTRACT_CA")
    headers = {"User-Agent": "contract", **({"Authorization": f"Bearer {token}"} if token else {})}
    with urllib3.PoolManager(ca_certs=authority, maxsize=4) as pool:
        yield Http(server_url, pool, headers)


@pytest.fixture
def namespace(http: Http) -> Iterator[str]:
    """A namespace of the test's own."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "contract-"}}
    name = http.create("/api/v1/namespaces", body)["metadata"]["name"]
    yield name
    http("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def core(namespace: str) -> str:
    """The core API's path of that namespace."""
    return f"/api/v1/namespaces/{namespace}"


def config_map(name: str = "", **data: str) -> dict[str, Any]:
    metadata = {"name": name} if name else {"generateName": "map-"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "pause:3"}]},
    }


def widget_definition(plural: str, schema: dict[str, Any], **version: object) -> dict[str, Any]:
    kind = plural.rstrip("s").capitalize()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


@pytest.fixture(scope="session")
def widgets(http: Http) -> Iterator[str]:
    """A custom kind with everything that schemas can say; yields its path."""
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 10},
                    "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
                    "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                    "label": {"type": "string", "minLength": 2},
                    "at": {"type": "string", "format": "date-time"},
                    "amount": {"x-kubernetes-int-or-string": True},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                    "maybe": {"type": "string", "nullable": True},
                    "names": {
                        "type": "array",
                        "maxItems": 3,
                        "x-kubernetes-list-type": "set",
                        "items": {"type": "string"},
                    },
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string"},
                                "weight": {"type": "integer", "default": 1},
                            },
                        },
                    },
                    "fixed": {
                        "type": "string",
                        "x-kubernetes-validations": [
                            {"rule": "self == oldSelf", "message": "fixed is immutable"}
                        ],
                    },
                },
                "x-kubernetes-validations": [
                    {"rule": "self.size != 7", "message": "seven is unlucky"}
                ],
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    definition = widget_definition(
        "widgets", schema, subresources={"status": {}}, additionalPrinterColumns=columns
    )
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    http.create(definitions, definition)
    path = f"/apis/{GROUP}/v1/widgets"
    _until(lambda: http("GET", path).code == 200)
    yield path
    http("DELETE", f"{definitions}/widgets.{GROUP}")


def _until(done: Callable[[], bool], tries: int = 200) -> None:
    for _ in range(tries):
        if done():
            return
    raise AssertionError("it never came true")


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
    for name in made:
        http("DELETE", f"{widgets}/{name}")
