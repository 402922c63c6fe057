"""The files of a node: what containerd, the kubelet, kube-proxy and the network plugins read."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from navarchos.errors import ConfigError
from navarchos.testing.controlplane import ControlPlane, credentials
from navarchos.testing.nodes import lab_process
from navarchos.testing.nodes.testimages import PAUSE

__all__ = ["MAX_NODES", "RealMachine", "write_files"]

JsonObject = dict[str, Any]

MAX_NODES: Final = 200
"""The number of nodes of one lab, which share one network."""

_FIRST_ADDRESS: Final = 10
_POD_RANGE: Final = "10.244.0.0/16"
_RUNTIME: Final = "unix:///run/containerd/containerd.sock"
_KUBERNETES: Final = "/etc/kubernetes"

_CONTAINERD: Final = f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.tracing",
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
  # A user without CAP_SYS_RESOURCE may not lower the value of a process.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
"""

_KUBELET: Final[JsonObject] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
    "cgroupDriver": "cgroupfs",
    "containerRuntimeEndpoint": _RUNTIME,
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": f"{_KUBERNETES}/ca.crt"},
    },
    "authorization": {"mode": "Webhook"},
    "tlsCertFile": f"{_KUBERNETES}/kubelet.crt",
    "tlsPrivateKeyFile": f"{_KUBERNETES}/kubelet.key",
    "failSwapOn": False,
    "clusterDomain": "cluster.local",
    "resolvConf": "/etc/resolv.conf",
    "staticPodPath": f"{_KUBERNETES}/manifests",
    # No image can be pulled again, so none is removed to make room.
    "imageGCHighThresholdPercent": 100,
    "imageGCLowThresholdPercent": 99,
    "evictionHard": {
        "memory.available": "50Mi",
        "nodefs.available": "1%",
        "imagefs.available": "1%",
    },
}

_PROXY: Final[JsonObject] = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "iptables",
    "clientConnection": {"kubeconfig": f"{_KUBERNETES}/proxy.conf"},
    "clusterCIDR": _POD_RANGE,
    # Zero leaves a limit alone: these belong to the whole machine.
    "conntrack": {
        "maxPerCore": 0,
        "min": 0,
        "tcpEstablishedTimeout": "0s",
        "tcpCloseWaitTimeout": "0s",
    },
}


@dataclass(frozen=True, slots=True)
class RealMachine:
    """What a node is made of, as far as the test decides it.

    Attributes:
        name: The name of the node.
        number: Its number in the lab, from 1; addresses follow from it.
        labels: Labels with which the node registers, besides the labels of every kubelet.
            Kubernetes allows a kubelet only a few labels of its domains.
        taints: The taints with which the node registers.
        kubelet: Fields of the kubelet's configuration that override the defaults here.
    """

    name: str
    number: int
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    kubelet: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.number <= MAX_NODES:
            raise ConfigError("number", self.number, f"it must be 1 to {MAX_NODES}")

    @property
    def address(self) -> str:
        """The internal address of the node."""
        network = lab_process.GATEWAY.rpartition(".")[0]
        return f"{network}.{_FIRST_ADDRESS + self.number}"

    @property
    def pod_range(self) -> str:
        """The addresses of its pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def hardware_address(self) -> str:
        """The address of its network card; the same after a reboot, as neighbours remember it."""
        return f"02:00:0a:5a:00:{_FIRST_ADDRESS + self.number:02x}"


def write_files(machine: RealMachine, control_plane: ControlPlane, etc: Path) -> None:
    """Write the configuration and the credentials of a node.

    Args:
        machine: The node.
        control_plane: The control plane that it joins.
        etc: The folder to fill, which does not exist.
    """
    kubernetes, network = etc / "kubernetes", etc / "cni" / "net.d"
    for folder in (kubernetes, network, etc / "containerd"):
        folder.mkdir(parents=True)
    (etc / "containerd" / "config.toml").write_text(_CONTAINERD, encoding="utf-8")
    registered = [dict(taint) for taint in machine.taints]
    credentials.write_private(
        kubernetes / "kubelet.json",
        {**_KUBELET, "registerWithTaints": registered, **machine.kubelet},
    )
    credentials.write_private(kubernetes / "proxy.json", _PROXY)
    _write_kubeconfig(
        control_plane,
        kubernetes / "kubelet.conf",
        f"system:node:{machine.name}",
        ["system:nodes"],
    )
    _write_kubeconfig(control_plane, kubernetes / "proxy.conf", "system:kube-proxy", [])
    serving = control_plane.server_certificate([machine.name, machine.address])
    shutil.copy(serving.certificate, kubernetes / "kubelet.crt")
    shutil.copy(serving.key, kubernetes / "kubelet.key")
    shutil.copy(control_plane.authority, kubernetes / "ca.crt")
    (network / "10-pods.conflist").write_text(json.dumps(_pod_network(machine)), encoding="utf-8")


def _write_kubeconfig(
    control_plane: ControlPlane, path: Path, user: str, groups: Sequence[str]
) -> None:
    pair = control_plane.client_certificate(user, groups)
    content = credentials.make_kubeconfig(
        control_plane.internal_url, control_plane.authority, credentials.certificate_user(pair)
    )
    credentials.write_private(path, content)


def _pod_network(machine: RealMachine) -> JsonObject:
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",  # forgotten when the node starts again
        "ranges": [[{"subnet": machine.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
