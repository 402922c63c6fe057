"""The processes of a lab: the keeper outside, the first process inside, and a relay between them.

The keeper starts the first process of new namespaces and waits. When its owner closes the
connection or ends in any way, the keeper ends that process. The kernel then kills every other
process of the lab, and removes its links, routes, rules and mounts. The keeper removes the
control groups and files, which no namespace owns. When the keeper is killed as well, the first
process ends by itself, and the next lab removes control groups and files.

This file uses the standard library only and is run as a script, so that it starts fast:

```text
lab_process.py keep REGISTRY ID DIRECTORY    standard input: a socket of the owner
lab_process.py hold                          standard input: a socket of the keeper
lab_process.py relay FD...                   each FD listens outside the lab
```

The keeper sends one JSON line: `{"pid": 42}`, the first process, or `{"error": "..."}`.
"""

import asyncio
import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = [
    "BRIDGE",
    "GATEWAY",
    "GROUP_PREFIX",
    "NAMESPACES",
    "Registry",
    "hierarchies",
    "hold",
    "keep",
    "main",
    "pid_of",
    "relay",
    "relay_connection",
    "remove_groups",
]

BRIDGE: Final = "lab"
GATEWAY: Final = "10.90.0.1"
"""The lab's own address, where the nodes reach its control plane."""

NAMESPACES: Final = ("--net", "--mount", "--pid")
"""The options of `unshare` and `nsenter` for the namespaces of a lab."""

GROUP_PREFIX: Final = "navarchos-lab-"
"""The prefix of a lab's control group, in every hierarchy."""

_GROUPS: Final = Path("/sys/fs/cgroup")
_CONTROLLERS: Final = (
    *("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc"),
    *("net_cls", "net_prio", "perf_event", "pids", "rdma"),
)
_REMOVAL_TIMEOUT: Final = 20.0
_REMOVAL_PERIOD: Final = 0.02
_END_TIMEOUT: Final = 20.0
_CHUNK: Final = 1 << 16


def hierarchies(mounts: str | None = None) -> dict[Path, str]:
    """Return the control group hierarchies that nodes use: their folders and mount options.

    These are the hierarchies of version 1 if the memory controller is in one of them; a unified
    hierarchy beside them has no controllers of use. Otherwise it is the unified one, without
    options.

    Args:
        mounts: The content of `/proc/self/mounts`, for tests.
    """
    text = mounts if mounts is not None else Path("/proc/self/mounts").read_text(encoding="utf-8")
    legacy: dict[Path, str] = {}
    unified: dict[Path, str] = {}
    for line in text.splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup" and Path(folder).parent == _GROUPS:
            own = [each for each in options.split(",") if each in _CONTROLLERS]
            named = [f"none,{each}" for each in options.split(",") if each.startswith("name=")]
            legacy[Path(folder)] = ",".join(own or named)
        elif kind == "cgroup2" and Path(folder) == _GROUPS:
            unified[Path(folder)] = ""
    if any("memory" in options.split(",") for options in legacy.values()):
        return {folder: options for folder, options in sorted(legacy.items()) if options}
    return unified


def remove_groups(name: str) -> None:
    """Remove the control groups of a lab, or of a node, whose processes have been killed.

    Args:
        name: The name of the group, which is the same in each hierarchy.

    Raises:
        OSError: A group still has processes after 20 seconds.
    """
    deadline = time.monotonic() + _REMOVAL_TIMEOUT
    for hierarchy in hierarchies():
        top = hierarchy / name
        while top.exists():
            try:
                # A killed process leaves its group some time later, which nothing reports.
                _remove_folders(top)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                select.select([], [], [], _REMOVAL_PERIOD)


def _remove_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        Path(folder).rmdir()


class Registry:
    """The labs of this machine: one file each, which the processes of the lab lock.

    A file without a lock belongs to a lab whose processes have all ended.

    Args:
        directory: The folder of the files. All labs of a machine share it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, identity: str, files: Path) -> int:
        """Add a lab whose files are in a folder; return a descriptor that locks its entry."""
        with self._locked():  # no sweep between creation and lock
            entry = self._directory / identity
            descriptor = os.open(entry, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, str(files).encode())
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def remove(self, identity: str) -> None:
        """Remove a lab's entry, and the folder of the entries with the last one."""
        with self._locked():
            (self._directory / identity).unlink(missing_ok=True)
            self._remove_if_empty()

    def sweep(self) -> list[str]:
        """Remove control groups and files of labs that ended without it; return their names.

        Raises:
            OSError: A control group or a file cannot be removed.
        """
        if not self._directory.is_dir():
            return []
        with self._locked():
            swept = [each.name for each in list(self._directory.iterdir()) if self._sweep(each)]
            self._remove_if_empty()
        return swept

    def _sweep(self, entry: Path) -> bool:
        with entry.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False  # this lab runs
            remove_groups(f"{GROUP_PREFIX}{entry.name}")
            files = file.read().decode()
            if files and Path(files).exists():
                shutil.rmtree(files)
            entry.unlink()
        return True

    def _remove_if_empty(self) -> None:
        with suppress(OSError):  # it has entries
            self._directory.rmdir()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        while True:
            # With `exist_ok`, mkdir fails if another lab removes the folder in this moment.
            with suppress(FileExistsError):
                self._directory.mkdir(mode=0o700, parents=True)
            try:
                descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # Its last owner may have removed the folder before this process had the lock.
                if os.fstat(descriptor).st_nlink > 0:
                    yield
                    return
            finally:
                os.close(descriptor)


