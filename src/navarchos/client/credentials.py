"""Credentials: token files, exec plugins, their renewal, and impersonation.

Token files and exec plugins do not use the official package, which reads a token file
once, runs plugins with the terminal attached, and continues without credentials after
their errors. They behave like client-go's transport/token_source.go and
plugin/pkg/client/auth/exec.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from navarchos.client.errors import TransportError
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError
from navarchos.logs import get_logger
from navarchos.meta import parse_time
from navarchos.structs import prepare_decoding

__all__ = [
    "CredentialsFailed",
    "ExecPlugin",
    "Impersonation",
    "PluginSettings",
    "Renewal",
    "TokenFile",
    "cluster_info",
    "impersonation_of",
]

_log = get_logger(__name__)

_REREAD: Final = 60.0  # as client-go: kubelets rotate a token long before it expires
_PLUGIN_LIMIT: Final = 60.0
_MAX_STDERR: Final = 300
_GROUP: Final = "client.authentication.k8s.io"
_VERSIONS: Final = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")


class CredentialsFailed(TransportError):
    """There are no credentials, so the request was not sent.

    Attributes:
        source: The command of the plugin, or the path of the token file.
        hint: The kubeconfig's `installHint` of the plugin.
    """

    def __init__(self, source: str, why: str, *, hint: str = "") -> None:
        super().__init__(f"{source} provides no credentials: {why}{f'; {hint}' if hint else ''}")
        self.source = source
        self.hint = hint


class TokenFile:
    """A bearer token in a file; read again every minute, and when the server refuses it.

    Promises: while the file cannot be read, the last token is used, and a line is logged.

    Threads: safe from any thread.

    Raises:
        CredentialsFailed: The file has no token at the start.
    """

    def __init__(self, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._clock = clock
        self._token_lock = threading.Lock()
        self._token = self._read()  # guarded by _token_lock
        self._until = clock.monotonic() + _REREAD  # guarded by _token_lock

    def header(self) -> str:
        """Return the value of the header `Authorization`."""
        with self._token_lock:
            if self._clock.monotonic() >= self._until:
                self._reload()
            return f"Bearer {self._token}"

    def renew(self) -> None:
        """Read the file now."""
        with self._token_lock:
            self._reload()

    def _reload(self) -> None:
        try:
            self._token = self._read()
        except CredentialsFailed as error:
            _log.warning("token_file_unreadable", path=str(self._path), error=str(error))
        self._until = self._clock.monotonic() + _REREAD

    def _read(self) -> str:
        try:
            # Such files often end with a newline, which would end the header.
            token = self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialsFailed(str(self._path), str(error)) from error
        if not token:
            raise CredentialsFailed(str(self._path), "the file is empty")
        return token


@dataclass(frozen=True)
class PluginSettings:
    """The `exec` section of a kubeconfig user.

    Attributes:
        command: The program; looked up in the PATH unless it contains a slash.
        api_version: The version of `ExecCredential`, v1 or v1beta1.
        args: The arguments of the program.
        env: Additional environment variables. Not in the `repr`.
        hint: The `installHint`.
        cluster: The facts of the cluster for the program; `None` for none.
    """

    command: str
    api_version: str
    _: KW_ONLY
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    hint: str = ""
    cluster: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if self.api_version not in _VERSIONS:
            known = " or ".join(_VERSIONS)
            raise ConfigError("exec.apiVersion", self.api_version, f"it must be {known}")


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


@prepare_decoding
class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status | None = None


class ExecPlugin:
    """Credentials that a program prints; it runs again when they expire or are refused.

    The program never has a terminal or an input, because a controller has no user who
    could answer. It is killed after a minute.

    Threads: safe from any thread; other threads wait while one runs the program.

    Raises:
        CredentialsFailed: The program failed at the start.

    Attributes:
        cert_file: The file with the program's client certificate; `None` if it prints
            none. The content is replaced when the program prints another certificate.
        key_file: The file with the private key.
    """

    def __init__(self, settings: PluginSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._directory = Path(tempfile.mkdtemp(prefix="navarchos-"))  # readable by this user only
        weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self._status_lock = threading.Lock()
        self._status = self._run()  # guarded by _status_lock
        has_certificate = self._status.client_certificate_data is not None
        self.cert_file = self._file("tls.crt") if has_certificate else None
        self.key_file = self._file("tls.key") if has_certificate else None

    def header(self) -> str:
        """Return the value of the header `Authorization`; empty for certificates alone.

        Raises:
            CredentialsFailed: The credentials have expired, and the program failed.
        """
        with self._status_lock:
            if self._is_expired(self._status):
                self._status = self._run()
            return f"Bearer {self._status.token}" if self._status.token else ""

    def renew(self) -> None:
        """Run the program now.

        Raises:
            CredentialsFailed: The program failed.
        """
        with self._status_lock:
            self._status = self._run()

    def _is_expired(self, status: _Status) -> bool:
        expires = _moment(status.expiration_timestamp)
        return expires is not None and self._clock.now() >= expires

    def _run(self) -> _Status:
        status = self._parse(self._output())
        if status.client_certificate_data is not None and status.client_key_data is not None:
            self._keep("tls.crt", status.client_certificate_data)
            self._keep("tls.key", status.client_key_data)
        return status

    def _output(self) -> bytes:
        settings = self._settings
        spec = {"interactive": False} | ({"cluster": settings.cluster} if settings.cluster else {})
        info = {"apiVersion": settings.api_version, "kind": "ExecCredential", "spec": spec}
        env = {**os.environ, **settings.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run(  # noqa: S603 - the kubeconfig's user chose the program
                [settings.command, *settings.args],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=env,
                timeout=_PLUGIN_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._failed(f"it did not end within {_PLUGIN_LIMIT:g} seconds") from error
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from error
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split())[:_MAX_STDERR]
            raise self._failed(f"it failed with exit status {done.returncode}: {said}")
        return done.stdout

    def _parse(self, output: bytes) -> _Status:
        try:
            found = msgspec.json.decode(output, type=_Credential)
            _moment((found.status or _Status()).expiration_timestamp)
        except ValueError as error:
            # The output is not shown, because it may contain a secret.
            raise self._failed("its output is not an ExecCredential") from error
        wanted, status = self._settings.api_version, found.status
        if (found.kind, found.api_version) != ("ExecCredential", wanted):
            raise self._failed(f"it printed {found.kind} {found.api_version}, not {wanted}")
        pair = (status.client_certificate_data, status.client_key_data) if status else (None, None)
        if status is None or (pair[0] is None) != (pair[1] is None):
            raise self._failed("it printed a certificate without its key, or no status")
        if not status.token and pair[0] is None:
            raise self._failed("it printed neither a token nor a certificate")
        return status

    def _keep(self, name: str, content: str) -> None:
        """Replace a file atomically, so that no connection reads half of it."""
        path = Path(self._file(name))
        fresh = path.with_suffix(".new")
        fresh.write_text(content)
        fresh.replace(path)

    def _file(self, name: str) -> str:
        return str(self._directory / name)

    def _failed(self, why: str) -> CredentialsFailed:
        return CredentialsFailed(self._settings.command, why, hint=self._settings.hint)


def _moment(text: str | None) -> datetime | None:
    return parse_time(text) if text else None


def cluster_info(cluster: Mapping[str, object], config_dir: Path) -> Mapping[str, object]:
    """Return the facts of the cluster for a plugin with `provideClusterInfo`."""
    plain = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    facts = {name: cluster[name] for name in plain if cluster.get(name)}
    authority = cluster.get("certificate-authority-data")
    if not authority and (path := cluster.get("certificate-authority")):
        authority = base64.b64encode((config_dir / str(path)).read_bytes()).decode()
    extensions = cluster.get("extensions")
    for entry in extensions if isinstance(extensions, list) else ():
        if entry.get("name") == f"{_GROUP}/exec":
            facts["config"] = entry.get("extension")
    return facts | ({"certificate-authority-data": authority} if authority else {})


class Renewal:
    """Renews credentials once for all requests that were refused with the same ones.

    As in client-go's plugin/pkg/client/auth/exec, each request remembers the credentials
    that it was sent with. A failed renewal counts as well: the other requests are repeated
    with the old credentials, so that a program that hangs for a minute does not run again
    for each of them.

    Threads: safe from any thread; other threads wait while one renews.

    Args:
        renew: Fetches new credentials.
    """

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew
        self._renewing_lock = threading.Lock()  # held while credentials are fetched
        self._count_lock = threading.Lock()
        self._count = 0  # guarded by _count_lock

    @property
    def count(self) -> int:
        """The number of renewals; read it before a request gets its credentials."""
        with self._count_lock:
            return self._count

    def after(self, count: int) -> None:
        """Renew the credentials, unless another thread has done so since `count` was read.

        Args:
            count: The number of renewals before the refused request got its credentials.

        Raises:
            CredentialsFailed: There are no new credentials. Only in the thread that
                renewed; waiting threads return.
        """
        with self._renewing_lock:
            if self.count != count:
                return
            try:
                self._renew()
            finally:
                with self._count_lock:
                    self._count += 1


_KEYS: Final = ("as", "as-uid", "as-groups", "as-user-extra")
_EXTRA: Final = "Impersonate-Extra-"
# Allowed characters of a header's name (RFC 9110), except the percent sign of an escape.
_PLAIN: Final = "!#$&'*+-.^_`|~"
_CONTROLS: Final = frozenset(map(chr, [*range(32), 127]))


class Impersonation(msgspec.Struct, frozen=True):
    """The user that requests act as, instead of the authenticated user.

    The authenticated user needs the permission `impersonate` for each part. The server adds
    the group `system:authenticated`, and no other group that is not listed here.

    Raises:
        ConfigError: The user is empty, or a value cannot be sent in a header.

    Attributes:
        user: The name, such as `system:serviceaccount:default:builder`.
        uid: The uid; empty for none.
        groups: The groups.
        extra: Further facts by key. Servers convert the keys to lower case.
    """

    user: str
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.user:
            raise ConfigError("as", self.user, "uid, groups and extra require a user")
        for name, value in self._fields():
            # A space at either end would be dropped, and the name would be another user's.
            if not value or value != value.strip() or not _CONTROLS.isdisjoint(value):
                raise ConfigError(name, value, "it cannot be sent in a header")

    def headers(self) -> Sequence[tuple[str, str]]:
        """Return the header fields; some names occur several times."""
        # Servers read UTF-8, and urllib3 writes Latin-1.
        return [(name, value.encode().decode("latin-1")) for name, value in self._fields()]

    def _fields(self) -> Sequence[tuple[str, str]]:
        return [
            ("Impersonate-User", self.user),
            *([("Impersonate-Uid", self.uid)] if self.uid else []),
            *(("Impersonate-Group", group) for group in self.groups),
            *(
                (_EXTRA + quote(key, safe=_PLAIN), value)
                for key, values in self.extra.items()
                for value in values
            ),
        ]


def impersonation_of(user: Mapping[str, object]) -> Impersonation | None:
    """Return the impersonation of a kubeconfig user, from its `as` fields.

    Raises:
        ConfigError: A field is unknown, or its value is invalid.
    """
    given = {name: value for name, value in user.items() if name in _KEYS and value}
    unknown = sorted(name for name in user if name.startswith("as-") and name not in _KEYS)
    if unknown:
        # Ignoring the field would send the requests as another user.
        raise ConfigError("user", unknown, f"impersonation supports only {', '.join(_KEYS)}")
    if not given:
        return None
    return Impersonation(
        user=_text("as", given.get("as", "")),
        uid=_text("as-uid", given.get("as-uid", "")),
        groups=_texts("as-groups", given.get("as-groups", [])),
        extra=_extra(given.get("as-user-extra", {})),
    )


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, value, "it must be a string")
    return value


def _texts(name: str, value: object) -> Sequence[str]:
    if not isinstance(value, list):
        raise ConfigError(name, value, "it must be a list of strings")
    return [_text(name, item) for item in value]


def _extra(value: object) -> Mapping[str, Sequence[str]]:
    name = "as-user-extra"
    if not isinstance(value, dict):
        raise ConfigError(name, value, "it must be lists of strings by key")
    return {_text(name, key): _texts(f"{name}.{key}", item) for key, item in value.items()}
