"""The files of a control plane and the ports that its servers listen on."""

import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

__all__ = ["HOST", "PARTS", "HeldPort", "Layout", "Network", "Ports", "hold_ports"]

HOST: Final = "127.0.0.1"
"""The address that all servers listen on."""


class HeldPort:
    """A port on loopback that is reserved for a server that starts later.

    A socket is bound to the port and does not listen. The kernel does not choose such a
    port for a process that asks for any free port, neither to listen on nor to connect
    from. A server that asks for this port number with SO_REUSEADDR, as Go's listeners do,
    can listen on it, also repeatedly.

    Does not promise: that no other process asks for this very number first; nor any
    reservation on systems other than Linux, which do not allow a second socket to listen
    on a bound port.

    Lifecycle: reserved when constructed, until `release`, which may be called repeatedly.

    Attributes:
        number: The port number.
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
            self.release()  # the bound socket would keep the server from listening

    def release(self) -> None:
        """End the reservation."""
        self._socket.close()


def hold_ports(count: int) -> tuple[HeldPort, ...]:
    """Return this number of different reserved ports."""
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(HeldPort())
            stack.callback(held[-1].release)
        stack.pop_all()
    return tuple(held)


class Network(Protocol):
    """A separate network, in which the servers run instead of on this machine's network.

    Clients outside reach the servers under the same addresses as without it; real nodes are
    inside. `navarchos.testing.nodes.Lab` is one.
    """

    @property
    def address(self) -> str:
        """The address inside, which nodes use."""
        ...

    @property
    def directory(self) -> Path:
        """The folder for files of processes inside."""
        ...

    def command(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the command that runs a program inside."""
        ...

    def forward(self, ports: Iterable[int]) -> Callable[[], None]:
        """Relay connections to these ports on loopback to the same ports inside.

        Returns:
            A function that ends this.
        """
        ...


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
        """Return ports that are reserved for the servers until `release`."""
        held = hold_ports(len(PARTS))
        etcd, apiserver, controller_manager, scheduler, kwok = (each.number for each in held)
        return cls(etcd, apiserver, controller_manager, scheduler, kwok, held)

    @property
    def numbers(self) -> tuple[int, ...]:
        """All ports."""
        return (self.etcd, self.apiserver, self.controller_manager, self.scheduler, self.kwok)

    def release(self) -> None:
        """End the reservation of all ports; may be called repeatedly."""
        for each in self.held:
            each.release()


@dataclass(frozen=True, slots=True)
class Layout:
    """The files and ports of one control plane.

    Attributes:
        directory: The folder of all files.
        ports: The port of each server.
        address: The address for nodes, in the network of the servers; empty if they listen on
            loopback only.
    """

    directory: Path
    ports: Ports
    address: str = ""

    @property
    def etcd_url(self) -> str:
        """The address of etcd, without TLS."""
        return f"http://{HOST}:{self.ports.etcd}"

    @property
    def url(self) -> str:
        """The address of the API server."""
        return f"https://{HOST}:{self.ports.apiserver}"

    @property
    def internal_url(self) -> str:
        """The address of the API server for nodes."""
        return f"https://{self.address}:{self.ports.apiserver}" if self.address else self.url

    @property
    def certificates(self) -> Path:
        """The directory of keys and certificates."""
        return self.directory / "pki"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that clients trust."""
        return self.certificates / "ca.crt"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, in JSON lines."""
        return self.directory / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """The policy that says which requests are logged."""
        return self.directory / "audit-policy.json"

    @property
    def kwok_config(self) -> Path:
        """The configuration of kwok, the fake kubelets."""
        return self.directory / "kwok.yaml"

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of one of the servers."""
        return self.directory / f"{name}.kubeconfig"