def pid_of(descriptor: int) -> int:
    """Return the process id of a pidfd, as this process sees it; -1 if the process has ended.

    The number that a process has in its own namespace means nothing outside it.
    """
    text = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    found = re.search(r"^Pid:\s*(-?\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else -1


# -- the keeper ------------------------------------------------------------------------------------


def keep(registry: Registry, identity: str, directory: Path) -> None:
    """Hold a lab's namespaces until the owner closes standard input, then remove the lab."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # for the owner to handle
    lock = registry.add(identity, directory)
    directory.mkdir(mode=0o700, parents=True)
    ours, theirs = socket.socketpair()
    with socket.socket(fileno=os.dup(0)) as owner, ours:
        with theirs:
            # The lock is inherited: it is free only when the first process has ended, too.
            first = subprocess.Popen(  # noqa: S603 - a fixed program
                [
                    *("unshare", *NAMESPACES, "--fork", "--kill-child=KILL", "--mount-proc"),
                    *(sys.executable, "-I", __file__, "hold"),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=(directory / "lab.log").open("wb"),
                pass_fds=(lock,),
            )
        try:
            owner.sendall(json.dumps(_answer(ours, directory)).encode() + b"\n")
            while owner.recv(_CHUNK):
                pass
        except ConnectionError:
            pass  # the owner has died: remove the lab as after a normal end
        finally:
            ours.close()
            _end(first)
            remove_groups(f"{GROUP_PREFIX}{identity}")
            shutil.rmtree(directory)
            registry.remove(identity)


def _answer(first: socket.socket, directory: Path) -> dict[str, object]:
    _, descriptors, _, _ = socket.recv_fds(first, 1, 1)
    if descriptors:
        return {"pid": pid_of(descriptors[0])}
    tail = (directory / "lab.log").read_text(encoding="utf-8", errors="replace").strip()
    return {"error": tail.rpartition("\n")[2] or "its first process ended without a message"}


def _end(first: "subprocess.Popen[bytes]") -> None:
    try:
        first.wait(_END_TIMEOUT)
    except subprocess.TimeoutExpired:
        first.kill()
        first.wait()


# -- the first process -----------------------------------------------------------------------------


def hold() -> None:
    """Set up the network of the lab, then wait until the keeper closes the connection."""
    # The kernel removes children that this process inherits from others.
    with socket.socket(fileno=0) as keeper:
        for command in (
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"addr add {GATEWAY}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
        ):
            subprocess.run(["ip", *command.split()], check=True)  # noqa: S603, S607
        for name, value in (
            ("ip_forward", "1"),
            # The bridge is also the router between the pods of different nodes.
            ("conf/all/send_redirects", "0"),
            (f"conf/{BRIDGE}/send_redirects", "0"),
        ):
            Path(f"/proc/sys/net/ipv4/{name}").write_text(value, encoding="ascii")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        socket.send_fds(keeper, [b"."], [os.pidfd_open(os.getpid())])
        while keeper.recv(_CHUNK):
            pass


# -- the relay -------------------------------------------------------------------------------------


def relay(listening: list[socket.socket]) -> None:
    """Connect clients outside the lab with the servers of the same ports inside it.

    Connections are accepted on loopback of the machine. A process of the lab cannot use the relay
    to reach anything outside.
    """
    ports = ",".join(str(each.getsockname()[1]) for each in listening)
    # Inside, these numbers are reserved for the servers; outside, the listening sockets do that.
    reserved = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
    earlier = reserved.read_text(encoding="ascii").split()  # of another control plane
    reserved.write_text(",".join([*earlier, ports]), encoding="ascii")
    asyncio.run(_relay(listening))


async def _relay(listening: list[socket.socket]) -> None:
    servers = [await asyncio.start_server(_serve, sock=each) for each in listening]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(*(each.serve_forever() for each in servers))


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await relay_connection(reader, writer, writer.get_extra_info("sockname")[:2])


async def relay_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[str, int]
) -> None:
    """Connect a client with a server, until both have ended or one has reset its connection."""
    try:
        near, far = await asyncio.open_connection(*target)
    except OSError:
        _reset(writer)  # the server itself would refuse the connection
        return
    try:
        await asyncio.gather(_copy(reader, far), _copy(near, writer))
    except OSError:
        # One side has reset the connection, so the other side's is reset, too.
        _reset(far)
        _reset(writer)
    far.close()  # when all data has been sent
    writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def main() -> None:
    """Run one of the processes of a lab."""
    match sys.argv[1:]:
        case ["keep", registry, identity, directory]:
            keep(Registry(Path(registry)), identity, Path(directory))
        case ["hold"]:
            hold()
        case ["relay", *descriptors]:
            relay([socket.socket(fileno=int(each)) for each in descriptors])
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
