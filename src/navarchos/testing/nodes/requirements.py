"""What real nodes need of the machine, and the errors of nodes and labs.

```text
NodesError(NavarchosError)
  MachineLacks                       this machine cannot run nodes
    NotLinux  NotRoot
    ProgramsMissing                  runc, iptables, ip and others, which Debian packages
    ControllersMissing               control groups without a controller
    FileSystemMissing                overlay
    NamespacesRefused                the kernel makes no namespaces for this process
    LinkMissing                      the kernel makes no network link of a kind
    WatchersMissing                  too few inotify instances for the number of nodes
  LabFailed                          the namespaces of a lab cannot be made, or are lost
  NodeFailed                         a node ended, or does not start
  NodesNotReady                      nodes are not Ready in time
```
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from navarchos.errors import NavarchosError
from navarchos.testing.nodes import lab_process

__all__ = [
    "PATH",
    "ControllersMissing",
    "FileSystemMissing",
    "LabFailed",
    "LinkMissing",
    "MachineLacks",
    "NamespacesRefused",
    "NodeFailed",
    "NodesError",
    "NodesNotReady",
    "NotLinux",
    "NotRoot",
    "ProgramsMissing",
    "WatchersMissing",
    "check_requirements",
    "check_watchers",
]

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the machine's programs are; the PATH of a user may lack the folders of root."""

_PACKAGES: Final = {
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "pivot_root": "util-linux",
    "mount": "mount",
    "cp": "coreutils",
}
"""The programs of the machine, with the packages of Debian that have them."""

_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids")
_WATCHERS: Final = 9  # a kubelet has 6, containerd 2, kube-proxy 1
_LINKS: Final = ("veth", "bridge")
_TIMEOUT: Final = 30.0


class NodesError(NavarchosError):
    """Real nodes cannot run, or have failed."""


class MachineLacks(NodesError):
    """This machine cannot run real nodes."""


class NotLinux(MachineLacks):
    """The machine runs another operating system.

    Attributes:
        system: Its name, as in `sys.platform`.
    """

    def __init__(self, system: str) -> None:
        super().__init__(system)
        self.system = system

    def __str__(self) -> str:
        return f"real nodes run on Linux only, this is {self.system}"


class NotRoot(MachineLacks):
    """The user is not root.

    Attributes:
        user: The number of the user.
    """

    def __init__(self, user: int) -> None:
        super().__init__(user)
        self.user = user

    def __str__(self) -> str:
        return f"only root can run real nodes, this is user {self.user}; use sudo"


class ProgramsMissing(MachineLacks):
    """Programs of the machine are missing.

    Attributes:
        names: The programs.
        packages: The packages of Debian that have them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.packages = tuple(dict.fromkeys(_PACKAGES[name] for name in self.names))
        super().__init__(self.names)

    def __str__(self) -> str:
        return (
            f"real nodes need {', '.join(self.names)}; "
            f"run `apt-get install --no-install-recommends {' '.join(self.packages)}`"
        )


class ControllersMissing(MachineLacks):
    """Control groups have no hierarchy with some controllers.

    Attributes:
        names: The controllers.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        super().__init__(self.names)

    def __str__(self) -> str:
        return (
            f"real nodes need the control group controllers {', '.join(self.names)} below "
            "/sys/fs/cgroup; in a container, run it with --privileged"
        )


class FileSystemMissing(MachineLacks):
    """The kernel does not know a file system.

    Attributes:
        name: The file system.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"real nodes need the file system {self.name}; run `modprobe {self.name}`"


class NamespacesRefused(MachineLacks):
    """The kernel makes no namespaces for this process, usually one in a container.

    Attributes:
        why: The message of `unshare`.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return (
            f"real nodes need new namespaces, but: {self.why}; "
            "in a container, run it with --privileged"
        )


class LinkMissing(MachineLacks):
    """The kernel does not make a network link of a kind in a new network.

    Attributes:
        kind: The kind of the link.
        why: The message of `ip`.
    """

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(kind, why)
        self.kind = kind
        self.why = why

    def __str__(self) -> str:
        return f"real nodes need network links of the kind {self.kind}, but: {self.why}"


class WatchersMissing(MachineLacks):
    """Root may not watch as many files as the nodes need; a kubelet then ends after its start.

    Attributes:
        nodes: The number of nodes that were to start.
        free: The number of inotify instances that root can still make.
        limit: The setting of the machine.
    """

    def __init__(self, nodes: int, free: int, limit: int) -> None:
        super().__init__(nodes, free, limit)
        self.nodes = nodes
        self.free = free
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"{self.nodes} real nodes need {self.nodes * _WATCHERS} inotify instances, and "
            f"{self.free} of {self.limit} are free; stop other nodes, or run "
            "`sysctl fs.inotify.max_user_instances=1024`"
        )


