"""Certificates that are replaced on disk while watches are open."""

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.clocks import JumpingClock
from tests.unit.client.wire import Connect, Peer, Serve

from navarchos.client import Client, Resource
from navarchos.client.http.pool import CertificateFiles
from navarchos.client.options import WatchOptions
from navarchos.informers import InformerOptions, SharedInformer
from navarchos.meta import Object
from navarchos.testing import FakeClock

pytest.importorskip("cryptography")  # creates the certificates
from navarchos.testing.controlplane.credentials import Authority, KeyPair

LIMIT = 30.0

MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=Object)


@dataclass
class Folder:
    """An authority, the certificates it issues, and the files that a client reads."""

    path: Path
    authority: Authority = field(init=False)

    def __post_init__(self) -> None:
        (self.path / "ca").mkdir()
        self.authority = Authority(self.path / "ca")
        self.become("one")
        self.trust(self.authority)

    def become(self, user: str) -> None:
        pair = self.authority.issue_client(user, user)
        self.put(pair.certificate, "tls.crt")
        self.put(pair.key, "tls.key")

    def trust(self, *authorities: Authority) -> None:
        content = b"".join(each.files.certificate.read_bytes() for each in authorities)
        self.file("ca.crt").write_bytes(content)

    def put(self, source: Path, name: str) -> None:
        self.file(name).write_bytes(source.read_bytes())

    def file(self, name: str) -> Path:
        return self.path / name

    @property
    def settings(self) -> dict[str, str]:
        names = {"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key"}
        return {setting: str(self.file(name)) for setting, name in names.items()}

    def watched(self, clock: FakeClock) -> CertificateFiles:
        return CertificateFiles(*self.settings.values(), clock=clock)

    def context(self) -> ssl.SSLContext:
        """Return the context of a server that requires client certificates."""
        server: KeyPair = self.authority.issue_server("server", ["127.0.0.1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.certificate, server.key)
        context.load_verify_locations(self.authority.files.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def event(version: int) -> bytes:
    metadata = {"name": f"m{version}", "namespace": "n", "resourceVersion": str(version)}
    return json.dumps({"type": "ADDED", "object": {"metadata": metadata}}).encode() + b"\n"


class Server:
    """Sends an empty list; each watch gets the next event, then silence or the end."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.streams: list[Any] = []
        self.opened = threading.Condition()

    def __call__(self, peer: Peer) -> None:
        assert isinstance(peer.socket, ssl.SSLSocket)
        certificate: Any = peer.socket.getpeercert()
        ((_, user),) = certificate["subject"][-1]
        while (request := peer.receive()) is not None:
            if "watch=true" not in request.target:
                self.asked.append((user, "list"))
                peer.answer(b'{"metadata":{"resourceVersion":"1"},"items":[]}')
                continue
            peer.begin_stream()
            with self.opened:
                _, _, version = request.target.partition("resourceVersion=")
                self.asked.append((user, version.partition("&")[0]))
                self.streams.append(peer)
                self.opened.notify_all()
            peer.wait_until_closed()

    def stream(self, number: int) -> Any:
        """Wait until watch `number` (from 1) is open; return its peer."""
        with self.opened:
            assert self.opened.wait_for(lambda: len(self.streams) >= number, LIMIT)
            return self.streams[number - 1]


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_watch_continues_with_the_new_certificate(
    folder: Folder, server: Server, serve: Serve, connect: Connect
) -> None:
    url = serve(server, tls=folder.context()).url
    clock = JumpingClock()  # for the files only: the watch waits in real time
    client: Client = connect(url, clock=clock, **folder.settings)
    informer = SharedInformer(client.resource(MAPS), options=InformerOptions(streaming=False))
    seen, told = [], threading.Condition()

    def note(obj: Object, _: bool) -> None:
        with told:
            seen.append(obj.metadata.name)
            told.notify_all()

    def until(*names: str) -> None:
        with told:
            assert told.wait_for(lambda: seen == list(names), LIMIT), seen

    informer.add_handler(on_add=note)
    informer.start()
    try:
        server.stream(1).stream(event(2))
        until("m2")
        folder.become("two")
        clock.passed += 60.0
        # Bytes of the old connection count until it ends, also incomplete lines.
        half = event(4)
        server.stream(1).stream(event(3) + half[:10])
        until("m2", "m3")
        server.stream(1).stream(half[10:])
        until("m2", "m3", "m4")
        server.stream(2).stream(event(5))
        until("m2", "m3", "m4", "m5")
    finally:
        informer.stop("the test is over")
        assert informer.join(LIMIT)
    assert server.asked == [("one", "list"), ("one", "1"), ("two", "4")]


def test_requests_show_a_new_certificate_within_a_minute(
    folder: Folder, server: Server, serve: Serve, connect: Connect, fake_clock: FakeClock
) -> None:
    running = serve(server, tls=folder.context())
    client: Client = connect(running.url, clock=fake_clock, **folder.settings)
    maps = client.resource(MAPS)
    maps.list()
    folder.become("two")
    fake_clock.advance(59.0)
    maps.list()
    fake_clock.advance(1.0)
    maps.list()
    maps.list()
    assert server.asked == [("one", "list"), ("one", "list"), ("two", "list"), ("two", "list")]
    assert running.connections == 2


def test_a_watch_with_the_current_certificate_is_not_ended(
    folder: Folder, server: Server, serve: Serve, connect: Connect, fake_clock: FakeClock
) -> None:
    url = serve(server, tls=folder.context()).url
    client: Client = connect(url, clock=fake_clock, **folder.settings)
    folder.become("two")
    fake_clock.advance(60.0)
    with client.resource(MAPS).watch(options=WatchOptions(resource_version="1")) as events:
        server.stream(1).stream(event(2))
        next(events)
        fake_clock.advance(60.0)
        server.stream(1).stream(event(3))
        assert next(events).resource_version == "3"
    assert server.asked == [("two", "1")]


# The files


def test_a_new_authority_is_a_change_and_equal_content_is_not(
    folder: Folder, tmp_path: Path, fake_clock: FakeClock
) -> None:
    files = folder.watched(fake_clock)
    (tmp_path / "other").mkdir()
    for name in ("ca.crt", "tls.crt", "tls.key"):  # another inode, as a kubelet leaves it
        copy = folder.file(f"{name}.new")
        copy.write_bytes(folder.file(name).read_bytes())
        copy.replace(folder.file(name))
    fake_clock.advance(60.0)
    assert files.changes == 0
    folder.trust(folder.authority, Authority(tmp_path / "other"))
    fake_clock.advance(60.0)
    assert files.changes == 1


def half_a_pair(folder: Folder) -> None:
    folder.put(folder.authority.issue_client("two", "two").certificate, "tls.crt")


def no_key(folder: Folder) -> None:
    folder.file("tls.key").unlink()


def no_authority(folder: Folder) -> None:
    folder.file("ca.crt").write_bytes(b"")


@pytest.mark.parametrize("spoil", [half_a_pair, no_key, no_authority])
def test_files_that_cannot_be_used_together_wait_until_they_can(
    folder: Folder, fake_clock: FakeClock, spoil: Callable[[Folder], None]
) -> None:
    files = folder.watched(fake_clock)
    spoil(folder)
    with capture_logs() as logs:
        fake_clock.advance(60.0)
        assert files.changes == 0
    assert [log["event"] for log in logs] == ["certificates_unusable"]
    folder.become("two")
    folder.trust(folder.authority)
    fake_clock.advance(60.0)
    assert files.changes == 1
