"""The first process of a node: sets up its network and root folder, and runs its programs.

The process is the first one of the node's namespaces. When it is killed, the kernel kills every
process of the node at once, as a power cut does. Requests are JSON lines on the socket that is
its standard input. It ends when that socket is closed, so no node outlives its owner.

This file uses the standard library only and is run as a script, so that it starts fast. The owner
sends the node's settings in the first line; see `Settings`. The node answers when its programs
have been started: `{}` with a pidfd of this process, or `{"error": "..."}`. Then it serves:

```text
{"do": "start", "name": "kubelet"}     {}
{"do": "stop", "name": "kubelet"}      {"status": -15}
{"do": "status"}                       {"containerd": null, "kubelet": 1}
```
"""

import ctypes
import ctypes.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = [
    "PROGRAMS",
    "Programs",
    "Settings",
    "connect",
    "enter",
    "join_groups",
    "main",
    "make_root",
]

PROGRAMS: Final = ("containerd", "kubelet", "kube-proxy")
"""The programs that a node runs, in the order of their start."""

_CLONE_NEWCGROUP: Final = 0x02000000
_BIND: Final = 4096
_REC: Final = 16384
_REMOUNT: Final = 32
_READ_ONLY: Final = 1
_PRIVATE: Final = 1 << 18
_SHARED: Final = 1 << 20
_DETACH: Final = 2

_IGNORED: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)  # here, not by the programs
_LAB_NETWORK: Final = "/proc/1/ns/net"  # before this process mounts another /proc
_RUNTIME_TIMEOUT: Final = 60.0
_LOGS: Final = "/var/log"
_GRACE: Final = 10.0
_STACK: Final = "/sys/fs/cgroup"
_COPIED: Final = (
    *("passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives", "protocols", "services"),
)
"""What the machine's programs read in /etc; `iptables` is a link into `alternatives`."""

