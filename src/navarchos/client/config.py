"""The address of the API server, and the credentials for it.

The only module that uses the official `kubernetes` package, for kubeconfig files and auth
providers. The package is imported when a kubeconfig is loaded, and not before, because it
takes half a second and 15 MB. A process in a pod does not need it. Its API classes and
models are never imported. `navarchos.client.credentials` reads token files and runs exec
plugins.
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
from navarchos.client.credentials import (
    CredentialsFailed,
    ExecPlugin,
    Impersonation,
    PluginSettings,
    TokenFile,
    cluster_info,
    impersonation_of,
)
from navarchos.errors import ConfigError

__all__ = ["ClientConfig", "ClientSettings", "load_config"]

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"


@dataclass(frozen=True)
class ClientConfig:
    """The address of one API server, and the credentials of one user.

    Certificates are files, so their rotation does not need a restart: each new connection
    reads them, and connections are replaced after a 401 and within a minute of a change.
    Credentials never appear in the `repr`.

    Attributes:
        host: URL of the server; its path is a prefix of the path of every request.
        ca_file: Trusted certificates; `None` for the system's certificates.
        cert_file: Client certificate, or `None`.
        key_file: Its private key, or `None`.
        verify: Whether the server's certificate is verified.
        tls_server_name: The name to verify; `None` for the name in `host`.
        authorization: Called for every request; returns the value of the header
            `Authorization`, or `""` for none. Must be fast and safe from any
            thread. It returns the current token after a rotation.
        renew: Called after a 401, before one more try; makes `authorization`
            fetch new credentials. `None` if they cannot be renewed.
        impersonate: The user that requests act as; `None` for the authenticated user.
        proxy: URL of an HTTP proxy, or `None`.
        namespace: The default namespace of the user.
        user_agent: Value of the header `User-Agent`.
        timeout: Default seconds of a call; `None` for no limit.
        qps: Maximum requests per second; `None` for no limit, because servers have API
            priority and fairness.
        burst: Requests that may be sent at once before `qps` applies; `None` for
            `2 * qps`, at least 1.
        compression: Whether lists may be compressed. Useful over slow networks only.
    """

    host: str
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = field(default=None, repr=False)
    verify: bool = True
    tls_server_name: str | None = None
    authorization: Callable[[], str] | None = field(default=None, repr=False)
    renew: Callable[[], None] | None = field(default=None, repr=False)
    impersonate: Impersonation | None = None
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
                "host", url.hostname, "the URL must not contain a user, a query or a fragment"
            )
        if self.impersonate and self.proxy and url.scheme == "http":
            rule = "impersonation through a proxy requires https: proxies may join repeated fields"
            raise ConfigError("impersonate", self.impersonate.user, rule)
        if self.timeout is not None and self.timeout <= 0:
            raise ConfigError("timeout", self.timeout, "it must be above 0, or None for no limit")
        if self.qps is not None and self.qps <= 0:
            raise ConfigError("qps", self.qps, "it must be above 0, or None for no limit")
        if self.burst is not None and self.burst < 1:
            raise ConfigError("burst", self.burst, "it must be at least 1")


@dataclass(frozen=True)
class ClientSettings:
    """Settings of a client that a kubeconfig does not contain, see `Client.from_config`.

    Attributes:
        qps: See `ClientConfig`.
        burst: See `ClientConfig`.
        user_agent: See `ClientConfig`; `None` for its default.
        timeout: See `ClientConfig`.
        impersonate: Replaces the impersonation of the kubeconfig; `None` keeps it.
    """

    qps: float | None = None
    burst: int | None = None
    user_agent: str | None = None
    timeout: float | None = 30.0
    impersonate: Impersonation | None = None


def load_config(
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = _SERVICE_ACCOUNT,
) -> ClientConfig:
    """Find the API server and the credentials, as kubectl and controllers do.

    The order is: an explicit file, the variable `KUBECONFIG`, the service account of the
    pod, `~/.kube/config`. With a context the service account is skipped, because it has no
    contexts.

    Args:
        kubeconfig: A kubeconfig file.
        context: The context in it; `None` for its current context.
        environ: Environment variables; by default the variables of this process.
        service_account: The directory with the credentials of a pod.

    Raises:
        ConfigError: No configuration was found, or it cannot be used.
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
        "no cluster is configured: give a kubeconfig, set KUBECONFIG, "
        f"create {_DEFAULT_KUBECONFIG}, or run in a pod with a service account",
    )


