"""One real node: its power, its network, its programs and their logs."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from navarchos.testing.controlplane import Binary, Tool
from navarchos.testing.controlplane.tools import CNI_PLUGINS
from navarchos.testing.nodes import lab_process, node_process
from navarchos.testing.nodes.configuration import RealMachine
from navarchos.testing.nodes.lab import Lab, run_to_end
from navarchos.testing.nodes.requirements import PATH, NodeFailed

__all__ = ["Node"]

JsonObject = dict[str, Any]

_PROGRAMS: Final = "opt/node"
_PLUGINS: Final = "opt/cni/bin"
_START_TIMEOUT: Final = 120.0
_ANSWER_TIMEOUT: Final = 30.0
_TAIL_LINES: Final = 15
_NO_LINK: Final = "Cannot find device"  # a node that ended while it started may have none


class Node:
    """One real node of `Nodes`.

    Threads: every method is safe from any thread; operations of one node wait for each other.

    Attributes:
        machine: The node's name, number, labels and taints.
    """

    def __init__(self, machine: RealMachine, lab: Lab, binaries: Mapping[Tool, Binary]) -> None:
        self.machine = machine
        self._lab = lab
        self._binaries = binaries
        self._lock = threading.RLock()
        self._boots = 0  # these are guarded by _lock
        self._boot_id = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._handle = -1  # a pidfd of the first process

    def __repr__(self) -> str:
        return f"<Node {self.name}>"

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.machine.name

    @property
    def address(self) -> str:
        """The internal address, in the lab's network."""
        return self.machine.address

    @property
    def boot_id(self) -> str:
        """What the kubelet reports as `bootID`: another one after each start."""
        return self._boot_id

    @property
    def directory(self) -> Path:
        """The folder of the node; its disk is in `var`."""
        return self._lab.directory / "nodes" / self.name

    @property
    def is_on(self) -> bool:
        """Whether the node has power."""
        with self._lock:
            return self._process is not None and self._process.poll() is None

    @property
    def _group(self) -> str:
        return f"{self._lab.group}/{self.name}"

    @property
    def _link(self) -> str:
        return f"n{self.machine.number}-{self._boots}"

    def power_on(self) -> None:
        """Start the node on its disk, and wait until its programs have been started.

        Does nothing if the node has power. The node is Ready some time later.

        Raises:
            NodeFailed: The node does not start.
        """
        with self._lock:
            if not self.is_on:
                self.launch()
                self.finish_launch()

    def launch(self) -> None:
        """Begin to start the node; `finish_launch` waits for the result."""
        with self._lock:
            self._close()
            self._boots += 1
            self._boot_id = str(uuid.uuid4())
            ours, theirs = socket.socketpair()
            with theirs, (self.directory / "init.log").open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603 - a fixed program
                    self._lab.command(
                        [
                            *("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork"),
                            *("--kill-child=KILL", sys.executable, "-I", node_process.__file__),
                        ]
                    ),
                    stdin=theirs.fileno(),
                    stdout=log,
                    stderr=log,
                    env={"PATH": PATH, "LC_ALL": "C.UTF-8"},
                    start_new_session=True,
                )
            self._connection = ours
            ours.sendall(json.dumps(asdict(self._settings())).encode() + b"\n")

    def finish_launch(self) -> None:
        """Wait until the programs of the node have been started.

        Raises:
            NodeFailed: The node does not start.
        """
        with self._lock:
            assert self._connection is not None
            self._connection.settimeout(_START_TIMEOUT)
            try:
                line, descriptors, _, _ = socket.recv_fds(self._connection, 1 << 16, 1)
            except OSError as error:
                self.power_off()
                raise self._failed(f"it does not start: {error}") from error
            if not descriptors:
                self.power_off()
                why = json.loads(line)["error"] if line else "its first process ended"
                raise self._failed(f"it does not start: {why}")
            (self._handle,) = descriptors
            self._connection.settimeout(_ANSWER_TIMEOUT)

    def power_off(self) -> None:
        """Cut the power: kill all processes at once. The disk stays, and the Node object.

        Does nothing if the node has no power.
        """
        with self._lock:
            self._close()
            lab_process.remove_groups(self._group)

    def reboot(self) -> None:
        """Cut the power and start the node again, with a new boot id."""
        with self._lock:
            self.power_off()
            self.power_on()

    def partition(self) -> None:
        """Cut the node and its pods off from the network; everything on the node keeps running.

        Raises:
            NodeFailed: The node has no power.
        """
        self._set_link("down")

    def heal(self) -> None:
        """Connect a partitioned node with the network again.

        Raises:
            NodeFailed: The node has no power.
        """
        self._set_link("up")

    def stop_kubelet(self) -> None:
        """Stop the kubelet. The containers keep running.

        Raises:
            NodeFailed: The node has no power, or the kubelet does not run.
        """
        self._request(do="stop", name="kubelet")

    def start_kubelet(self) -> None:
        """Start the kubelet again.

        Raises:
            NodeFailed: The node has no power, or the kubelet runs.
        """
        self._request(do="start", name="kubelet")

    def check(self) -> None:
        """Verify that the node has power and all of its programs run.

        Raises:
            NodeFailed: The node, or one of its programs, has ended.
        """
        for name, status in self._request(do="status").items():
            if status is not None:
                raise NodeFailed(self.name, f"{name} ended with status {status}", self.tail(name))

    def run(
        self, argv: Sequence[str], *, timeout: float = 60.0, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program on the node to its end, beside the kubelet.

        Args:
            argv: The program, of the machine or of the node, and its arguments.
            timeout: Seconds after which it is killed.
            check: Whether a status other than 0 is an error.

        Raises:
            NodeFailed: The node has no power.
            subprocess.CalledProcessError: The program failed.
            subprocess.TimeoutExpired: It took too long.
        """
        with self._lock:
            pid = lab_process.pid_of(self._handle) if self._handle >= 0 else -1
            if pid <= 0:
                raise NodeFailed(self.name, "it has no power")
        command = [
            *("nsenter", f"--target={pid}", "--mount", "--net", "--uts", "--ipc", "--pid"),
            *("--cgroup", "--", *argv),
        ]
        environment = {"HOME": "/root", "PATH": f"/{_PROGRAMS}:{PATH}"}
        return run_to_end(command, environment, timeout=timeout, check=check)

    def log(self, program: str) -> str:
        """Return the log of `kubelet`, `containerd` or `kube-proxy` since the first start.

        It can be read without power, too.
        """
        path = self.directory / "var" / "log" / f"{program}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def tail(self, program: str) -> str:
        """Return the last lines of a program's log."""
        return "\n".join(self.log(program).splitlines()[-_TAIL_LINES:])

    def _settings(self) -> node_process.Settings:
        paths = {tool.name: str(binary.path) for tool, binary in self._binaries.items()}
        plugins = [tool.name for tool in CNI_PLUGINS]
        labels = ",".join(f"{key}={value}" for key, value in self.machine.labels.items())
        kubelet = [f"--node-ip={self.address}"]
        if labels:
            kubelet.append(f"--node-labels={labels}")
        return node_process.Settings(
            name=self.name,
            directory=str(self.directory),
            link=self._link,
            bridge=lab_process.BRIDGE,
            address=f"{self.address}/24",
            gateway=self._lab.address,
            hardware_address=self.machine.hardware_address,
            machine_id=uuid.uuid5(uuid.NAMESPACE_DNS, f"{self._lab.identity}.{self.name}").hex,
            boot_id=self._boot_id,
            group=self._group,
            hierarchies={str(path): each for path, each in lab_process.hierarchies().items()},
            programs={
                _PROGRAMS: [path for name, path in paths.items() if name not in plugins],
                _PLUGINS: [paths[name] for name in plugins],
            },
            arguments={"kubelet": kubelet},
        )

    def _set_link(self, state: str) -> None:
        with self._lock:
            if not self.is_on:
                raise NodeFailed(self.name, "it has no power")
            self._lab.run(["ip", "link", "set", self._link, state])

    def _request(self, **request: object) -> JsonObject:
        with self._lock:
            if self._connection is None:
                raise NodeFailed(self.name, "it has no power")
            try:
                self._connection.sendall(json.dumps(request).encode() + b"\n")
                with self._connection.makefile("rb") as lines:
                    line = lines.readline()
            except OSError as error:
                raise self._failed(str(error)) from error
            if not line:
                raise self._failed("its first process ended")
            answer: JsonObject = json.loads(line)
        if "error" in answer:
            raise NodeFailed(self.name, f"cannot {request['do']}: {answer['error']}")
        return answer

    def _failed(self, why: str) -> NodeFailed:
        path = self.directory / "init.log"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return NodeFailed(self.name, why, "\n".join(lines) or self.tail("containerd"))

    def kill(self) -> None:
        """Begin to cut the power; `power_off` waits for the end of all processes."""
        with self._lock:
            if self._process is None:
                return
            try:
                # A machine without power closes no connection. The kernel would close them, and
                # answer in the node's name until it has removed the node's network.
                self._delete_link()
            finally:
                if self._handle >= 0:
                    with suppress(ProcessLookupError):  # it has ended by itself
                        signal.pidfd_send_signal(self._handle, signal.SIGKILL)
                    os.close(self._handle)
                    self._handle = -1
                if self._connection is not None:
                    self._connection.close()  # a node that is still starting ends with this
                    self._connection = None

    def _delete_link(self) -> None:
        done = self._lab.run(["ip", "link", "delete", self._link], check=False)
        if done.returncode != 0 and _NO_LINK not in done.stderr:
            raise NodeFailed(self.name, f"its link is not deleted: {done.stderr.strip()}")

    def _close(self) -> None:
        """End all processes of the node, if it has any, and wait for their end."""
        try:
            self.kill()
        finally:
            if self._process is not None:
                self._process.wait(_ANSWER_TIMEOUT)
                self._process = None
