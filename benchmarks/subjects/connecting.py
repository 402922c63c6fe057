"""Find the server of a measured program."""

from pathlib import Path

from navarchos.client import ClientConfig, load_config

__all__ = ["config_of"]


def config_of(place: str) -> ClientConfig:
    """Read a kubeconfig, or the service account of a pod (`benchmarks.accounts`)."""
    path = Path(place)
    if not path.is_dir():
        return load_config(kubeconfig=path)
    host, port = (path / "server").read_text(encoding="ascii").split()
    around = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    return load_config(environ=around, service_account=path)
