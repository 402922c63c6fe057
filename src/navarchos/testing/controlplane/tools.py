"""The programs that tests run, above all a control plane's, and their pinned versions.

The Go module `tests/e2e/controlplane` pins the same versions; a test compares the two.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from navarchos.errors import ConfigError

__all__ = [
    "APISERVER",
    "CNI_PLUGINS",
    "CONTAINERD",
    "CONTAINERD_SHIM",
    "CONTROLLER_MANAGER",
    "CONTROL_PLANE",
    "CTR",
    "ETCD",
    "KIND",
    "KUBECTL",
    "KUBELET",
    "KUBE_PROXY",
    "KWOK",
    "NODE",
    "NODE_TOOLS",
    "PINS",
    "PROMETHEUS",
    "SCHEDULER",
    "TOOLS",
    "Tool",
    "ToolVersion",
    "find_tools",
    "parse_version",
]

CONTROL_PLANE: Final = ("kubernetes", "etcd", "kwok")
"""The projects whose programs form a control plane."""

NODE: Final = ("kubernetes", "containerd", "cni")
"""The projects whose programs run on a real node."""

PINS: Final = {
    "kubernetes": "1.36.3",
    "etcd": "3.6.8",
    "kwok": "0.8.0",
    "kind": "0.33.0",
    "prometheus": "2.42.0",
    "containerd": "2.3.7",
    "cni": "1.9.1",
}
"""The version of each project; of a project that Debian packages, the oldest that will do."""

_VERSION: Final = re.compile(r"\bv?(\d+)\.(\d+)\.(\d+)")


class ToolVersion(NamedTuple):
    """A released version; versions compare by number."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}"

    def is_at_least_the_minor_of(self, other: "ToolVersion") -> bool:
        """Return whether this minor release is the other's or a later one."""
        return self[:2] >= other[:2]


def parse_version(text: str) -> ToolVersion | None:
    """Return the first version in the output of a program, or `None`."""
    found = _VERSION.search(text)
    return ToolVersion(*map(int, found.groups())) if found else None


@dataclass(frozen=True, slots=True)
class Tool:
    """A program.

    Attributes:
        name: The file name.
        project: The project that releases it; a key of `PINS`.
        package: The Go package to build; empty if the program comes from Debian.
        version_arguments: The arguments that print the version.
        debian: The path of the program in Debian's package of the project, which has the
            project's name; empty if the program does not come from Debian.
    """

    name: str
    project: str
    package: str
    version_arguments: tuple[str, ...] = ("--version",)
    debian: str = ""

    @property
    def pinned(self) -> ToolVersion:
        """The version that the tests expect."""
        version = parse_version(PINS[self.project])
        assert version is not None
        return version

    def is_usable(self, version: ToolVersion | None) -> bool:
        """Return whether an installed program of this version may be kept in the cache.

        It must be the pinned version. Debian chooses the version of its packages, so a program
        from Debian may be of a later minor release.
        """
        if version is None or not self.debian:
            return version == self.pinned
        return version.is_at_least_the_minor_of(self.pinned)


ETCD: Final = Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3")
APISERVER: Final = Tool("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver")
CONTROLLER_MANAGER: Final = Tool(
    "kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"
)
SCHEDULER: Final = Tool("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler")
KUBECTL: Final = Tool(
    "kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", ("version", "--client")
)
KWOK: Final = Tool("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok")
KIND: Final = Tool("kind", "kind", "sigs.k8s.io/kind", ("version",))
KUBELET: Final = Tool("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet")
KUBE_PROXY: Final = Tool("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy")
_CONTAINERD: Final = "github.com/containerd/containerd/v2/cmd"
CONTAINERD: Final = Tool("containerd", "containerd", f"{_CONTAINERD}/containerd")
CONTAINERD_SHIM: Final = Tool(
    "containerd-shim-runc-v2", "containerd", f"{_CONTAINERD}/containerd-shim-runc-v2"
)
CTR: Final = Tool("ctr", "containerd", f"{_CONTAINERD}/ctr")
_CNI: Final = "github.com/containernetworking/plugins/plugins"
CNI_PLUGINS: Final = (
    Tool("ptp", "cni", f"{_CNI}/main/ptp"),
    Tool("host-local", "cni", f"{_CNI}/ipam/host-local"),
    Tool("loopback", "cni", f"{_CNI}/main/loopback"),
    Tool("portmap", "cni", f"{_CNI}/meta/portmap"),
)
"""The plugins that connect the pods of a node to the network."""
PROMETHEUS: Final = Tool("prometheus", "prometheus", "", debian="usr/bin/prometheus")

TOOLS: Final = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL, KWOK)
"""The programs of a control plane on loopback. kind and Prometheus are not among them."""

NODE_TOOLS: Final = (KUBELET, KUBE_PROXY, CONTAINERD, CONTAINERD_SHIM, CTR, *CNI_PLUGINS)
"""The programs of a real node. Debian packages further ones: runc, iptables, iproute2."""


def find_tools(names: tuple[str, ...]) -> tuple[Tool, ...]:
    """Return the tools of these names in the given order; without names, the control plane's.

    Raises:
        ConfigError: A name is unknown.
    """
    known = {tool.name: tool for tool in (*TOOLS, PROMETHEUS)}
    for name in names:
        if name not in known:
            raise ConfigError("tool", name, f"it must be one of {', '.join(known)}")
    return tuple(known[name] for name in names) or TOOLS