class _Settings:
    """The attributes of the official `Configuration` that its loaders set.

    The official class would also read proxies from the environment, configure logging, and
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


class _Credentials:
    """The `Authorization` header of an official loader.

    The loaders replace expired tokens, and are not thread-safe.
    """

    def __init__(self, loader: _Loader, settings: _Settings) -> None:
        self._loader = loader
        self._settings_lock = threading.Lock()
        self._settings = settings  # guarded by _settings_lock

    def header(self) -> str:
        """Return the value of the header; refresh it if it has expired."""
        with self._settings_lock:
            if self._settings.refresh_api_key_hook is not None:
                self._settings.refresh_api_key_hook(self._settings)
            # Token files often end with a newline, which would end the header.
            return self._settings.api_key.get("BearerToken", "").strip()

    def renew(self) -> None:
        """Load everything again, because the server refused the credentials."""
        with self._settings_lock:
            self._loader.load_and_set(self._settings)


def _in_cluster(env: Mapping[str, str], service_account: Path) -> ClientConfig:
    """Return the configuration of a pod.

    Without the official package, which would load its other dependencies as well.
    """
    address, port = (env.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not address or not port:
        variable = "KUBERNETES_SERVICE_PORT" if address else "KUBERNETES_SERVICE_HOST"
        raise ConfigError(variable, "", "this variable must name the API server's address in a pod")
    authority = service_account / "ca.crt"
    try:
        credentials = TokenFile(service_account / "token")
        if not authority.read_bytes().strip():
            raise ConfigError(
                "service_account", str(service_account), f"{authority} must not be empty"
            )
        namespace = _text(service_account / "namespace")
    except (CredentialsFailed, OSError) as error:
        raise ConfigError(
            "service_account", str(service_account), f"the service account cannot be used: {error}"
        ) from error
    return ClientConfig(
        host=f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}",
        ca_file=str(authority),
        authorization=credentials.header,
        renew=credentials.renew,
        namespace=namespace or "default",
    )


def _from_kubeconfig(
    name: str, path: str, context: str | None, env: Mapping[str, str]
) -> ClientConfig:
    try:
        merged = _merged(name, path)
        context = context or _current_context(merged)
        nodes = _Nodes(merged, context)
        impersonate = impersonation_of(nodes.user)
        source = _source(nodes)
        settings, credentials = _Settings(), None
        loader = _kubeconfig_loader(merged, context)
        loader.load_and_set(settings)
        if source is None and settings.api_key:
            credentials = _Credentials(loader, settings)
    except ConfigError:
        raise
    except CredentialsFailed as error:
        raise ConfigError(name, path, f"{error}") from error
    except Exception as error:  # the official loader raises errors of any class for bad input
        raise ConfigError(name, path, f"the file cannot be used: {_line(error)}") from error
    keeper = source or credentials
    plugin = source if isinstance(source, ExecPlugin) else None
    cert_file, key_file = _client_certificate(nodes, settings)
    if plugin is not None and plugin.cert_file:
        cert_file, key_file = plugin.cert_file, plugin.key_file
    return ClientConfig(
        host=settings.host,
        ca_file=settings.ssl_ca_cert,
        cert_file=cert_file,
        key_file=key_file,
        verify=settings.verify_ssl,
        tls_server_name=settings.tls_server_name,
        authorization=keeper.header if keeper else None,
        # A client certificate that was rotated on disk only needs a new connection.
        renew=keeper.renew if keeper else (_nothing if cert_file else None),
        impersonate=impersonate,
        proxy=settings.proxy or _proxy_for(settings.host, env),
        namespace=nodes.context.get("namespace") or "default",
    )


def _merged(name: str, path: str) -> Any:
    module: Any = import_module("kubernetes.config.kube_config")
    files = [Path(p).expanduser() for p in path.split(os.pathsep) if p]
    if not any(file.exists() for file in files):
        raise ConfigError(name, path, "the file does not exist")
    merged = module.KubeConfigMerger(path)
    if merged.config is None:
        raise ConfigError(name, path, "the file is empty")
    return merged


def _current_context(merged: Any) -> str | None:
    """Return the first current context that a file names, as kubectl does."""
    contexts = (config.get("current-context") for config in merged.config_files.values())
    return next((context for context in contexts if context), None)


def _kubeconfig_loader(merged: Any, context: str | None) -> _Loader:
    module: Any = import_module("kubernetes.config.kube_config")
    # With `None` as base path, each path is relative to the file that contains it.
    loader: _Loader = module.KubeConfigLoader(
        merged.config, active_context=context, config_base_path=None
    )
    return loader


class _Nodes:
    """The context, cluster and user of a kubeconfig, with the directories of their files."""

    def __init__(self, merged: Any, name: str | None) -> None:
        config = merged.config
        self.context = config["contexts"].get_with_name(name)["context"].value
        self.cluster, self.cluster_dir = _named(config, "clusters", self.context.get("cluster"))
        self.user, self.user_dir = _named(config, "users", self.context.get("user"))


def _named(config: Any, section: str, name: str | None) -> tuple[dict[str, Any], Path]:
    """Return an entry of a section by name; an empty one if the name does not exist."""
    found = config[section].get_with_name(name, safe=True) if config.safe_get(section) else None
    if found is None:
        return {}, Path()
    # Every entry is a `ConfigNode`, which knows the file that it comes from.
    return found.value.get(section[:-1]) or {}, Path(found.path).absolute().parent


def _source(nodes: _Nodes) -> "TokenFile | ExecPlugin | None":
    """Return a token file or exec plugin, and remove the plugin from the loader's input.

    The official loader reads token files once. It runs exec plugins with the terminal
    attached, logs their errors and continues without credentials.
    """
    user = nodes.user
    if path := user.get("tokenFile"):
        # As in client-go, it has precedence over a `token`.
        return TokenFile(nodes.user_dir / path)
    if "exec" in user and not user.get("token"):
        # After `pop` the loader finds no credentials, and does not run the plugin.
        return ExecPlugin(_plugin_settings(user.pop("exec"), nodes))
    return None


def _plugin_settings(given: Mapping[str, Any], nodes: _Nodes) -> PluginSettings:
    command = given.get("command")
    if not command:
        raise ConfigError("exec.command", command, "the command of the plugin must be set")
    if given.get("interactiveMode") == "Always":
        raise ConfigError(
            "exec.interactiveMode",
            "Always",
            "this process is not interactive: use Never or IfAvailable",
        )
    has_folder = "/" in command or os.sep in command
    return PluginSettings(
        str(nodes.user_dir / command) if has_folder else command,
        str(given.get("apiVersion")),
        args=given.get("args") or (),
        env={entry["name"]: entry["value"] for entry in given.get("env") or ()},
        hint=(given.get("installHint") or "").strip(),
        cluster=cluster_info(nodes.cluster, nodes.cluster_dir)
        if given.get("provideClusterInfo")
        else None,
    )


def _client_certificate(nodes: _Nodes, settings: _Settings) -> tuple[str | None, str | None]:
    """Return the certificate and key of the user.

    Relative paths belong to the user's file; the loader uses the cluster's file.
    """
    found = []
    for name, loaded in (
        ("client-certificate", settings.cert_file),
        ("client-key", settings.key_file),
    ):
        path, data = nodes.user.get(name), nodes.user.get(f"{name}-data")
        found.append(str(nodes.user_dir / path) if path and not data else loaded)
    return found[0], found[1]


def _nothing() -> None:
    """Do nothing: the changed files are read by the next connection."""


def _proxy_for(host: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy for a URL from the environment, if any."""
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
    """Return whether an address is in one of the networks, as Go reads `NO_PROXY`."""
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