# A kubelet sets these for the whole machine. Files with the values that it wants answer instead.
_SYSCTLS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_ARGUMENTS: Final = {
    "containerd": ("--config", "/etc/containerd/config.toml"),
    "kubelet": (
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--config=/etc/kubernetes/kubelet.json",
        "--v=2",
    ),
    "kube-proxy": ("--config=/etc/kubernetes/proxy.json", "--v=2"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a node is made of; every field is a string, or a list or dictionary of strings.

    Attributes:
        name: The name of the node.
        directory: The folder of the node: `etc`, `var`, and `root`, which is empty.
        link: The name of the node's link in the lab's network.
        bridge: The lab's bridge, which the link joins.
        address: The node's address with the length of its prefix.
        gateway: The router.
        hardware_address: The node's network card; it stays the same after a reboot.
        machine_id: The content of `/etc/machine-id`.
        boot_id: What the kernel answers as the id of this start.
        group: The name of the node's control group in each hierarchy.
        hierarchies: The folder of each hierarchy and its mount options; version 2 has none.
        programs: The folders of programs in the node, with the files that are put there.
        arguments: Further arguments by program.
    """

    name: str
    directory: str
    link: str
    bridge: str
    address: str
    gateway: str
    hardware_address: str
    machine_id: str
    boot_id: str
    group: str
    hierarchies: dict[str, str]
    programs: dict[str, list[str]]
    arguments: dict[str, list[str]]


# -- system calls ----------------------------------------------------------------------------------

_libc: Final = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str | Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    done = _libc.mount(
        source.encode(),
        os.fspath(target).encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _checked(done, f"cannot mount {source} at {target}")


def _run(*argv: str) -> None:
    done = subprocess.run(  # noqa: S603 - fixed programs
        argv, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        raise OSError(f"`{' '.join(argv)}` failed: {done.stderr.strip() or done.returncode}")


# -- the machine -----------------------------------------------------------------------------------


def connect(settings: Settings) -> None:
    """Connect the node with the lab's bridge."""
    _run("ip", "link", "set", "lo", "up")
    _run(
        *("ip", "link", "add", "eth0", "address", settings.hardware_address, "type", "veth"),
        *("peer", "name", settings.link, "netns", _LAB_NETWORK),
    )
    _run(
        *("nsenter", f"--net={_LAB_NETWORK}", "ip", "link", "set", settings.link),
        *("master", settings.bridge, "up"),
    )
    _run("ip", "address", "add", settings.address, "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    _run("ip", "route", "add", "default", "via", settings.gateway)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")


def join_groups(settings: Settings) -> None:
    """Enter the node's control groups, and see them as the roots of their hierarchies."""
    for hierarchy in map(Path, settings.hierarchies):
        parent = hierarchy
        for part in Path(settings.group).parts:
            _enable_controllers(parent)
            folder = parent / part
            folder.mkdir(exist_ok=True)
            if (folder / "cpuset.mems").exists() and (folder / "cgroup.clone_children").exists():
                # Version 1: no process may join before both are set.
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (folder / name).write_text((parent / name).read_text())
                (folder / "cgroup.clone_children").write_text("1")
            parent = folder
        (parent / "cgroup.procs").write_text("0")  # this process
    _checked(_libc.unshare(_CLONE_NEWCGROUP), "cannot enter a control group namespace")


def _enable_controllers(group: Path) -> None:
    """Pass the controllers of a group of version 2 on to the groups inside it."""
    if (group / "cgroup.subtree_control").exists():
        controllers = (group / "cgroup.controllers").read_text().split()
        for controller in controllers:
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def make_root(settings: Settings) -> Path:
    """Mount the node's root folder and return it.

    All default paths are the node's own, and a volume of the node's files shows its disk.
    """
    directory = Path(settings.directory)
    root = directory / "root"
    root.mkdir(exist_ok=True)
    _mount("none", "/", flags=_REC | _PRIVATE)
    _mount("node", root, "tmpfs", data="mode=755,size=64m")
    for name in ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var", "old"):
        (root / name).mkdir()
    for name in ("bin", "sbin", "lib", "lib64"):
        _show(Path("/", name), root / name)
    _mount("/usr", root / "usr", flags=_BIND)
    _mount("none", root / "usr", flags=_BIND | _REMOUNT | _READ_ONLY)
    for folder, files in settings.programs.items():
        (root / folder).mkdir(parents=True)
        for file in files:
            target = root / folder / Path(file).name
            target.touch()
            _mount(file, target, flags=_BIND)
    _write_etc(settings, root / "etc")
    _mount(str(directory / "var"), root / "var", flags=_BIND)
    _mount("run", root / "run", "tmpfs", data="mode=755")
    _mount("tmp", root / "tmp", "tmpfs", data="mode=1777")
    (root / "run/lock").mkdir()
    _mount("/dev", root / "dev", flags=_BIND | _REC)
    _mount("proc", root / "proc", "proc")
    _mount("sysfs", root / "sys", "sysfs")
    _mount_groups(settings, Path(f"{root}{_STACK}"))
    _hide_sysctls(root, settings.boot_id)
    return root


def _show(path: Path, target: Path) -> None:
    if path.is_symlink():
        target.symlink_to(path.readlink())
    elif path.is_dir():
        target.mkdir()
        _mount(str(path), target, flags=_BIND | _REC)


def _write_etc(settings: Settings, etc: Path) -> None:
    for name in _COPIED:
        path = Path("/etc", name)
        if path.is_dir():
            shutil.copytree(path, etc / name, symlinks=True)
        elif path.exists():
            shutil.copy(path, etc / name)
    shutil.copytree(Path(settings.directory, "etc"), etc, dirs_exist_ok=True)
    (etc / "kubernetes/manifests").mkdir(exist_ok=True)
    files = {
        "hostname": settings.name,
        "hosts": f"127.0.0.1 localhost {settings.name}",
        "machine-id": settings.machine_id,
        "resolv.conf": "nameserver 127.0.0.1",  # no server answers there
    }
    for name, text in files.items():
        (etc / name).write_text(f"{text}\n", encoding="utf-8")


def _mount_groups(settings: Settings, stack: Path) -> None:
    if "" in settings.hierarchies.values():  # version 2; not tested
        _mount("cgroup2", stack, "cgroup2")
        (stack / "init").mkdir(exist_ok=True)
        (stack / "init" / "cgroup.procs").write_text("0")  # a group with groups has no processes
        _enable_controllers(stack)
        return
    _mount("cgroup", stack, "tmpfs", data="mode=755")
    for folder, options in settings.hierarchies.items():
        target = stack / Path(folder).name
        target.mkdir()
        _mount("cgroup", target, "cgroup", data=options)
        for controller in options.split(","):
            link = stack / controller
            if not options.startswith("none,") and not link.exists():
                link.symlink_to(target.name)


def _hide_sysctls(root: Path, boot_id: str) -> None:
    values = {**_SYSCTLS, "kernel/random/boot_id": boot_id}
    folder = root / "run/sysctl"
    folder.mkdir()
    for name, value in values.items():
        file = folder / name.replace("/", ".")
        file.write_text(f"{value}\n", encoding="ascii")
        _mount(str(file), root / "proc/sys" / name, flags=_BIND)


def enter(root: Path) -> None:
    """Make a folder the root folder of this process, and hide everything outside it."""
    os.chdir(root)
    _run("pivot_root", ".", "old")
    os.chdir("/")
    _checked(_libc.umount2(b"/old", _DETACH), "cannot hide the machine's files")
    Path("/old").rmdir()
    _mount("none", "/", flags=_REC | _SHARED)  # for volumes with mount propagation
    for name in ("cni", "containerd", "kubelet"):
        Path("/var/lib", name).mkdir(parents=True, exist_ok=True)
    for path in ("/var/log/pods", "/var/tmp"):  # noqa: S108 - of the node
        Path(path).mkdir(parents=True, exist_ok=True)
    if not Path("/var/run").is_symlink():
        Path("/var/run").symlink_to("/run")


# -- the programs ----------------------------------------------------------------------------------


class Programs:
    """The programs of the node by name, and the processes that they leave behind.

    Threads: not thread-safe; one thread owns it.
    """

    def __init__(self, settings: Settings, folder: str) -> None:
        self._settings = settings
        self._environment = {
            "HOME": "/root",
            "PATH": f"/{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        }
        self._folder = folder
        self._pids: dict[str, int] = {}  # of programs that run
        self._ended: dict[str, int] = {}  # the status of programs that ended by themselves

    def start(self, name: str, **variables: str) -> None:
        """Start a program whose output goes to `/var/log/NAME.log`.

        Args:
            name: The program, one of `PROGRAMS`.
            variables: Further environment variables.
        """
        if name in self._pids:
            raise ValueError(f"{name} is already running")
        self._ended.pop(name, None)
        argv = [name, *_ARGUMENTS[name], *self._settings.arguments.get(name, ())]
        if name != "containerd":
            argv.append(f"--hostname-override={self._settings.name}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._pids[name] = os.posix_spawn(
            f"/{self._folder}/{name}",
            argv,
            {**self._environment, **variables},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, f"{_LOGS}/{name}.log", flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsigdef=_IGNORED,
        )

    def stop(self, name: str) -> int:
        """Terminate a program, after ten seconds kill it, and return its exit status."""
        if name not in self._pids:
            raise ValueError(f"{name} is not running")
        handle = os.pidfd_open(self._pids[name])
        try:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            ended, _, _ = select.select([handle], [], [], _GRACE)
            if not ended:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [])
        finally:
            os.close(handle)
        self.reap()
        return self._ended.pop(name)

    def status(self) -> dict[str, int | None]:
        """Return the exit status of each program; `None` while it runs."""
        return {**dict.fromkeys(self._pids), **self._ended}

    def reap(self) -> None:
        """Take notice of processes that have ended; those without a parent are children, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, running in list(self._pids.items()):
                if running == pid:
                    del self._pids[name]
                    self._ended[name] = os.waitstatus_to_exitcode(status)

    def start_runtime(self) -> None:
        """Start containerd, and wait until it serves kubelets; a kubelet ends if it does not.

        Its socket listens before that. It reports the end of its start as it does to systemd.

        Raises:
            OSError: containerd ended, or reports nothing in a minute.
        """
        deadline = time.monotonic() + _RUNTIME_TIMEOUT
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reports:
            reports.bind("")  # the kernel chooses a name, in the node's network
            self.start("containerd", NOTIFY_SOCKET=f"@{reports.getsockname()[1:].decode()}")
            handle = os.pidfd_open(self._pids["containerd"])
            try:
                self._wait_for_report(reports, handle, deadline)
            finally:
                os.close(handle)

    def _wait_for_report(self, reports: socket.socket, handle: int, deadline: float) -> None:
        while True:
            left = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([reports.fileno(), handle], [], [], left)
            if not readable:
                raise OSError(f"containerd is not ready after {_RUNTIME_TIMEOUT:g} s")
            if handle in readable:
                self.reap()
                raise OSError(f"containerd ended with status {self._ended['containerd']}")
            if b"READY=1" in reports.recv(1 << 12).splitlines():
                return


def _answer(programs: Programs, request: dict[str, Any]) -> dict[str, Any]:
    match request:
        case {"do": "start", "name": str(name)}:
            programs.start(name)
            return {}
        case {"do": "stop", "name": str(name)}:
            return {"status": programs.stop(name)}
        case {"do": "status"}:
            return programs.status()
    raise ValueError(f"unknown request {request}")


def _serve(owner: socket.socket, programs: Programs) -> None:
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pending = b""
    while True:
        programs.reap()
        ready, _, _ = select.select([owner.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if owner.fileno() not in ready:
            continue
        data = owner.recv(1 << 16)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            try:
                answer = _answer(programs, json.loads(line))
            except (OSError, ValueError, LookupError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            owner.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Set up the node, start its programs, and serve requests until the owner ends."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as owner:
        with owner.makefile("rb", buffering=0) as lines:
            settings = Settings(**json.loads(lines.readline()))
        try:
            socket.sethostname(settings.name)
            connect(settings)
            join_groups(settings)
            enter(make_root(settings))
            programs = Programs(settings, next(iter(settings.programs)))
            programs.start_runtime()
            for name in PROGRAMS[1:]:
                programs.start(name)
        except (OSError, subprocess.SubprocessError) as error:
            owner.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
            sys.exit(1)
        socket.send_fds(owner, [b"{}\n"], [os.pidfd_open(os.getpid())])
        _serve(owner, programs)


if __name__ == "__main__":
    main()
