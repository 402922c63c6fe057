"""The HTTP servers of a manager: metrics and probes."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.logs import get_logger
from navarchos.runtime.certificates import ServerCertificate
from navarchos.runtime.httpserver import Answer, Guard, HttpServer, Query, Route, parse_address

__all__ = ["MetricsPages", "Servers", "Site"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Site:
    """What one server serves, where, and to whom; see `parse_address` and `HttpServer`."""

    address: str
    route: Route
    certificate: ServerCertificate | None = None
    guard: Guard | None = None


class Servers:
    """Named servers that start and stop together; those without an address are off.

    Args:
        wanted: Sites by name.
        clock: Time and waiting.

    Raises:
        ConfigError: An address cannot be used; nothing is bound then.
    """

    def __init__(self, wanted: Mapping[str, Site], *, clock: Clock) -> None:
        self._servers: Final[dict[str, HttpServer]] = {}
        try:
            for name, site in wanted.items():
                address = parse_address(f"{name}_address", site.address)
                if address is not None:
                    self._servers[name] = HttpServer(
                        name,
                        address,
                        site.route,
                        certificate=site.certificate,
                        guard=site.guard,
                        clock=clock,
                    )
        except ConfigError:
            self.stop(0.0)
            raise

    def port(self, name: str) -> int:
        """Return where a server listens; 0 if it is off."""
        server = self._servers.get(name)
        return server.port if server is not None else 0

    def start(self) -> None:
        """Begin to answer, and say where: an address may leave the port to the system."""
        for name, server in self._servers.items():
            server.start()
            _log.info("http_listening", server=name, port=server.port)

    def stop(self, timeout: float) -> None:
        """Take no more requests; give those under way `timeout` seconds each."""
        for name, server in self._servers.items():
            if not server.stop(timeout):
                _log.warning("http_requests_abandoned", server=name)


class MetricsPages:
    """What the metrics server serves: a registry at `/metrics`, and pages beside it (MG-16).

    The process is measured in the registry, too. Threads: safe from any thread.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._pages_lock = threading.Lock()
        self._pages: dict[str, Route] = {"/metrics": self._metrics}  # guarded by _pages_lock
        for collector in (ProcessCollector, PlatformCollector):
            try:
                collector(registry=registry)
            except ValueError:
                # The caller's registry has them already, as the library's default one.
                _log.debug("collector_present", collector=collector.__name__)

    def add(self, path: str, route: Route) -> None:
        """Serve another page.

        Raises:
            ConfigError: There is a page, such as `/metrics`, or the path has no slash first.
        """
        if not path.startswith("/"):
            raise ConfigError("path", path, "it must begin with a slash")
        with self._pages_lock:
            if path in self._pages:
                raise ConfigError("path", path, "another page has this path")
            self._pages[path] = route

    def route(self, path: str, query: Query) -> Answer:
        """Answer a request."""
        with self._pages_lock:
            page = self._pages.get(path)
        if page is None:
            return Answer.text(404, "not found: try /metrics\n")
        return page(path, query)

    def _metrics(self, _path: str, _query: Query) -> Answer:
        return Answer(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)
