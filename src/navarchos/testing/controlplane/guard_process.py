"""The process that keeps the servers, and outlives whoever asked for them.

It makes one private directory and runs servers in it, as told by JSON lines over
the socket that is its standard input. When the socket ends, because its owner said
so or is dead, it stops the servers and removes the directory. So a test that is
killed with -9 leaves nothing behind.

The standard library only, and run as a file: it must start in no time.

Requests, one JSON object per line, each answered by one:

```text
{"do": "start", "name": "etcd", "argv": ["/bin/etcd", ...]}   {"pid": 42}
{"do": "status"}                                              {"etcd": null, "sh": 1}
{"do": "signal", "name": "etcd", "signal": 19}                {}
{"do": "stop", "name": "etcd"}                                {"status": -15}
```

The first line goes the other way: `{"directory": "/tmp/..."}`. What fails is
answered by `{"error": "..."}`.
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
"""What the name of every directory begins with."""

_GRACE: Final = 5.0  # seconds between TERM and KILL; the data is thrown away anyway


class Servers:
    """Processes by name, with their logs in a directory. Owned by one thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Nothing of the owner's: etcd and kwok read settings from the environment, and
        # kwok keeps files at home.
        self._environment = {"HOME": str(directory), "PATH": os.environ.get("PATH", os.defpath)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}  # in the order of their start

    def start(self, name: str, argv: list[str]) -> int:
        """Start a server; its output goes to `NAME.log`. Returns its process id."""
        previous = self._running.get(name)
        if previous is not None and previous.poll() is None:
            raise ValueError(f"{name} runs already")
        self._running.pop(name, None)  # so that it goes to the end of the order
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603 - told by our owner
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
        """Send a signal to a server that runs."""
        self._running[name].send_signal(number)

    def stop(self, name: str, deadline: float) -> int:
        """Stop a server, the hard way after the deadline; returns its status.

        It is forgotten then: a status of its own is news, this one is not.
        """
        process = self._running.pop(name)
        process.terminate()
        process.send_signal(signal.SIGCONT)  # one that is paused would never see the other
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
    """Serve the owner at the other end of standard input until it is gone."""
    # The owner's Ctrl-C is the owner's matter; TERM is a polite request to end.
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
        pass  # the owner died in the middle of a request: what this process is for
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        servers.stop_all()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
