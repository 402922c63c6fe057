"""Imitate the service account of a pod: a folder with token, certificate and server address.

A controller in a pod has no kubeconfig, so the measured programs have none either: reading
one loads the official package. It makes no difference to programs in Go.
"""

import base64
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from navarchos.testing.controlplane import ControlPlane

__all__ = ["write_account"]

_NAME: Final = "benchmark"
_NAMESPACE: Final = "default"
_LIFETIME: Final = 24 * 3600
_OBJECTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE},
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _NAME},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": _NAME, "namespace": _NAMESPACE}],
    },
)


def write_account(server: ControlPlane, folder: Path) -> Path:
    """Create a service account that may do everything, and write the files that its pods see.

    Returns:
        The folder for `subjects.connecting.config_of`, inside the given one.
    """
    server.install(*_OBJECTS)
    found: Any = server.service_account_kubeconfig(_NAMESPACE, _NAME, lifetime=_LIFETIME)
    (cluster,), (user,) = found["clusters"], found["users"]
    address = urlsplit(cluster["cluster"]["server"])
    account = folder / "account"
    account.mkdir(mode=0o700)
    (account / "ca.crt").write_bytes(
        base64.b64decode(cluster["cluster"]["certificate-authority-data"])
    )
    (account / "token").write_text(user["user"]["token"], encoding="ascii")
    (account / "server").write_text(f"{address.hostname} {address.port}", encoding="ascii")
    return account
