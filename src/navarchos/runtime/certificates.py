"""The certificate that a server shows, for as long as its files change."""

import ssl
import threading
from pathlib import Path
from typing import Final

from navarchos.errors import ConfigError
from navarchos.logs import get_logger

__all__ = ["ServerCertificate"]

_log = get_logger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


class ServerCertificate:
    """A certificate chain and its key, in PEM files that somebody else renews.

    Promises: whoever connects after a change of the files sees the new certificate, also
    when a mounted Secret changes by exchanging a link; while the files cannot be used,
    such as between the writes of the two, the last good pair is shown, and a line is
    logged once for each state of the files.

    Nothing is ever made up: a certificate that nobody chose is one that nobody checks.

    Threads: safe from any thread. After controller-runtime's pkg/certwatcher, except that
    the files are looked at when somebody connects, and not every ten seconds.

    Raises:
        ConfigError: The files cannot be used at the start.
    """

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        self._files: Final = (cert_file, key_file)
        self._context_lock = threading.Lock()
        try:
            self._stamp: _Stamp | None = self._look()  # guarded by _context_lock
            self._context = self._load()  # guarded by _context_lock
        except OSError as error:
            raise ConfigError("certificate", str(cert_file), _why(error)) from error

    def context(self) -> ssl.SSLContext:
        """Return what the next connection is to be wrapped with."""
        with self._context_lock:
            try:
                self._follow()
            except OSError as error:
                _log.warning("certificate_unusable", file=str(self._files[0]), error=_why(error))
            return self._context

    def _follow(self) -> None:
        try:
            stamp = self._look()
        except OSError:
            if self._stamp is None:
                return  # told before
            self._stamp = None
            raise
        if stamp != self._stamp:
            self._stamp = stamp
            self._context = self._load()

    def _look(self) -> _Stamp:
        # Links are followed: a mounted Secret keeps the names and exchanges what is behind.
        found = [path.stat() for path in self._files]
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)

    def _load(self) -> ssl.SSLContext:
        # A new one each time: a context that has loaded one half of a pair is spoilt.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._files)
        return context


def _why(error: OSError) -> str:
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    return f"certificate and key cannot be used together: {error.strerror or error}"
