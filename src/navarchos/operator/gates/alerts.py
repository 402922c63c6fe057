"""Alerts of Prometheus: the query, its answer, and the threads that ask while it matters."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
import urllib3
from urllib3 import exceptions
from urllib3.exceptions import HTTPError

from navarchos.clock import Clock
from navarchos.errors import AlreadyStopped
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates.decide import ALERT_MAX_AGE, AlertResult
from navarchos.stopping import StopToken
from navarchos.structs import prepare_decoding
from navarchos.threads import ThreadGroup

__all__ = [
    "AlertPollers",
    "AlertQuery",
    "AlertReader",
    "PrometheusReader",
    "QueryFailed",
    "promql",
    "query_of_gate",
]

_MAX_RESPONSE: Final = 4 * 1024 * 1024
"""The largest answer that is read, in bytes."""

_TIMEOUT: Final = 10.0
"""Seconds for one query, from the connection to the last byte."""

_MAX_NAMES: Final = 10
_MAX_ERROR: Final = 200
_CHUNK: Final = 65_536
_JOIN_TIMEOUT: Final = 12.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AlertQuery:
    """A server and the query to send; equal gates share it."""

    url: str
    promql: str


def query_of_gate(gate: api.AlertsGate) -> AlertQuery:
    """Return the query of a gate."""
    return AlertQuery(gate.url, promql(gate))


def promql(gate: api.AlertsGate) -> str:
    """Return the instant query whose samples are the alerts that block.

    Prometheus anchors a regular expression on both sides, so the filter stands between `.*`: it
    then matches anywhere in the name, as in other tools. `(?s:)` lets `.` match a line break.
    """
    terms = ['alertname!=""']
    if gate.filter:
        operator = {api.AlertMatch.IGNORE: "!~", api.AlertMatch.ONLY: "=~"}[gate.match]
        escaped = gate.filter.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        # mutant: alert-filter-ignored
        terms.append(f'alertname{operator}"(?s:.*)(?:{escaped})(?s:.*)"')
    if gate.states is api.AlertStates.FIRING:
        terms.append('alertstate="firing"')
    return f"ALERTS{{{','.join(terms)}}} != 0"


class QueryFailed(Exception):
    """Prometheus gave no usable answer; the text says why."""


@prepare_decoding
class _AlertSample(msgspec.Struct, frozen=True):
    metric: Mapping[str, str] = {}


class _AnswerData(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: tuple[msgspec.Raw, ...] = ()


@prepare_decoding
class _QueryAnswer(msgspec.Struct, frozen=True):
    status: str = ""
    data: _AnswerData = _AnswerData()
    error: str = ""


def _read_answer(body: bytes) -> tuple[str, ...]:
    """Return the names of the alerts in an answer, sorted, at most ten.

    Raises:
        QueryFailed: The answer is not a successful vector.
    """
    try:
        answer = msgspec.json.decode(body, type=_QueryAnswer)
        if answer.status != "success" or answer.data.result_type != "vector":
            raise QueryFailed("the answer of Prometheus is not a vector")
        samples = [msgspec.json.decode(sample, type=_AlertSample) for sample in answer.data.result]
    except msgspec.DecodeError as error:
        raise QueryFailed(f"the answer is not one of Prometheus: {error}") from error
    names = sorted({sample.metric.get("alertname", "(no name)") for sample in samples})
    return tuple(names[:_MAX_NAMES])


def _read_error(body: bytes) -> str:
    """Return the error in an answer, with a colon before it; empty if the answer has none."""
    try:
        error = msgspec.json.decode(body, type=_QueryAnswer).error
    except msgspec.DecodeError:
        return ""  # of a proxy, or of another server than Prometheus
    text = " ".join(error.split())
    return f": {text[:_MAX_ERROR]}" if text else ""


def _cause(error: HTTPError) -> str:
    """Return what failed, in words that do not change from one query to the next."""
    match error:
        case exceptions.NameResolutionError():
            return "its name cannot be resolved"
        case exceptions.NewConnectionError(__cause__=OSError(strerror=str(reason))):
            return reason
        case exceptions.TimeoutError():
            return f"no answer within {_TIMEOUT:g} seconds"
        case _:
            return str(error)


class AlertReader(Protocol):
    """Asks for the active alerts."""

    def __call__(self, query: AlertQuery, /) -> tuple[str, ...]:
        """Return the names of the alerts that block; raise `QueryFailed` without an answer."""
        ...


class PrometheusReader:
    """Sends queries over HTTP.

    No redirect is followed, no credentials are sent, no proxy of the environment is used, and
    at most 4 MiB are read within 10 seconds.

    Threads: safe from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pool = urllib3.PoolManager(num_pools=10, retries=False)

    def __call__(self, query: AlertQuery, /) -> tuple[str, ...]:
        """Return the names of the active alerts.

        Raises:
            QueryFailed: No answer, or not a vector.
        """
        try:
            parts = urlsplit(query.url)
        except ValueError as error:
            raise QueryFailed(f"the address cannot be read: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.netloc or "@" in parts.netloc:
            raise QueryFailed("the address must be http or https, without user and password")
        deadline = self._clock.monotonic() + _TIMEOUT
        try:
            response = self._pool.request(
                "GET",
                query.url.rstrip("/") + "/api/v1/query",
                fields={"query": query.promql},
                headers={"Accept": "application/json"},
                redirect=False,
                preload_content=False,
                timeout=urllib3.Timeout(total=_TIMEOUT),
            )
        except HTTPError as error:
            raise QueryFailed(f"{query.url} did not answer: {_cause(error)}") from error
        try:
            body = self._body(response, deadline)
            if response.status != 200:
                why = _read_error(body)
                raise QueryFailed(f"{query.url} answered with status {response.status}{why}")
            return _read_answer(body)
        except (HTTPError, OSError) as error:
            raise QueryFailed(f"{query.url} did not answer completely: {error}") from error
        finally:
            response.close()

    def _body(self, response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
        body = bytearray()
        while chunk := response.read1(_CHUNK):
            body += chunk
            if len(body) > _MAX_RESPONSE:
                raise QueryFailed(f"the answer is longer than {_MAX_RESPONSE} bytes")
            if self._clock.monotonic() > deadline:
                raise QueryFailed(f"the answer took longer than {_TIMEOUT:g} seconds")
        return bytes(body)


class AlertPollers:
    """Queries alerts while a node could otherwise start: at once, and then every 15 seconds.

    Each query has a separate thread, so that a server that hangs delays no other gate. The thread
    exists only while the query is wanted.

    Args:
        read: Sends a query.
        on_result: Called with the query after each result, from its thread.
        now: The present time.
        clock: Waiting.
        instruments: Where queries are counted.

    Threads: safe from any thread. Only the threads of the pollers wait for a server.
    """

    def __init__(
        self,
        read: AlertReader,
        *,
        on_result: Callable[[AlertQuery], None],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        self._read = read
        self._on_result = on_result
        self._clock = clock
        self._queries = instruments.counter(
            "navarchos_gate_alert_queries_total",
            "Queries of alerts for gates, by result: none, active or failed.",
            ["result"],
        )
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup("gate-alerts", stop=self._stop, clock=clock)
        self._changed = threading.Condition(threading.Lock())
        # guarded by _changed; by query: the version of the nodes in flight to ask for
        self._wanted: dict[AlertQuery, int] = {}
        self._running: set[AlertQuery] = set()  # guarded by _changed
        self._results: dict[AlertQuery, AlertResult] = {}  # guarded by _changed

    def want(self, queries: Mapping[AlertQuery, int]) -> None:
        """Set which queries are sent from now on, and for which version of the nodes in flight.

        A query whose last result is of another version, or too old, is sent at once.
        """
        with self._changed:
            if self._stop.is_set() or self._wanted == queries:
                return
            self._wanted = dict(queries)
            fresh = [query for query in queries if query not in self._running]
            self._running.update(fresh)
            self._changed.notify_all()
        for query in fresh:
            self._start(query)

    def result(self, query: AlertQuery) -> AlertResult | None:
        """Return the last result; `None` before the first one."""
        with self._changed:
            return self._results.get(query)

    def forget(self, kept: set[AlertQuery]) -> None:
        """Drop the results of all other queries."""
        with self._changed:
            self._results = {q: r for q, r in self._results.items() if q in kept}

    def close(self) -> None:
        """End all threads, after the queries that are being answered."""
        self._stop.stop("the gates end")
        with self._changed:
            self._wanted = {}
            self._changed.notify_all()
        self._threads.join(_JOIN_TIMEOUT)

    def _start(self, query: AlertQuery) -> None:
        try:
            self._threads.start("", lambda: self._poll(query))
        except AlreadyStopped:
            _log.debug("gate_alerts_stopped")

    def _poll(self, query: AlertQuery) -> None:
        while (version := self._next(query)) is not None:
            result = self._ask(query, version)
            with self._changed:
                self._results[query] = result
            self._on_result(query)

    def _next(self, query: AlertQuery) -> int | None:
        """Wait until the query is due; return the wanted version, or `None` to end the thread."""
        with self._changed:
            while True:
                version = self._wanted.get(query)
                if version is None:
                    self._running.discard(query)
                    return None
                last = self._results.get(query)
                if last is None or last.slots_version != version:
                    return version
                # mutant: alerts-queried-too-seldom
                left = ALERT_MAX_AGE - (self._clock.now() - last.at).total_seconds()
                if left <= 0:
                    return version
                self._clock.wait(self._changed, left)

    def _ask(self, query: AlertQuery, version: int) -> AlertResult:
        at: datetime = self._clock.now()
        try:
            alerts = self._read(query)
        except QueryFailed as error:
            self._queries.labels("failed").inc()
            _log.warning("gate_alert_query_failed", url=query.url, error=str(error))
            return AlertResult(at, version, failure=str(error))
        self._queries.labels("active" if alerts else "none").inc()
        return AlertResult(at, version, alerts)
