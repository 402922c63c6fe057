"""The processes of a lab, without a lab: its registry, and the relay."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from navarchos.testing.nodes.lab_process import Registry, pid_of

RELAY = """
import asyncio, socket, sys
from navarchos.testing.nodes import lab_process

async def main():
    target = ("127.0.0.1", int(sys.argv[2]))
    async def connect(reader, writer):
        await lab_process.relay_connection(reader, writer, target)
    relayed = socket.socket(fileno=int(sys.argv[1]))
    server = await asyncio.start_server(connect, sock=relayed)
    await server.serve_forever()

asyncio.run(main())
"""


def test_a_registry_without_labs_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert Registry(tmp_path / "none").sweep() == []
    assert not (tmp_path / "none").exists()


def test_a_lab_that_runs_is_not_swept(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "labs")
    descriptor = registry.add("runs", tmp_path / "files")
    (tmp_path / "files" / "node").mkdir(parents=True)
    assert registry.sweep() == []
    assert (tmp_path / "files" / "node").exists()
    os.close(descriptor)  # as the kernel does when the last process ends
    assert registry.sweep() == ["runs"]
    assert not (tmp_path / "files").exists()
    assert registry.sweep() == []


def test_a_lab_that_ended_before_it_had_files_is_swept(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "labs")
    os.close(registry.add("early", tmp_path / "files"))
    assert registry.sweep() == ["early"]


def test_two_labs_have_different_names(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "labs")
    descriptor = registry.add("same", tmp_path / "files")
    with pytest.raises(FileExistsError):
        registry.add("same", tmp_path / "files")
    os.close(descriptor)
    registry.remove("same")
    os.close(registry.add("same", tmp_path / "files"))


def test_the_last_lab_removes_the_folder_of_labs(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "labs")
    descriptors = [registry.add(name, tmp_path / name) for name in ("first", "second")]
    registry.remove("first")
    assert (tmp_path / "labs").exists()
    registry.remove("second")
    assert not (tmp_path / "labs").exists()
    for descriptor in descriptors:
        os.close(descriptor)


def test_labs_come_and_go_at_the_same_time(tmp_path: Path) -> None:
    """The folder is removed by one lab in the moment in which another one needs it."""
    registry = Registry(tmp_path / "labs")
    failures: list[BaseException] = []

    def come_and_go(thread: int) -> None:
        try:
            for number in range(50):
                name = f"{thread}-{number}"
                descriptor = registry.add(name, tmp_path / name)
                assert name not in registry.sweep()
                registry.remove(name)
                os.close(descriptor)
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(tmp_path.iterdir()) == []


def test_a_pidfd_has_a_process_id_until_the_process_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    handle = os.pidfd_open(process.pid)
    try:
        assert pid_of(handle) == process.pid
        process.communicate(b"\n")
        assert pid_of(handle) == -1
    finally:
        os.close(handle)


def test_a_relay_copies_both_directions_and_the_ends() -> None:
    """The relay of a lab accepts in one network and connects in another; here both are one."""
    with socket.create_server(("127.0.0.1", 0)) as outside, _echo() as inside:
        ports = [each.getsockname()[1] for each in (outside, inside)]
        process = subprocess.Popen(
            [sys.executable, "-c", RELAY, str(outside.fileno()), str(ports[1])],
            pass_fds=[outside.fileno()],
        )
        try:
            with socket.create_connection(("127.0.0.1", ports[0]), timeout=20) as client:
                sent = os.urandom(1 << 20)
                writer = threading.Thread(target=lambda: _send(client, sent))
                writer.start()
                received = b""
                while data := client.recv(1 << 16):
                    received += data
                writer.join()
            assert received == sent
            inside.close()
            with (
                pytest.raises(ConnectionResetError),  # as a refused connection, a moment later
                socket.create_connection(("127.0.0.1", ports[0]), timeout=20) as client,
            ):
                client.recv(1)
        finally:
            process.kill()
            process.wait()


def _send(client: socket.socket, data: bytes) -> None:
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def _echo() -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    return server
