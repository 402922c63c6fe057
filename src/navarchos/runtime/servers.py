"""The HTTP servers of a manager: metrics and probes."""

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.logs import get_logger
from navarchos.runtime.httpserver import Answer, HttpServer, Query, parse_address

__all__ = ["Route", "Servers", "metrics_route"]

_log = get_logger(__name__)

Route = Callable[[str, Query], Answer]


class Servers:
    """Named servers that start and stop together; those without an address are off.

    Args:
        wanted: Address and route by name; see `parse_address`.
        clock: Time and waiting.

    Raises:
        ConfigError: An address cannot be used; nothing is bound then.
    """

    def __init__(self, wanted: Mapping[str, tuple[str, Route]], *, clock: Clock) -> None:
        self._servers: Final[dict[str, HttpServer]] = {}
        try:
            for name, (text, route) in wanted.items():
                address = parse_address(f"{name}_address", text)
                if address is not None:
                    self._servers[name] = HttpServer(name, address, route, clock=clock)
        except ConfigError:
            self.stop(0.0)
            raise

    def port(self, name: str) -> int:
        """Return where a server listens; 0 if it is off."""
        server = self._servers.get(name)
        return server.port if server is not None else 0

    def start(self) -> None:
        """Begin to answer."""
        for server in self._servers.values():
            server.start()

    def stop(self, timeout: float) -> None:
        """Take no more requests; give those under way `timeout` seconds each."""
        for name, server in self._servers.items():
            if not server.stop(timeout):
                _log.warning("http_requests_abandoned", server=name)


def metrics_route(registry: CollectorRegistry) -> Route:
    """Return what serves a registry at `/metrics`; the process is measured in it, too."""
    for collector in (ProcessCollector, PlatformCollector):
        try:
            collector(registry=registry)
        except ValueError:
            # The caller's registry has them already, as the library's default one.
            _log.debug("collector_present", collector=collector.__name__)

    def route(path: str, _: Query) -> Answer:
        if path != "/metrics":
            return Answer.text(404, "not found: try /metrics\n")
        return Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)

    return route
