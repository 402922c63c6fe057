"""The HTTP endpoints of a manager: metrics, probes, profiles."""

import math
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from navarchos.clock import Clock
from navarchos.errors import AlreadyStarted, ConfigError
from navarchos.logs import get_logger
from navarchos.runtime import httpserver
from navarchos.stopping import StopToken

__all__ = ["Checks", "Endpoint", "HttpServers", "MetricsPages", "Probes", "Profiling"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address and the route of one server; see `parse_address` and `HttpServer`."""

    address: str
    route: httpserver.Route
    certificate: httpserver.ServerCertificate | None = None
    guard: httpserver.Guard | None = None


class HttpServers:
    """Named servers that start and stop together; a server without an address is off.

    Args:
        endpoints: By the name of the server.
        clock: Time and waiting.

    Raises:
        ConfigError: An address cannot be used; no port is bound then.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint], *, clock: Clock) -> None:
        self._servers: Final[dict[str, httpserver.HttpServer]] = {}
        try:
            for name, endpoint in endpoints.items():
                address = httpserver.parse_address(f"{name}_address", endpoint.address)
                if address is not None:
                    self._servers[name] = httpserver.HttpServer(
                        name,
                        address,
                        endpoint.route,
                        certificate=endpoint.certificate,
                        guard=endpoint.guard,
                        clock=clock,
                    )
        except ConfigError:
            self.stop(0.0)
            raise

    def port(self, name: str) -> int:
        """Return the port of a server; 0 if it is off."""
        server = self._servers.get(name)
        return server.port if server is not None else 0

    def start(self) -> None:
        """Start to accept connections; log the ports, since the system may choose them."""
        for name, server in self._servers.items():
            server.start()
            _log.info("http_listening", server=name, port=server.port)

    def stop(self, timeout: float) -> None:
        """Stop to accept connections; wait `timeout` seconds for each server's requests."""
        for name, server in self._servers.items():
            if not server.stop(timeout):
                _log.warning("http_requests_abandoned", server=name)


class MetricsPages:
    """The pages of the metrics server: a registry at `/metrics`, and others (MG-16).

    The registry also gets the metrics of the process. Threads: safe from any thread.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._pages_lock = threading.Lock()
        self._pages: dict[str, httpserver.Route] = {
            "/metrics": self._metrics
        }  # guarded by _pages_lock
        for collector in (ProcessCollector, PlatformCollector):
            try:
                collector(registry=registry)
            except ValueError:
                # The caller's registry has this collector, as the default registry does.
                _log.debug("collector_present", collector=collector.__name__)

    def add(self, path: str, route: httpserver.Route) -> None:
        """Serve another page.

        Raises:
            ConfigError: Another page has this path, or the path does not begin with a slash.
        """
        if not path.startswith("/"):
            raise ConfigError("path", path, "it must begin with a slash")
        with self._pages_lock:
            if path in self._pages:
                raise ConfigError("path", path, "another page has this path")
            self._pages[path] = route

    def route(self, path: str, query: httpserver.Query) -> httpserver.HttpResponse:
        """Return the response to a request."""
        with self._pages_lock:
            page = self._pages.get(path)
        if page is None:
            return httpserver.HttpResponse.text(404, "not found: try /metrics\n")
        return page(path, query)

    def _metrics(self, _path: str, _query: httpserver.Query) -> httpserver.HttpResponse:
        return httpserver.HttpResponse(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)


Check = Callable[[], None]
"""Returns if the check passes, raises if not; the exception's text is the reason."""


class Checks:
    """The checks of one endpoint (MG-14). Without any, there is one called `ping`."""

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self._checks_lock = threading.Lock()
        self._checks: dict[str, Check] = {}  # guarded by _checks_lock
        self._frozen = False  # guarded by _checks_lock

    def add(self, name: str, check: Check) -> None:
        """Add a check.

        Raises:
            AlreadyStarted: The endpoint is served already.
            ConfigError: Another check has this name.
        """
        with self._checks_lock:
            if self._frozen:
                raise AlreadyStarted(f"endpoint {self.path}")
            if name in self._checks:
                raise ConfigError("check", name, "another check has this name")
            self._checks[name] = check

    def freeze(self) -> None:
        """Refuse further checks."""
        with self._checks_lock:
            self._frozen = True

    def answer(self, name: str, query: httpserver.Query) -> httpserver.HttpResponse:
        """Run one check, or all of them if `name` is empty."""
        with self._checks_lock:
            checks = dict(self._checks) or {"ping": _ping}
        if name:
            return _one(name, checks)
        excluded = set(query.get("exclude", ()))
        return self._all(checks, excluded, verbose="verbose" in query)

    def _all(
        self, checks: dict[str, Check], excluded: set[str], *, verbose: bool
    ) -> httpserver.HttpResponse:
        lines, failed = [], False
        for name, check in sorted(checks.items()):
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            reason = _run(check)
            failed = failed or reason is not None
            # Reasons may disclose details to any client that can reach the port.
            lines.append(
                f"[+]{name} ok" if reason is None else f"[-]{name} failed: reason withheld"
            )
            if reason is not None:
                _log.info("check_failed", path=self.path, check=name, error=reason)
        lines += [
            f"warn: some health checks cannot be excluded: no matches for {name}"
            for name in sorted(excluded - set(checks))
        ]
        if not failed and not verbose:
            return httpserver.HttpResponse.text(200, "ok")
        summary = f"{self.path.strip('/')} check {'failed' if failed else 'passed'}"
        return httpserver.HttpResponse.text(
            500 if failed else 200, "\n".join([*lines, summary, ""])
        )


