"""TLS of the servers of a manager, and the pages that are kept from strangers."""

import contextlib
import http.client
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from navarchos.errors import ConfigError
from navarchos.runtime.httpserver import Guard, HttpResponse, HttpServer, ServerCertificate
from navarchos.testing.controlplane.credentials import Authority, KeyPair

HOST = "127.0.0.1"


class Mounted:
    """A Secret as a kubelet mounts it: its files lie behind a link that is exchanged."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self._directory = directory
        self._number = 0
        self.certificate, self.key = directory / "data/tls.crt", directory / "data/tls.key"

    def issue(self) -> KeyPair:
        self._number += 1
        return self.authority.issue_server(f"server-{self._number}", [HOST])

    def show(self, certificate: Path, key: Path) -> None:
        version = self._directory / f"version-{len(list(self._directory.iterdir()))}"
        version.mkdir()
        shutil.copy(certificate, version / "tls.crt")
        shutil.copy(key, version / "tls.key")
        link = self._directory / "fresh"
        link.symlink_to(version)
        link.rename(self._directory / "data")

    def renew(self) -> KeyPair:
        pair = self.issue()
        self.show(pair.certificate, pair.key)
        return pair


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    mounted = Mounted(tmp_path)
    mounted.renew()
    return mounted


@pytest.fixture
def serve(mounted: Mounted) -> Iterator[Callable[..., HttpServer]]:
    made: list[HttpServer] = []

    def start(
        route: Callable[..., HttpResponse] = lambda path, _: HttpResponse.text(200, path),
        guard: Guard | None = None,
    ) -> HttpServer:
        certificate = ServerCertificate(mounted.certificate, mounted.key)
        server = HttpServer("test", (HOST, 0), route, certificate=certificate, guard=guard)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        assert server.stop(20)


@pytest.fixture
def get(mounted: Mounted) -> Callable[..., tuple[int, str, bytes]]:
    """Send a request over TLS; return the response and the certificate of the server."""
    context = ssl.create_default_context(cafile=str(mounted.authority.files.certificate))

    def ask(server: HttpServer, path: str = "/", token: str = "") -> tuple[int, str, bytes]:
        connection = http.client.HTTPSConnection(HOST, server.port, context=context, timeout=20)
        with contextlib.closing(connection):
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            shown = connection.sock.getpeercert(binary_form=True)
            connection.request("GET", path, headers={"Authorization": token} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), shown or b""

    return ask


Get = Callable[..., tuple[int, str, bytes]]


def der(pair: KeyPair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


@pytest.mark.rule("MG-16")
def test_a_client_that_connects_after_a_renewal_gets_the_new_certificate(
    mounted: Mounted, serve: Callable[..., HttpServer], get: Get
) -> None:
    server = serve()
    assert get(server, "/page")[:2] == (200, "/page")
    pair = mounted.renew()
    assert get(server)[2] == der(pair)


@pytest.mark.rule("MG-16")
def test_half_a_renewal_keeps_the_last_valid_pair_and_is_logged_once(
    mounted: Mounted, serve: Callable[..., HttpServer], get: Get
) -> None:
    server = serve()
    before = get(server)[2]
    other = mounted.issue()
    with structlog.testing.capture_logs() as logs:
        mounted.show(other.certificate, mounted.key.resolve())
        assert [get(server)[2], get(server)[2]] == [before, before]
        mounted.certificate.unlink()
        assert [get(server)[2], get(server)[2]] == [before, before]
    told = [line for line in logs if line["event"] == "certificate_unusable"]
    assert len(told) == 2
    mounted.show(other.certificate, other.key)
    assert get(server)[2] == der(other)


@pytest.mark.parametrize("missing", ["certificate", "key", "pair"])
def test_a_certificate_that_cannot_be_used_is_one_clear_error(
    mounted: Mounted, missing: str
) -> None:
    other = mounted.issue()
    certificate, key = {
        "certificate": (Path("/nowhere/tls.crt"), mounted.key),
        "key": (mounted.certificate, Path("/nowhere/tls.key")),
        "pair": (mounted.certificate, other.key),
    }[missing]
    wanted = "cannot be used together" if missing == "pair" else "No such file"
    with pytest.raises(ConfigError, match=wanted):
        ServerCertificate(certificate, key)


def test_a_client_without_tls_gets_no_response_and_affects_no_other(
    serve: Callable[..., HttpServer], get: Get
) -> None:
    server = serve()
    with socket.create_connection((HOST, server.port), timeout=20) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        heard = b""
        with contextlib.suppress(ConnectionResetError):  # unread bytes reset the connection
            heard = plain.makefile("rb").read()
    assert b"HTTP" not in heard
    assert get(server)[0] == 200


@pytest.mark.rule("MG-16")
def test_a_stop_sends_the_answer_under_way_and_waits_for_no_handshake(
    serve: Callable[..., HttpServer], get: Get
) -> None:
    entered, gate = threading.Event(), threading.Event()

    def route(path: str, _: object) -> HttpResponse:
        entered.set()
        gate.wait(20)
        return HttpResponse.text(200, "done")

    server = serve(route)
    with socket.create_connection((HOST, server.port)):
        answers: list[tuple[int, str, bytes]] = []
        asking = threading.Thread(target=lambda: answers.append(get(server)))
        asking.start()
        assert entered.wait(20)
        assert not server.stop(0)
        gate.set()
        assert server.stop(5), "the client that said nothing was waited for"
        asking.join(20)
        assert [answer[:2] for answer in answers] == [(200, "done")]


def test_a_guard_runs_before_the_page_and_a_failing_guard_refuses(
    serve: Callable[..., HttpServer], get: Get
) -> None:
    asked: list[tuple[str, str]] = []

    def guard(path: str, authorization: str) -> HttpResponse | None:
        asked.append((path, authorization))
        if path == "/broken":
            raise ZeroDivisionError
        return None if authorization == "Bearer good" else HttpResponse.text(403, "no")

    server = serve(guard=guard)
    assert get(server, "/a?b=c", "Bearer good")[:2] == (200, "/a")
    assert get(server, "/a", "Bearer bad")[:2] == (403, "no")
    assert get(server, "/broken", "Bearer good")[0] == 500
    assert asked[:2] == [("/a", "Bearer good"), ("/a", "Bearer bad")]
