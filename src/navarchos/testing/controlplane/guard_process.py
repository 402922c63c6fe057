"""The guard process: runs the servers of a control plane and cleans up after its owner.

The guard creates one private directory and runs servers in it. Requests are JSON lines
on the socket that is its standard input. When that socket is closed, because the owner
closed it or died, the guard stops all servers and removes the directory. So a test
process that is killed with -9 leaves no server and no file behind.

This file uses the standard library only and is run as a script, so that it starts fast.

Requests, one JSON object per line, each answered by one:

```text
{"do": "start", "name": "etcd", "argv": ["/bin/etcd", ...]}   {"pid": 42}
{"do": "status"}                                              {"etcd": null, "sh": 1}
{"do": "signal", "name": "etcd", "signal": 19}                {}
{"do": "stop", "name": "etcd"}                                {"status": -15}
```

The guard sends the first line: `{"directory": "/tmp/..."}`. A request that fails is
answered with `{"error": "..."}`.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["PREFIX", "Servers", "main"]

PREFIX: Final = "navarchos-control-plane-"
"""The prefix of every directory's name."""

_GRACE: Final = 5.0  # seconds between TERM and KILL; the data is thrown away anyway


class Servers:
    """Server processes by name, with their logs in one directory.

    Threads: not thread-safe; one thread owns it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Do not pass on the owner's environment: etcd and kwok read settings from it, and
        # kwok writes files below HOME.
        self._environment = {"HOME": str(directory), "PATH": os.environ.get("PATH", os.defpath)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}  # in the order of their start

    def start(self, name: str, argv: list[str]) -> int:
        """Start a server, whose output goes to `NAME.log`, and return its process id."""
        previous = self._running.get(name)
        if previous is not None and previous.poll() is None:
            raise ValueError(f"{name} is already running")
        self._running.pop(name, None)  # insert it again at the end: servers stop in reverse order
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603 - the owner sends the command
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
            )
        return self._running[name].pid

    def status(self) -> dict[str, int | None]:
        """Return the exit status of each server; `None` while it runs."""
        return {name: process.poll() for name, process in self._running.items()}

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a running server."""
        self._running[name].send_signal(number)

    def stop(self, name: str, deadline: float) -> int:
        """Terminate a server, kill it after the deadline, and return its exit status.

        `status` no longer reports the server: only servers that ended by themselves are
        of interest there.
        """
        process = self._running.pop(name)
        process.terminate()
        process.send_signal(signal.SIGCONT)  # a paused process does not handle SIGTERM
        try:
            return process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def stop_all(self) -> None:
        """Stop all servers, the last one first."""
        deadline = time.monotonic() + _GRACE
        for name in reversed(list(self._running)):
            self.stop(name, deadline)


def _answer(servers: Servers, request: dict[str, Any]) -> dict[str, Any]:
    match request:
        case {"do": "start", "name": str(name), "argv": list(argv)}:
            return {"pid": servers.start(name, argv)}
        case {"do": "status"}:
            return servers.status()
        case {"do": "signal", "name": str(name), "signal": int(number)}:
            servers.signal(name, number)
            return {}
        case {"do": "stop", "name": str(name)}:
            return {"status": servers.stop(name, time.monotonic() + _GRACE)}
    raise ValueError(f"unknown request {request}")


def _serve(connection: socket.socket, servers: Servers) -> None:
    with connection.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            try:
                answer = _answer(servers, json.loads(line))
            except (OSError, ValueError, LookupError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            connection.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Serve requests from standard input until the owner closes it or dies."""
    # Ctrl-C is for the owner to handle; SIGTERM asks this process to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    servers = Servers(directory)
    try:
        with socket.socket(fileno=sys.stdin.fileno()) as connection:
            connection.sendall(json.dumps({"directory": str(directory)}).encode() + b"\n")
            _serve(connection, servers)
    except ConnectionError:
        pass  # the owner died during a request: clean up as after a normal end
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        servers.stop_all()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
