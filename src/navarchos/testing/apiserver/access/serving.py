"""TLS for a server that knows users: clients send no token over plain connections."""

import shutil
import ssl
import tempfile
from pathlib import Path

from navarchos.testing.apiserver.objects import JsonObject

__all__ = ["Certificates"]


class Certificates:
    """An authority of the server's own, and a certificate by it, as files.

    The files are there from `open` to `close`; both may be repeated, and bring the
    same files back. Needs the package `cryptography`.

    Threads: none of its own; one caller at a time.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._files: dict[str, bytes] = {}

    @property
    def authority(self) -> Path:
        """The certificate that clients are to trust."""
        assert self._directory is not None, "opened first"
        return self._directory / "ca.crt"

    def open(self, host: str) -> ssl.SSLContext:
        """Write the files; returns what a server at that address listens with.

        Raises:
            ControlPlaneError: `cryptography` is not installed.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="navarchos-apiserver-"))
            try:
                self._make(host)
            except BaseException:
                self.close()
                self._directory = None
                raise
        elif not self._directory.exists():
            self._directory.mkdir(mode=0o700)
            for name, content in self._files.items():
                (self._directory / name).write_bytes(content)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._directory / "server.crt", self._directory / "server.key")
        return context

    def close(self) -> None:
        """Remove the files."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _make(self, host: str) -> None:
        from navarchos.testing.controlplane.credentials import Authority

        assert self._directory is not None, "made before"
        Authority(self._directory).issue_server("server", [host, "localhost"])
        found = (path for path in self._directory.iterdir() if path.name != "ca.key")
        self._files = {path.name: path.read_bytes() for path in found}

    def kubeconfig(self, url: str, token: str, namespace: str) -> JsonObject:
        """Return a kubeconfig for the bearer of a token."""
        from navarchos.testing.controlplane.credentials import make_kubeconfig, token_user

        return make_kubeconfig(url, self.authority, token_user(token), namespace=namespace)
