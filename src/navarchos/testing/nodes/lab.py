"""A lab: a separate network, mounts and processes, where a control plane and its nodes run."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

from navarchos.errors import AlreadyStarted, NotStarted
from navarchos.logs import get_logger
from navarchos.testing.controlplane.binaries import user_cache
from navarchos.testing.controlplane.layout import HOST
from navarchos.testing.nodes import lab_process, requirements

__all__ = ["Lab", "run_to_end"]

REGISTRY: Final = Path("/run/navarchos-labs")
_ANSWER_TIMEOUT: Final = 30.0
_END_TIMEOUT: Final = 60.0

_log = get_logger(__name__)


class Lab:
    """The namespaces in which a control plane and its real nodes run.

    ```python
    with Lab() as lab, ControlPlane(network=lab) as server, Nodes(server, 3) as nodes:
        ...
    ```

    The test stays outside. It reaches the servers of the control plane under their usual
    addresses on loopback, and everything else with `run`. No link, route or rule leads from the
    lab to any other network, so no process of it can send anything outside.

    Promises: after `stop`, and after this process has ended in any way, no process, link, mount,
    control group or file of the lab is left; settings of the kernel are as before. If the lab's
    keeper process was killed, too, the next start of any lab removes control groups and files.
    Labs of one machine do not meet.

    Lifecycle: `start`, then `stop`, which may be called repeatedly; then `start` again.
    The object is a context manager.
    Threads: every method is safe from any thread after `start`.

    Args:
        directory: The folder for the files of labs; by default below the user's cache folder.
            The disks of nodes share files with the cache, so use the same file system.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._base = directory if directory is not None else user_cache() / "labs"
        self._identity = ""
        self._keeper: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._pid = 0

    def start(self) -> Self:
        """Make the namespaces, and remove control groups and files of killed labs.

        Raises:
            AlreadyStarted: The lab runs.
            MachineLacks: This machine cannot run nodes.
            LabFailed: The namespaces cannot be made.
            OSError: Groups or files of a killed lab cannot be removed.
        """
        if self._keeper is not None:
            raise AlreadyStarted("the lab")
        requirements.check_requirements()
        for swept in lab_process.Registry(REGISTRY).sweep():
            _log.info("lab_swept", name=swept)
        self._identity = secrets.token_hex(4)
        ours, theirs = socket.socketpair()
        with theirs:
            self._keeper = subprocess.Popen(  # noqa: S603 - a fixed program
                [
                    *(sys.executable, "-I", lab_process.__file__, "keep"),
                    *(str(REGISTRY), self._identity, str(self._base / self._identity)),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,  # a few lines, if it fails
                env={**os.environ, "PATH": requirements.PATH},
                start_new_session=True,  # signals for this process group are not for the keeper
            )
        ours.settimeout(_ANSWER_TIMEOUT)
        self._connection = ours
        try:
            self._pid = self._first_process(ours)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all processes of the lab and remove its files, and wait until this is done.

        Raises:
            LabFailed: The keeper failed; the next start removes its groups and files.
        """
        keeper, self._keeper = self._keeper, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if keeper is None:
            return
        with keeper:
            try:
                _, errors = keeper.communicate(timeout=_END_TIMEOUT)
            except subprocess.TimeoutExpired as error:
                keeper.kill()
                raise requirements.LabFailed(f"not removed after {_END_TIMEOUT:g} s") from error
        if keeper.returncode != 0:
            why = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise requirements.LabFailed(
                f"its keeper ended with status {keeper.returncode}: {why or 'no message'}"
            )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def identity(self) -> str:
        """The name of the lab among all labs of this machine."""
        return self._identity

    @property
    def address(self) -> str:
        """The address of the control plane inside, which is also the router of the nodes."""
        return lab_process.GATEWAY

    @property
    def directory(self) -> Path:
        """The folder of the lab's files, removed by `stop`."""
        return self._base / self._identity

    @property
    def group(self) -> str:
        """The control group of the lab's nodes, in each hierarchy."""
        return f"{lab_process.GROUP_PREFIX}{self._identity}"

    def command(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the command that runs a program inside the lab.

        Raises:
            NotStarted: The lab does not run.
        """
        if self._connection is None:
            raise NotStarted("the lab")
        return ["nsenter", f"--target={self._pid}", *lab_process.NAMESPACES, "--", *argv]

    def run(
        self, argv: Sequence[str], *, timeout: float = 60.0, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program inside the lab, beside the control plane, to its end.

        Args:
            argv: The program and its arguments.
            timeout: Seconds after which it is killed.
            check: Whether a status other than 0 is an error.

        Raises:
            NotStarted: The lab does not run.
            subprocess.CalledProcessError: The program failed.
            subprocess.TimeoutExpired: It took too long.
        """
        environment = {**os.environ, "PATH": requirements.PATH}
        return run_to_end(self.command(argv), environment, timeout=timeout, check=check)

    def forward(self, ports: Iterable[int]) -> Callable[[], None]:
        """Relay connections to these ports on loopback to the same ports inside the lab.

        Returns:
            A function that ends this; it does nothing after the lab has been stopped.

        Raises:
            NotStarted: The lab does not run.
            LabFailed: The relay does not start.
            OSError: A port is in use.
        """
        listening = [_listen(port) for port in ports]
        try:
            descriptors = [each.fileno() for each in listening]
            process = subprocess.Popen(  # noqa: S603 - a fixed program
                self.command(
                    [
                        *(sys.executable, "-I", lab_process.__file__, "relay"),
                        *map(str, descriptors),
                    ]
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,
            )
        finally:
            for each in listening:
                each.close()
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            _end(process, process.stdout)
            raise requirements.LabFailed("the relay to the control plane does not start")
        output = process.stdout
        return lambda: _end(process, output)

    def _first_process(self, connection: socket.socket) -> int:
        try:
            with connection.makefile("r", encoding="utf-8") as lines:
                line = lines.readline()
        except OSError as error:
            raise requirements.LabFailed(f"no answer: {error}") from error
        answer = json.loads(line or '{"error": "its keeper ended"}')
        if "error" in answer:
            raise requirements.LabFailed(answer["error"])
        return int(answer["pid"])


def run_to_end(
    argv: Sequence[str], environment: Mapping[str, str], *, timeout: float, check: bool
) -> "subprocess.CompletedProcess[str]":
    """Run a program that `nsenter` starts elsewhere; after the timeout its processes are killed.

    `subprocess.run` would kill `nsenter` only, and the program would run on.
    """
    with subprocess.Popen(  # noqa: S603 - the caller's program
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if check and process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv, stdout, stderr)
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def _listen(port: int) -> socket.socket:
    # `HeldPort` may hold the port, without listening; that allows this.
    return socket.create_server((HOST, port), backlog=128)


def _end(process: "subprocess.Popen[bytes]", output: IO[bytes]) -> None:
    # The program is a child of nsenter in the same process group.
    output.close()
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
