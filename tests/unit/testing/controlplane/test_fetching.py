"""Releases over HTTP, from a server that fails in every way."""

import errno
import hashlib
import io
import random
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from navarchos.testing.controlplane.releases import Release, Releases, ReleaseUnusable

CONTENT = b"#!/bin/sh\n" * 1000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def page(body: bytes, *, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


@dataclass
class Publisher:
    """Responds with raw bytes by path and closes the connection."""

    url: str
    answers: dict[str, bytes] = field(default_factory=dict)

    def publish(self, checksum: bytes, file: bytes, *, member: str = "") -> Release:
        """Serve these two responses."""
        self.answers |= {"/checksum": checksum, "/file": file}
        return Release(f"{self.url}/file", f"{self.url}/checksum", str.strip, member=member)


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(made.answers[self.path])
            self.close_connection = True

        def log_message(self, *words: object) -> None:
            """Do not log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Publisher(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, name="publisher")
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def archive_of(member: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo(member)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def test_a_program_comes_out_of_its_archive_and_nothing_else_stays(
    publisher: Publisher, tmp_path: Path
) -> None:
    packed = archive_of("etcd-v1/etcd", CONTENT)
    release = publisher.publish(page(sha256(packed).encode()), page(packed), member="etcd-v1/etcd")
    Releases().fetch(release, tmp_path / "etcd")
    assert (tmp_path / "etcd").read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [tmp_path / "etcd"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(page(CONTENT + b"#"), "expected ", id="another file"),
        pytest.param(page(CONTENT[:5000], length=len(CONTENT)), "expected ", id="cut off"),
        pytest.param(
            CHUNKED + b"2710\r\n" + CONTENT[:5000],
            "the download was interrupted: ",
            id="cut in a chunk",
        ),
        pytest.param(b"", "cannot be reached: .*without response", id="no answer"),
        pytest.param(b"nonsense\r\n\r\n", "cannot be reached: nonsense", id="no HTTP"),
        pytest.param(page(b"", status="503 Busy"), "HTTP status 503", id="no service"),
    ],
)
def test_what_does_not_come_whole_is_not_kept(
    publisher: Publisher, tmp_path: Path, answer: bytes, why: str
) -> None:
    release = publisher.publish(page(sha256(CONTENT).encode()), answer)
    with pytest.raises(ReleaseUnusable, match=why) as caught:
        Releases().fetch(release, tmp_path / "kubectl")
    assert caught.value.url == release.url
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("checksum", "why"),
    [
        pytest.param(page(b"<html>log in</html>"), "no checksum found", id="a gateway's page"),
        pytest.param(page(sha256(CONTENT)[1:].encode()), "no checksum found", id="too short"),
        pytest.param(CHUNKED + b"40\r\n12", "the download was interrupted: ", id="cut off"),
    ],
)
def test_without_a_whole_checksum_nothing_is_fetched(
    publisher: Publisher, tmp_path: Path, checksum: bytes, why: str
) -> None:
    release = publisher.publish(checksum, page(CONTENT))
    with pytest.raises(ReleaseUnusable, match=why) as caught:
        Releases().fetch(release, tmp_path / "kubectl")
    assert caught.value.url == release.checksum_url
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [0, 1, 30, 400, 5000])
def test_an_archive_that_was_published_broken_is_refused(
    publisher: Publisher, tmp_path: Path, kept: int
) -> None:
    packed = archive_of("etcd", random.Random(7).randbytes(10_000))[:kept]
    release = publisher.publish(page(sha256(packed).encode()), page(packed), member="etcd")
    with pytest.raises(ReleaseUnusable, match="the archive is broken"):
        Releases().fetch(release, tmp_path / "etcd")


@pytest.mark.parametrize("member", ["", "etcd"])
def test_a_full_disk_is_no_fault_of_the_release(
    publisher: Publisher, tmp_path: Path, member: str
) -> None:
    packed = archive_of("etcd", CONTENT)
    release = publisher.publish(page(sha256(packed).encode()), page(packed), member=member)
    (tmp_path / ("etcd" if member else "etcd.download")).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        Releases().fetch(release, tmp_path / "etcd")
    assert caught.value.errno == errno.ENOSPC
