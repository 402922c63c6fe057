"""Kubeconfigs that carry all they need."""

import json
import os
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.certificates import KeyPair

__all__ = ["certificate_user", "make_kubeconfig", "token_user", "write_private"]

_NAME: Final = "navarchos"


def make_kubeconfig(
    url: str, authority: Path, user: Mapping[str, str], *, namespace: str = "default"
) -> dict[str, object]:
    """Return a kubeconfig whose current context is one server, one user, one namespace."""
    cluster = {"server": url, "certificate-authority-data": _data(authority)}
    context = {"cluster": _NAME, "user": _NAME, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": dict(user)}],
        "contexts": [{"name": _NAME, "context": context}],
        "current-context": _NAME,
    }


def certificate_user(pair: KeyPair) -> Mapping[str, str]:
    """Return the user part for a client certificate."""
    return {
        "client-certificate-data": _data(pair.certificate),
        "client-key-data": _data(pair.key),
    }


def token_user(token: str) -> Mapping[str, str]:
    """Return the user part for a bearer token."""
    return {"token": token}


def write_private(path: str | os.PathLike[str], content: Mapping[str, object]) -> None:
    """Write JSON, which YAML readers take, to a file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
    Path(path).chmod(0o600)  # also when the file was there before


def _data(file: Path) -> str:
    return b64encode(file.read_bytes()).decode("ascii")
