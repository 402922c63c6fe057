"""Certificates that are exchanged on disk while the process runs.

After client-go's transport/cert_rotation.go and ca_rotation.go, which look every five
minutes. What is new there reaches requests only; here it reaches open watches, too.
"""

import hashlib
import ssl
import threading
from pathlib import Path
from typing import Final

from navarchos.clock import Clock
from navarchos.logs import get_logger

__all__ = ["CertificateFiles"]

_log = get_logger(__name__)

_LOOK: Final = 60.0  # as often as token files are read


class CertificateFiles:
    """The files that connections are made with, looked at once a minute.

    Promises: a change counts when all files can be used together: a certificate
    whose key is still the old one does not. Content counts, not dates.

    Threads: safe from any thread. There is none of its own: whoever asks looks.

    Args:
        ca_file: Certificates to trust, if any.
        cert_file: Client certificate, if any.
        key_file: Its private key; `None` when it is in `cert_file`.
        clock: Says when it is time to look.
    """

    def __init__(
        self,
        ca_file: str | None,
        cert_file: str | None,
        key_file: str | None,
        *,
        clock: Clock,
    ) -> None:
        self._ca_file = ca_file
        self._cert_file = cert_file
        self._key_file = key_file
        self._paths = [path for path in (ca_file, cert_file, key_file) if path]
        self._clock = clock
        self._changes_lock = threading.Lock()
        self._changes = 0  # guarded by _changes_lock
        self._known = self._read()  # guarded by _changes_lock
        self._until = clock.monotonic() + _LOOK  # guarded by _changes_lock

    @property
    def changes(self) -> int:
        """How often the files have changed, as far as is known."""
        if not self._paths:
            return 0
        with self._changes_lock:
            if self._clock.monotonic() >= self._until:
                self._look()
                self._until = self._clock.monotonic() + _LOOK
            return self._changes

    def _look(self) -> None:
        found = self._read()
        if found is None or found == self._known:
            return
        if self._known is not None:
            self._changes += 1
            _log.info("certificates_changed", paths=self._paths)
        self._known = found

    def _read(self) -> bytes | None:
        """Return what tells these files from others; `None` while they cannot be used."""
        try:
            content = [Path(path).read_bytes() for path in self._paths]
            self._try_out()
        except (OSError, ValueError) as error:
            _log.warning("certificates_unusable", paths=self._paths, error=str(error))
            return None
        return hashlib.sha256(b"\0".join(content)).digest()

    def _try_out(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._ca_file:
            context.load_verify_locations(self._ca_file)
        if self._cert_file:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self._cert_file, self._key_file, password="")
