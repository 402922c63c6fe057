"""What lies where in a control plane's directory, and who listens on which port."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.ports import HOST, HeldPort, hold_ports

__all__ = ["PARTS", "Layout", "Ports"]

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
