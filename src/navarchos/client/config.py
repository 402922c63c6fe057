"""Where the API server is and who we are.

The only module that touches the official `kubernetes` package, which knows
kubeconfig files, service accounts, exec plugins and token refresh. It is imported
when a configuration is loaded and never before: it costs a sixth of a second and
some 20 MB. Its API classes and models are not imported at all.
"""

import ipaddress
import os
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from navarchos._version import __version__
from navarchos.errors import ConfigError

__all__ = ["ClientConfig", "load_config"]

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"


@dataclass(frozen=True)
class ClientConfig:
    """How to reach one API server as one user.

    Certificates are files, read again for each new connection, so rotating them
    needs no restart. Credentials never show in the `repr`.

    Attributes:
        host: URL of the server; a path in it is put before every request's.
        ca_file: Certificates to trust; `None` for the system's.
        cert_file: Client certificate, or `None`.
        key_file: Its private key, or `None`.
        verify: Whether the server's certificate is verified.
        tls_server_name: The name to verify instead of the host's; `None` for that.
        authorization: Called for every request; returns the value of the header
            `Authorization`, or `""` for none. Must be quick and safe from any
            thread. Tokens rotate behind it.
        renew: Called after a 401, before one more try; makes `authorization`
            fetch anew. `None` if there is nothing to renew.
        proxy: URL of an HTTP proxy, or `None`.
        namespace: Where to work when the user names no namespace.
        user_agent: Value of the header `User-Agent`.
        timeout: Seconds for a call that sets no other; `None` is no limit.
        qps: Requests per second; `None` does not limit: servers have priority and
            fairness.
        burst: Requests that may go at once before `qps` counts; `None` for `2 * qps`,
            at least 1.
        compression: Whether lists may come compressed. Pays over slow links only.
    """

    host: str
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = field(default=None, repr=False)
    verify: bool = True
    tls_server_name: str | None = None
    authorization: Callable[[], str] | None = field(default=None, repr=False)
    renew: Callable[[], None] | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)
    namespace: str = "default"
    user_agent: str = f"navarchos/{__version__}"
    timeout: float | None = 30.0
    qps: float | None = None
    burst: int | None = None
    compression: bool = False

    def __post_init__(self) -> None:
        url = urlsplit(self.host)
        if url.scheme not in {"http", "https"} or not url.netloc:
            raise ConfigError("host", self.host, "it must be a URL such as https://10.0.0.1:6443")
        if url.username or url.query or url.fragment:
            raise ConfigError(
                "host", url.hostname, "it must carry no user, query or fragment: use credentials"
            )
        if self.timeout is not None and self.timeout <= 0:
            raise ConfigError("timeout", self.timeout, "it must be above 0; None is no limit")
        if self.qps is not None and self.qps <= 0:
            raise ConfigError("qps", self.qps, "it must be above 0; None does not limit")
        if self.burst is not None and self.burst < 1:
            raise ConfigError("burst", self.burst, "at least one request must be allowed at once")


def load_config(
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = _SERVICE_ACCOUNT,
) -> ClientConfig:
    """Find out where the API server is, as kubectl and controllers do.

    An explicit file wins over the variable `KUBECONFIG`, that over the service
    account of the pod, that over `~/.kube/config`. Naming a context skips the
    service account, which has none.

    Args:
        kubeconfig: A kubeconfig file.
        context: The context in it; `None` for its current one.
        environ: Environment variables; the process's own by default.
        service_account: The directory where a pod finds its credentials.

    Raises:
        ConfigError: Nothing found, or what was found cannot be used.
    """
    env = os.environ if environ is None else environ
    if kubeconfig is not None:
        return _from_kubeconfig("kubeconfig", str(kubeconfig), context, env)
    if env.get("KUBECONFIG"):
        return _from_kubeconfig("KUBECONFIG", env["KUBECONFIG"], context, env)
    if context is None and env.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(env, service_account)
    default = Path(_DEFAULT_KUBECONFIG).expanduser()
    if default.exists():
        return _from_kubeconfig("kubeconfig", str(default), context, env)
    raise ConfigError(
        "kubeconfig",
        kubeconfig,
        "there is no cluster to talk to: give a kubeconfig, set KUBECONFIG, "
        f"create {_DEFAULT_KUBECONFIG}, or run in a pod with a service account",
    )


class _Settings:
    """What the official loaders fill in: the part of their `Configuration` they set.

    Their own class would read proxies from the environment, set up logging, and
    keep process-wide defaults.
    """

    def __init__(self) -> None:
        self.api_key: dict[str, str] = {}
        self.refresh_api_key_hook: Callable[[_Settings], None] | None = None
        self.host = ""
        self.ssl_ca_cert: str | None = None
        self.cert_file: str | None = None
        self.key_file: str | None = None
        self.verify_ssl = True
        self.tls_server_name: str | None = None
        self.proxy: str | None = None