class Probes:
    """Routes requests to `/healthz` and `/readyz`."""

    def __init__(self) -> None:
        self.healthz: Final = Checks("/healthz")
        self.readyz: Final = Checks("/readyz")

    def route(self, path: str, query: httpserver.Query) -> httpserver.HttpResponse:
        """Return the response to a request."""
        for checks in (self.healthz, self.readyz):
            rest = path.removeprefix(checks.path)
            if rest != path and (not rest or rest.startswith("/")):
                return checks.answer(rest.strip("/"), query)
        return httpserver.HttpResponse.text(404, "not found: try /healthz or /readyz\n")


def _one(name: str, checks: dict[str, Check]) -> httpserver.HttpResponse:
    check = checks.get(name)
    if check is None:
        return httpserver.HttpResponse.text(404, f"no check called {name}\n")
    reason = _run(check)
    return (
        httpserver.HttpResponse.text(200, "ok")
        if reason is None
        else httpserver.HttpResponse.text(500, f"{reason}\n")
    )


def _run(check: Check) -> str | None:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - any exception is a failed check
        return str(error) or type(error).__name__
    return None


def _ping() -> None:
    """Pass, because the process answers."""


_INDEX: Final = """\
/debug/threads              stacks of all threads
/debug/profile?seconds=10   samples of all stacks, 100 per second, as folded stacks
                            for flamegraph.pl, speedscope and inferno
"""
_SECONDS: Final = 10.0
_MAX_SECONDS: Final = 60.0
_PERIOD: Final = 0.01


class Profiling:
    """Thread dumps and profiles: like controller-runtime's pprof server, but as text.

    Stacks show files, lines and functions, never values. A profile samples waiting threads,
    too: Python cannot tell whether a thread waits or runs.

    Threads: safe from any thread. One profile at a time; a second request gets 409.

    Args:
        stop: Ends a running profile; the response has the samples so far.
        clock: Time and waiting.
    """

    def __init__(self, stop: StopToken, clock: Clock) -> None:
        self._stop = stop
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def route(self, path: str, query: httpserver.Query) -> httpserver.HttpResponse:
        """Return the response to a request."""
        if path == "/debug/threads":
            return httpserver.HttpResponse.text(200, _threads())
        if path == "/debug/profile":
            return self._profile(query)
        return httpserver.HttpResponse.text(
            404 if path.strip("/") not in {"", "debug"} else 200, _INDEX
        )

    def _profile(self, query: httpserver.Query) -> httpserver.HttpResponse:
        text = query.get("seconds", [str(_SECONDS)])[-1]
        seconds = _number(text)
        if not 0 < seconds <= _MAX_SECONDS:
            return httpserver.HttpResponse.text(
                400, f"seconds={text}: it must be above 0 and at most {_MAX_SECONDS:g}\n"
            )
        if not self._one_at_a_time.acquire(blocking=False):
            return httpserver.HttpResponse.text(
                409, "another profile is running; try again later\n"
            )
        try:
            return httpserver.HttpResponse.text(200, self._sample(seconds))
        finally:
            self._one_at_a_time.release()

    def _sample(self, seconds: float) -> str:
        found: Counter[str] = Counter()
        until = self._clock.monotonic() + seconds
        while self._clock.monotonic() < until and not self._stop.wait(_PERIOD):
            found.update(";".join(_folded(name, frame)) for name, frame in _frames())
        return "".join(f"{stack} {count}\n" for stack, count in sorted(found.items()))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _frames() -> list[tuple[str, FrameType]]:
    """Return the name and the innermost frame of all threads but the current one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    mine = threading.get_ident()
    return sorted(
        (
            (names.get(ident, str(ident)), frame)
            for ident, frame in sys._current_frames().items()  # noqa: SLF001 - documented, in spite of its name
            if ident != mine
        ),
        key=lambda entry: entry[0],
    )


def _threads() -> str:
    return "\n".join(
        f"{name}\n{''.join(traceback.format_stack(frame))}" for name, frame in _frames()
    )


def _folded(name: str, frame: FrameType | None) -> list[str]:
    """Return the thread's name, then its functions, outermost first."""
    found: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        found.append(f"{module}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return [name.replace(";", ","), *reversed(found)]
