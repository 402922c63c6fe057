"""Queries of alerts: their text, what is accepted as an answer, and when they are sent."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from tests.clocks import ManualClock

from navarchos.clock import SYSTEM_CLOCK
from navarchos.instrument import Instruments
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates.alerts import (
    AlertPollers,
    AlertQuery,
    PrometheusReader,
    QueryFailed,
    promql,
    query_of_gate,
)


def gate(**fields: object) -> api.AlertsGate:
    return msgspec.convert({"url": "http://prometheus", **fields}, api.AlertsGate)


@pytest.mark.rule("RB-65")
@pytest.mark.parametrize(
    ("fields", "query"),
    [
        ({}, 'ALERTS{alertname!=""} != 0'),
        (
            {"filter": "^RebootRequired$"},
            r'ALERTS{alertname!="",alertname!~"(?s:.*)(?:^RebootRequired$)(?s:.*)"} != 0',
        ),
        (
            {"filter": "Reboot|Node", "match": "Only", "states": "Firing"},
            (
                r'ALERTS{alertname!="",alertname=~"(?s:.*)(?:Reboot|Node)(?s:.*)",'
                'alertstate="firing"} != 0'
            ),
        ),
        (
            {"filter": r'a"b\d'},
            r'ALERTS{alertname!="",alertname!~"(?s:.*)(?:a\"b\\d)(?s:.*)"} != 0',
        ),
    ],
)
def test_the_filter_is_inside_the_query(fields: dict[str, object], query: str) -> None:
    assert promql(gate(**fields)) == query


def vector(*names: str) -> bytes:
    found = [{"metric": {"alertname": name}, "value": [0, "1"]} for name in names]
    data = {"resultType": "vector", "result": found}
    return json.dumps({"status": "success", "data": data}).encode()


@contextmanager
def server(
    body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> Iterator[tuple[str, list[BaseHTTPRequestHandler]]]:
    seen: list[BaseHTTPRequestHandler] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self)
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # the reader may refuse the rest
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", seen
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def read(url: str) -> tuple[str, ...]:
    return PrometheusReader(SYSTEM_CLOCK)(query_of_gate(gate(url=url)))


@pytest.mark.rule("RB-65")
def test_each_sample_is_an_alert_and_ten_names_are_kept() -> None:
    with server(vector("B", "A", "B")) as (url, seen):
        assert read(f"{url}/prometheus/") == ("A", "B")
        assert seen[0].path.startswith("/prometheus/api/v1/query?query=ALERTS%7B")
    with server(vector(*(f"a{n:02}" for n in range(12)))) as (url, _):
        assert read(url) == tuple(f"a{n:02}" for n in range(10))
    with server(vector()) as (url, _):
        assert read(url) == ()


@pytest.mark.rule("RB-65")
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"oops", 500, "status 500$"),
        (b'{"status":"error","error":"too\\nmany samples"}', 422, "status 422: too many samples$"),
        (b'{"status":"error","error":"%b"}' % (b"x" * 999), 503, "status 503: x{200}$"),
        (b"<html>login</html>", 200, "not one of Prometheus"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[]}}', 200, "not a vector"),
        (b'{"status":"error","error":"bad"}', 200, "not a vector"),
    ],
)
def test_an_answer_without_a_vector_is_a_failure(body: bytes, status: int, says: str) -> None:
    with server(body, status) as (url, _), pytest.raises(QueryFailed, match=says):
        read(url)


@pytest.mark.rule("RB-65")
def test_a_server_that_does_not_listen_is_a_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(QueryFailed, match=r"did not answer: Connection refused$"):
            read(f"http://127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.rule("RB-65")
def test_a_name_that_cannot_be_resolved_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(
        QueryFailed, match=r"prometheus\.invalid did not answer: its name cannot be"
    ):
        read("http://prometheus.invalid")


@pytest.mark.rule("RB-65")
@pytest.mark.parametrize("url", ["http://[::1", "http://prometheus:99999"])
def test_an_address_that_cannot_be_read_is_a_failure(url: str) -> None:
    with pytest.raises(QueryFailed):
        read(url)


@pytest.mark.rule("RB-78")
def test_no_redirect_is_followed_and_no_credentials_are_sent() -> None:
    with server(vector()) as (target, followed):
        with server(b"", 302, {"Location": f"{target}/api/v1/query"}) as (url, asked):
            with pytest.raises(QueryFailed, match="status 302"):
                read(url)
            assert len(asked) == 1
            assert asked[0].headers["Authorization"] is None
        assert followed == []


@pytest.mark.rule("RB-78")
@pytest.mark.parametrize("url", ["http://user:secret@host", "ftp://host", "file:///etc/passwd"])
def test_an_address_with_a_user_or_another_scheme_is_refused(url: str) -> None:
    with pytest.raises(QueryFailed, match="http or https, without user"):
        PrometheusReader(SYSTEM_CLOCK)(AlertQuery(url, "ALERTS"))
    with pytest.raises(msgspec.ValidationError):
        gate(url=url)


@pytest.mark.rule("RB-78")
def test_a_long_answer_is_not_read_to_its_end() -> None:
    with (
        server(vector(*(f"{'x' * 1000}{n}" for n in range(5000)))) as (url, _),
        pytest.raises(QueryFailed, match="longer than 4194304 bytes"),
    ):
        read(url)


class Answers:
    """Answers queries with a count, and lets the test wait for them."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.changed = threading.Condition()
        self.asked: list[float] = []
        self.results = 0
        self.failing = False

    def __call__(self, query: AlertQuery, /) -> tuple[str, ...]:
        with self.changed:
            self.asked.append(self.clock.passed)
        if self.failing:
            raise QueryFailed("no answer")
        return ()

    def done(self, _: AlertQuery) -> None:
        with self.changed:
            self.results += 1
            self.changed.notify_all()

    def wait_for(self, results: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.results >= results, 10)


@pytest.fixture
def answers() -> Answers:
    return Answers(ManualClock(datetime(2026, 6, 5, tzinfo=UTC)))


@pytest.mark.rule("RB-66")
def test_alerts_are_queried_at_once_for_each_change_of_nodes_in_flight(answers: Answers) -> None:
    query = AlertQuery("http://prometheus", "ALERTS")
    pollers = AlertPollers(
        answers, on_result=answers.done, clock=answers.clock, instruments=Instruments()
    )
    try:
        assert pollers.result(query) is None
        pollers.want({query: 1})
        answers.wait_for(1)
        first = pollers.result(query)
        assert first is not None
        assert (first.slots_version, first.failure) == (1, "")
        pollers.want({query: 1})  # nothing has changed
        answers.failing = True
        pollers.want({query: 2})
        answers.wait_for(2)
        second = pollers.result(query)
        assert second is not None
        assert (second.slots_version, second.failure) == (2, "no answer")
        pollers.want({})
        assert answers.results == 2
    finally:
        pollers.close()
