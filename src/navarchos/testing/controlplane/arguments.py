"""The command lines of all servers, similar to kubeadm's for a single machine.

Differences: loopback addresses and chosen ports; no leader election, because each server
has one replica; no client-side throttling; etcd does not sync to disk.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.layout import HOST, Layout

__all__ = [
    "AUDIT_POLICY",
    "NODE_ANNOTATION",
    "apiserver_arguments",
    "controller_manager_arguments",
    "etcd_arguments",
    "kwok_arguments",
    "scheduler_arguments",
]

NODE_ANNOTATION: Final = "kwok.x-k8s.io/node=fake"
"""The annotation of nodes that kwok manages."""

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "Metadata"},
    ],
}
"""Log every request except health checks, without bodies."""

_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_SERVICE_RANGE: Final = "10.96.0.0/16"
_POD_RANGE: Final = "10.244.0.0/16"
_UNLIMITED: Final = ("--kube-api-qps=1000", "--kube-api-burst=2000")
_NODE_LEASE_SECONDS: Final = 40  # a kubelet's default


def etcd_arguments(layout: Layout) -> Sequence[str]:
    """Return the arguments of a single etcd that does not sync to disk."""
    return (
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls=http://{HOST}:0",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def apiserver_arguments(layout: Layout, *, service_accounts: bool = True) -> Sequence[str]:
    """Return the arguments of an API server with RBAC and an audit log.

    Args:
        layout: Files and ports.
        service_accounts: Whether pods must have a service account, which only the
            controller manager creates.
    """
    certificates = layout.certificates
    admission = () if service_accounts else ("--disable-admission-plugins=ServiceAccount",)
    return (
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        # An endpoint address must not be loopback, so the server cannot publish its own.
        "--endpoint-reconciler-type=none",
        f"--secure-port={layout.ports.apiserver}",
        f"--etcd-servers={layout.etcd_url}",
        f"--cert-dir={certificates}",
        f"--tls-cert-file={certificates / 'server.crt'}",
        f"--tls-private-key-file={certificates / 'server.key'}",
        f"--client-ca-file={layout.authority}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        *admission,
        "--allow-privileged=true",
        f"--service-cluster-ip-range={_SERVICE_RANGE}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={certificates / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={certificates / 'service-accounts.key'}",
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        # In megabytes. The default rotates the log after 100 MB.
        "--audit-log-maxsize=100000",
        # Otherwise open watches delay the shutdown by a minute.
        "--shutdown-watch-termination-grace-period=1s",
    )


def controller_manager_arguments(layout: Layout) -> Sequence[str]:
    """Return the arguments of a controller manager."""
    certificates = layout.certificates
    return (
        *_component(layout, "kube-controller-manager", layout.ports.controller_manager),
        f"--root-ca-file={layout.authority}",
        f"--service-account-private-key-file={certificates / 'service-accounts.key'}",
        f"--cluster-signing-cert-file={layout.authority}",
        f"--cluster-signing-key-file={certificates / 'ca.key'}",
        "--use-service-account-credentials=true",
        "--controllers=*,bootstrapsigner,tokencleaner",
        # The controller manager creates this folder; the default is outside our directory.
        f"--flex-volume-plugin-dir={layout.directory / 'volume-plugins'}",
    )


def scheduler_arguments(layout: Layout) -> Sequence[str]:
    """Return the arguments of a scheduler."""
    return _component(layout, "kube-scheduler", layout.ports.scheduler)


def kwok_arguments(layout: Layout, *, all_nodes: bool) -> Sequence[str]:
    """Return the arguments of kwok, for all nodes or for annotated ones only."""
    nodes = (
        ("--manage-all-nodes=true",)
        if all_nodes
        else (
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={NODE_ANNOTATION}",
        )
    )
    return (
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={layout.kwok_config}",
        f"--server-address={HOST}:{layout.ports.kwok}",
        f"--node-lease-duration-seconds={_NODE_LEASE_SECONDS}",
        f"--cidr={_POD_RANGE}",
        f"--node-ip={HOST}",
        *nodes,
    )


def _component(layout: Layout, name: str, port: int) -> Sequence[str]:
    kubeconfig: Path = layout.kubeconfig(name)
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        # There is no aggregation layer, so there are no request-header users to look up.
        "--authentication-skip-lookup=true",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.certificates / 'server.crt'}",
        f"--tls-private-key-file={layout.certificates / 'server.key'}",
        "--leader-elect=false",
        *_UNLIMITED,
    )