class _Loader(Protocol):
    def load_and_set(self, client_configuration: Any) -> None: ...


class _KubeConfigLoader(_Loader, Protocol):
    @property
    def current_context(self) -> Mapping[str, Any]: ...


class _Credentials:
    """The `Authorization` header as an official loader keeps it fresh.

    The loaders replace what has expired, and are not safe from several threads.
    """

    def __init__(self, loader: _Loader, settings: _Settings) -> None:
        self._loader = loader
        self._settings_lock = threading.Lock()
        self._settings = settings  # guarded by _settings_lock

    def header(self) -> str:
        """Return the header's value, refreshed where its time is up."""
        with self._settings_lock:
            if self._settings.refresh_api_key_hook is not None:
                self._settings.refresh_api_key_hook(self._settings)
            # Token files often end in a newline, which would end the header.
            return self._settings.api_key.get("BearerToken", "").strip()

    def renew(self) -> None:
        """Load everything again, as the server does not take what we have."""
        with self._settings_lock:
            self._loader.load_and_set(self._settings)


def _in_cluster(env: Mapping[str, str], service_account: Path) -> ClientConfig:
    from kubernetes.config.config_exception import ConfigException

    # Imported by name, as the package is typed in name only.
    module: Any = import_module("kubernetes.config.incluster_config")
    loader = module.InClusterConfigLoader(
        token_filename=str(service_account / "token"),
        cert_filename=str(service_account / "ca.crt"),
        environ=env,
    )
    settings = _Settings()
    try:
        loader.load_and_set(settings)
        credentials = _Credentials(loader, settings)
        namespace = _text(service_account / "namespace")
    except (ConfigException, OSError) as error:
        raise ConfigError(
            "service account", str(service_account), f"it cannot be used: {error}"
        ) from error
    return ClientConfig(
        host=settings.host,
        ca_file=settings.ssl_ca_cert,
        authorization=credentials.header,
        renew=credentials.renew,
        namespace=namespace or "default",
    )


def _from_kubeconfig(
    name: str, path: str, context: str | None, env: Mapping[str, str]
) -> ClientConfig:
    try:
        loader = _kubeconfig_loader(name, path, context)
        settings = _Settings()
        loader.load_and_set(settings)
        current = loader.current_context.get("context") or {}
    except ConfigError:
        raise
    except Exception as error:  # the official loader lets any error of its input through
        raise ConfigError(name, path, f"it cannot be used: {_line(error)}") from error
    _check_exec(name, path, loader, settings)
    credentials = _Credentials(loader, settings)
    has_token = bool(settings.api_key)
    return ClientConfig(
        host=settings.host,
        ca_file=settings.ssl_ca_cert,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        verify=settings.verify_ssl,
        tls_server_name=settings.tls_server_name,
        authorization=credentials.header if has_token else None,
        renew=credentials.renew if has_token else None,
        proxy=settings.proxy or _proxy_for(settings.host, env),
        namespace=current.get("namespace") or "default",
    )


def _kubeconfig_loader(name: str, path: str, context: str | None) -> _KubeConfigLoader:
    module: Any = import_module("kubernetes.config.kube_config")
    files = [Path(p).expanduser() for p in path.split(os.pathsep) if p]
    if not any(file.exists() for file in files):
        raise ConfigError(name, path, "there is no such file")
    merged = module.KubeConfigMerger(path)
    if merged.config is None:
        raise ConfigError(name, path, "it is empty")
    # `None` as base path makes each path relative to the file that names it.
    loader: _KubeConfigLoader = module.KubeConfigLoader(
        merged.config, active_context=context, config_base_path=None
    )
    return loader


def _check_exec(name: str, path: str, loader: _KubeConfigLoader, settings: _Settings) -> None:
    """Refuse a plugin that gave nothing: the loader only logs that and goes on."""
    user: Any = getattr(loader, "_user", None)
    if user and "exec" in user and not settings.api_key and not settings.cert_file:
        command = user["exec"].safe_get("command")
        raise ConfigError(name, path, f"its exec plugin {command!r} gave no credentials: run it")


def _proxy_for(host: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for a URL, if any."""
    url = urlsplit(host)
    proxies = {
        key.lower().removesuffix("_proxy"): value
        for key, value in env.items()
        if key.lower().endswith("_proxy") and value
    }
    exempt = proxies.get("no", "")
    if _is_in_networks(url.hostname or "", exempt.split(",")):
        return None
    if urllib.request.proxy_bypass_environment(url.netloc, proxies):  # type: ignore[attr-defined]  # missing in typeshed
        return None
    return proxies.get(url.scheme)


def _is_in_networks(host: str, entries: Sequence[str]) -> bool:
    """Tell whether an address is in one of the networks, as Go reads `NO_PROXY`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in map(_network, entries) if network is not None)


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry.strip(), strict=False)
    except ValueError:
        return None


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
