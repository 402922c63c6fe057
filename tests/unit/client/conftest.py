"""Fixtures: servers that run a script for each connection, and clients for them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.wire import Connect, JsonResponse, Peer, Serve, WireServer

from navarchos.client import (
    BufferedResponse,
    Client,
    ClientConfig,
    FunctionTransport,
    HttpRequest,
)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that run a script for each connection."""
    servers: list[WireServer] = []

    def start(script: Callable[[Peer], object], **options: Any) -> WireServer:
        servers.append(WireServer(script, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Create clients of a URL, or of a function instead of the network."""
    clients: list[Client] = []

    def make(
        to: str | Callable[[HttpRequest], BufferedResponse] = "http://127.0.0.1:1",
        *,
        clock: Any = None,
        stop: Any = None,
        instruments: Any = None,
        **settings: Any,
    ) -> Client:
        injected = {"clock": clock, "stop": stop, "instruments": instruments}
        if not isinstance(to, str):
            injected["transport"] = FunctionTransport(to)
        config = ClientConfig(to if isinstance(to, str) else "http://api.test", **settings)
        given = {name: value for name, value in injected.items() if value is not None}
        clients.append(Client(config, **given))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def json_answer() -> JsonResponse:
    """Create a response from a Python value."""

    def answer(value: object, status: int = 200, **headers: str) -> BufferedResponse:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return BufferedResponse(status, named, json.dumps(value).encode())

    return answer
