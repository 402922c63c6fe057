"""What lies where in a control plane's directory, and who listens on which port."""

import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["HOST", "PARTS", "HeldPort", "Layout", "Ports", "hold_ports"]

HOST: Final = "127.0.0.1"
"""Where everything listens."""


class HeldPort:
    """A port on loopback that is kept for a server of ours, however late it starts.

    A socket is bound to it and does not listen. The kernel gives such a port to nobody
    who asks for any, be it to listen or to connect from; but a server that asks for this
    one, with SO_REUSEADDR as Go's listeners do, may listen on it, as often as it likes.

    Does not promise: that nobody who asks for its very number takes it first; nor, where
    nobody may listen beside a bound socket, as only Linux allows, that the kernel does not
    give it away.

    Lifecycle: held from the start until `release`, which may be repeated.

    Attributes:
        number: Of the port.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, 0))
        except OSError:
            self._socket.close()
            raise
        self.number: Final = int(self._socket.getsockname()[1])
        if sys.platform != "linux":
            self.release()  # or it would be in the server's way

    def release(self) -> None:
        """Let anybody have it whom the kernel gives it to."""
        self._socket.close()


def hold_ports(count: int) -> tuple[HeldPort, ...]:
    """Return different ports, all held."""
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(HeldPort())
            stack.callback(held[-1].release)
        stack.pop_all()
    return tuple(held)


PARTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


@dataclass(frozen=True, slots=True)
class Ports:
    """One port for each part, all on loopback."""

    etcd: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int
    held: tuple[HeldPort, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def choose(cls) -> "Ports":
        """Return ports that are kept for the parts until they are released."""
        held = hold_ports(len(PARTS))
        etcd, apiserver, controller_manager, scheduler, kwok = (each.number for each in held)
        return cls(etcd, apiserver, controller_manager, scheduler, kwok, held)

    def release(self) -> None:
        """Keep them no longer; may be repeated."""
        for each in self.held:
            each.release()


@dataclass(frozen=True, slots=True)
class Layout:
    """The files and ports of one control plane.

    Attributes:
        directory: Where all files are.
        ports: Who listens where.
    """

    directory: Path
    ports: Ports

    @property
    def etcd_url(self) -> str:
        """Where etcd serves its clients, in the clear."""
        return f"http://{HOST}:{self.ports.etcd}"

    @property
    def url(self) -> str:
        """Where the API server serves."""
        return f"https://{HOST}:{self.ports.apiserver}"

    @property
    def certificates(self) -> Path:
        """The directory of keys and certificates."""
        return self.directory / "pki"

    @property
    def authority(self) -> Path:
        """The certificate to trust."""
        return self.certificates / "ca.crt"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, in JSON lines."""
        return self.directory / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """What goes into it."""
        return self.directory / "audit-policy.json"

    @property
    def kwok_config(self) -> Path:
        """What fake kubelets do."""
        return self.directory / "kwok.yaml"

    def kubeconfig(self, name: str) -> Path:
        """Where a part finds the API server and itself."""
        return self.directory / f"{name}.kubeconfig"