class LabFailed(NodesError):
    """The namespaces of a lab cannot be made, or are lost.

    Attributes:
        why: The cause.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the lab of real nodes failed: {self.why}"


class NodeFailed(NodesError):
    """A node does not start, or one of its programs has ended.

    Attributes:
        name: The node.
        why: The cause.
        tail: The end of a log with the cause; it may be empty.
    """

    def __init__(self, name: str, why: str, tail: str = "") -> None:
        super().__init__(name, why, tail)
        self.name = name
        self.why = why
        self.tail = tail

    def __str__(self) -> str:
        shown = f"; its log ends:\n{self.tail}" if self.tail else ""
        return f"node {self.name}: {self.why}{shown}"


class NodesNotReady(NodesError):
    """Nodes are not Ready in time.

    Attributes:
        names: The nodes, each with the reason.
        seconds: The timeout.
        tail: The end of the first node's kubelet log.
    """

    def __init__(self, names: Mapping[str, str], seconds: float, tail: str) -> None:
        super().__init__(dict(names), seconds, tail)
        self.names = dict(names)
        self.seconds = seconds
        self.tail = tail

    def __str__(self) -> str:
        waiting = ", ".join(f"{name} ({why})" for name, why in self.names.items())
        return (
            f"nodes are not Ready after {self.seconds:g} s: {waiting}; "
            f"the kubelet's log of the first one ends:\n{self.tail}"
        )


def check_requirements(mounts: str | None = None, filesystems: str | None = None) -> None:
    """Verify that this machine can run real nodes.

    Args:
        mounts: The content of `/proc/self/mounts`, for tests.
        filesystems: The content of `/proc/filesystems`, for tests.

    Raises:
        MachineLacks: It cannot. The error's class names the lack.
    """
    if sys.platform != "linux":
        raise NotLinux(sys.platform)
    if os.geteuid() != 0:
        raise NotRoot(os.geteuid())
    missing = [name for name in _PACKAGES if shutil.which(name, path=PATH) is None]
    if missing:
        raise ProgramsMissing(missing)
    lacking = sorted(set(_CONTROLLERS) - _controllers(lab_process.hierarchies(mounts)))
    if lacking:
        raise ControllersMissing(lacking)
    known = filesystems if filesystems is not None else Path("/proc/filesystems").read_text()
    if "overlay" not in known.split():
        raise FileSystemMissing("overlay")
    done = _run(["unshare", *lab_process.NAMESPACES, "--fork", "true"])
    if done.returncode != 0:
        raise NamespacesRefused(_cause(done))
    _check_links()


def _controllers(hierarchies: Mapping[Path, str]) -> set[str]:
    found = set[str]()
    for folder, options in hierarchies.items():
        if options:
            found |= set(options.split(","))
        else:
            found |= set((folder / "cgroup.controllers").read_text(encoding="ascii").split())
    return found


def _check_links() -> None:
    """Make a link of each kind in a network that ends at once: only this shows if they work."""
    for kind in _LINKS:
        argv = ["unshare", "--net", "ip", "link", "add", "type", kind]
        done = _run(argv)
        if done.returncode != 0:
            raise LinkMissing(kind, _cause(done))


def _cause(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stderr.strip() or f"status {done.returncode}"


def check_watchers(nodes: int, proc: Path = Path("/proc")) -> None:
    """Verify that a number of nodes can start beside all other processes.

    Args:
        nodes: The number of nodes to start.
        proc: The file system of processes, for tests.

    Raises:
        WatchersMissing: Too few inotify instances are free.
    """
    limit = int((proc / "sys/fs/inotify/max_user_instances").read_text(encoding="ascii"))
    free = limit - sum(_watchers(each) for each in proc.glob("[0-9]*"))
    if free < nodes * _WATCHERS:
        raise WatchersMissing(nodes, max(free, 0), limit)


def _watchers(process: Path) -> int:
    try:
        if process.stat().st_uid != os.geteuid():
            return 0
        files = [each.readlink() for each in (process / "fd").iterdir()]
    except OSError:
        return 0  # the process has just ended
    return sum(str(each) == "anon_inode:inotify" for each in files)


def _run(argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(  # noqa: S603 - a fixed program
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT,
            env={**os.environ, "PATH": PATH},
            check=False,
        )
    except subprocess.TimeoutExpired:
        why = f"`{argv[0]}` does not end within {_TIMEOUT:g} s"
        return subprocess.CompletedProcess(argv, -signal.SIGKILL, "", why)
