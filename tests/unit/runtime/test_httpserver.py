import http.client
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import structlog

from navarchos.errors import ConfigError
from navarchos.runtime.httpserver import HttpResponse, HttpServer, Query, parse_address

Route = Callable[[str, Query], HttpResponse]


def echo(path: str, query: Query) -> HttpResponse:
    if path == "/broken":
        raise ZeroDivisionError
    return HttpResponse.text(200, f"{path} {sorted(query.items())}")


@pytest.fixture
def serve() -> Iterator[Callable[[Route], HttpServer]]:
    made: list[HttpServer] = []

    def start(route: Route = echo) -> HttpServer:
        server = HttpServer("test", ("127.0.0.1", 0), route)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        server.stop(10)


def get(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_route_sees_path_and_query(serve: Callable[..., HttpServer]) -> None:
    server = serve()
    assert get(server, "/a?verbose&exclude=x&exclude=y") == (
        200,
        "/a [('exclude', ['x', 'y']), ('verbose', [''])]",
    )
    assert get(server, "/a", "POST")[0] == 501


def test_every_ipv4_interface_is_served_where_there_is_no_ipv6(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    server = HttpServer("test", ("", 0), echo)
    server.start()
    try:
        assert get(server, "/a") == (200, "/a []")
    finally:
        assert server.stop(10)


def test_a_route_that_fails_harms_no_other_request(serve: Callable[..., HttpServer]) -> None:
    server = serve()
    with structlog.testing.capture_logs() as logs:
        assert get(server, "/broken") == (500, "internal error: see the log\n")
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["http_route_failed"]
    assert get(server, "/a")[0] == 200


def test_requests_are_answered_side_by_side(serve: Callable[..., HttpServer]) -> None:
    both = threading.Barrier(2)

    def route(path: str, query: Query) -> HttpResponse:
        both.wait(20)
        return HttpResponse.text(200, "")

    server = serve(route)
    other = threading.Thread(target=get, args=(server, "/"))
    other.start()
    assert get(server, "/")[0] == 200
    other.join(20)


@pytest.mark.rule("MG-16")
def test_a_stop_waits_for_the_answer_under_way_but_not_for_silent_clients(
    serve: Callable[..., HttpServer],
) -> None:
    entered, gate = threading.Event(), threading.Event()

    def route(path: str, query: Query) -> HttpResponse:
        entered.set()
        gate.wait(20)
        return HttpResponse.text(200, "done")

    server = serve(route)
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        answers: list[tuple[int, str]] = []
        asking = threading.Thread(target=lambda: answers.append(get(server, "/")))
        asking.start()
        assert entered.wait(20)
        assert not server.stop(0)
        gate.set()
        assert server.stop(20)
        asking.join(20)
        assert answers == [(200, "done")]
        assert silent.recv(1) == b""


@pytest.mark.rule("MG-15")
def test_a_port_in_use_is_refused_at_once(serve: Callable[..., HttpServer]) -> None:
    server = serve()
    with pytest.raises(ConfigError, match="cannot be bound"):
        HttpServer("metrics", ("127.0.0.1", server.port), echo)


def test_a_server_that_never_ran_can_be_stopped() -> None:
    assert HttpServer("test", ("127.0.0.1", 0), echo).stop(0)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":8080", ("", 8080)),
        ("[::1]:0", ("::1", 0)),
        ("0", None),
        ("", None),
    ],
)
def test_addresses_are_read_as_upstream(text: str, address: tuple[str, int] | None) -> None:
    assert parse_address("metrics", text) == address


@pytest.mark.parametrize("text", ["8080", "host", "host:", "host:http", ":70000", ":-1"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        parse_address("metrics", text)
