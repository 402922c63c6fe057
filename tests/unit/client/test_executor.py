"""The executor of requests: retries, limits, deadlines, credentials, metrics."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.client.wire import Connect

from navarchos.client import (
    BufferedResponse,
    ConnectFailed,
    CredentialsFailed,
    HttpRequest,
    RequestTimeout,
    Resource,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from navarchos.errors import Stopped
from navarchos.instrument import Instruments
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock

PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
OBJECT = BufferedResponse(200, {}, b'{"metadata":{"name":"a"}}')


class Script:
    """Sends the given responses or raises the given errors in order; then sends the object."""

    def __init__(self, *steps: BufferedResponse | Exception) -> None:
        self.requests: list[HttpRequest] = []
        self._steps = list(steps)

    def __call__(self, request: HttpRequest) -> BufferedResponse:
        self.requests.append(request)
        step = self._steps.pop(0) if self._steps else OBJECT
        if isinstance(step, Exception):
            raise step
        return BufferedResponse(step.status, step.headers, step.body)


def busy(seconds: int = 3, status: int = 429) -> BufferedResponse:
    return BufferedResponse(status, {"retry-after": str(seconds)}, b"busy")


def in_thread(clock: FakeClock, call: Callable[[], object]) -> Callable[[], object]:
    """Run `call` on a thread until it waits; return a function that waits for its result."""
    result: list[object] = []

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error:  # noqa: BLE001 - returned to the test
            result.append(error)

    thread = threading.Thread(target=run, name="nav-test-call")
    thread.start()
    clock.settle()

    def collect() -> object:
        thread.join(30)
        return result[0]

    return collect


@pytest.mark.parametrize("status", [429, 503])
def test_a_read_is_repeated_when_the_server_says_so(
    connect: Connect, fake_clock: FakeClock, status: int
) -> None:
    script = Script(busy(3, status))
    pods = connect(script, clock=fake_clock).resource(PODS)
    collect = in_thread(fake_clock, lambda: pods.get("a", "web"))
    assert len(script.requests) == 1
    assert fake_clock.next_deadline() == 3.0
    fake_clock.advance(3.0)
    assert collect() == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (BufferedResponse(429, {}, b"no advice"), TooManyRequests),
        (BufferedResponse(503, {}, b"no advice"), ServerError),
        (BufferedResponse(500, {"retry-after": "1"}, b"broken"), ServerError),
        (busy(31), TooManyRequests),
    ],
)
def test_a_read_is_not_repeated_without_advice_or_beyond_its_deadline(
    connect: Connect, fake_clock: FakeClock, answer: BufferedResponse, expected: type[Exception]
) -> None:
    script = Script(answer)
    with pytest.raises(expected):
        connect(script, clock=fake_clock, timeout=30.0).resource(PODS).get("a", "web")
    assert len(script.requests) == 1


def test_all_tries_together_end_at_the_deadline(connect: Connect, fake_clock: FakeClock) -> None:
    script = Script(*[busy(4) for _ in range(9)])
    pods = connect(script, clock=fake_clock).resource(PODS)
    collect = in_thread(fake_clock, lambda: pods.get("a", "web", timeout=10.0))
    fake_clock.advance(8.0)
    assert isinstance(collect(), TooManyRequests)
    assert [request.timeout for request in script.requests] == [10.0, 6.0, 2.0]


def test_tries_end_without_a_deadline_too(connect: Connect, fake_clock: FakeClock) -> None:
    script = Script(*[busy(0) for _ in range(50)])
    with pytest.raises(TooManyRequests):
        connect(script, clock=fake_clock, timeout=None).resource(PODS).get("a", "web")
    assert len(script.requests) == 10


@pytest.mark.parametrize("verb", ["create", "patch", "replace", "delete", "evict"])
def test_a_write_is_never_repeated(connect: Connect, fake_clock: FakeClock, verb: str) -> None:
    calls: dict[str, Callable[[Any], object]] = {
        "create": lambda pods: pods.create({"metadata": {"name": "a"}}, "web"),
        "patch": lambda pods: pods.patch("a", {}, "web"),
        "replace": lambda pods: pods.replace("a", {}, "web"),
        "delete": lambda pods: pods.delete("a", "web"),
        "evict": lambda pods: pods.evict("a", "web"),
    }
    for failure in (busy(1), ConnectFailed("reset", kept=True, sent=True)):
        script = Script(failure)
        with pytest.raises((TooManyRequests, ConnectFailed)):
            calls[verb](connect(script, clock=fake_clock).resource(PODS))
        assert len(script.requests) == 1


def test_a_read_is_repeated_for_each_stale_kept_connection(connect: Connect) -> None:
    stale = ConnectFailed("reset", kept=True, sent=True)
    script = Script(stale, stale, stale)
    connect(script).resource(PODS).get("a", "web")
    assert len(script.requests) == 4


def test_a_read_on_a_new_connection_that_broke_is_repeated_a_second_later(
    connect: Connect, fake_clock: FakeClock
) -> None:
    script = Script(ConnectFailed("reset", sent=True))
    pods = connect(script, clock=fake_clock).resource(PODS)
    collect = in_thread(fake_clock, lambda: pods.get("a", "web")["metadata"])
    assert (len(script.requests), fake_clock.next_deadline()) == (1, 1.0)
    fake_clock.advance(1.0)
    assert collect() == {"name": "a"}


@pytest.mark.parametrize(
    "failure",
    [ConnectFailed("refused", refused=True), ConnectFailed("no connection in time")],
)
def test_a_server_that_cannot_be_reached_is_reported_at_once(
    connect: Connect, fake_clock: FakeClock, failure: ConnectFailed
) -> None:
    script = Script(failure)
    with pytest.raises(ConnectFailed):
        connect(script, clock=fake_clock).resource(PODS).get("a", "web")
    assert len(script.requests) == 1


def test_a_watch_that_breaks_before_it_is_open_is_not_repeated(
    connect: Connect, fake_clock: FakeClock
) -> None:
    script = Script(ConnectFailed("reset", sent=True))
    with pytest.raises(ConnectFailed):
        connect(script, clock=fake_clock).resource(PODS).watch()
    assert len(script.requests) == 1


def test_a_read_is_not_repeated_when_the_second_until_then_is_beyond_its_deadline(
    connect: Connect, fake_clock: FakeClock
) -> None:
    script = Script(ConnectFailed("reset", sent=True))
    with pytest.raises(ConnectFailed):
        connect(script, clock=fake_clock).resource(PODS).get("a", "web", timeout=0.5)
    assert len(script.requests) == 1


def test_a_failure_of_the_network_names_the_call(connect: Connect) -> None:
    script = Script(ConnectFailed("refused", refused=True))
    with pytest.raises(ConnectFailed) as caught:
        connect(script).resource(PODS).get("a", "web")
    error = caught.value
    assert (error.verb, error.resource, error.key) == ("get", "pods", "web/a")


def test_stop_ends_the_wait_for_another_try(connect: Connect, fake_clock: FakeClock) -> None:
    stop = StopToken(clock=fake_clock)
    pods = connect(Script(busy(20)), clock=fake_clock, stop=stop).resource(PODS)
    collect = in_thread(fake_clock, lambda: pods.get("a", "web"))
    stop.stop("over")
    assert isinstance(collect(), Stopped)


def test_the_token_is_read_for_every_request(connect: Connect) -> None:
    tokens = iter(["Bearer one", "Bearer two", ""])
    script = Script()
    client = connect(script, authorization=lambda: next(tokens))
    for _ in range(3):
        client.raw("GET", "/x")
    assert [request.headers.get("Authorization") for request in script.requests] == [
        "Bearer one",
        "Bearer two",
        None,
    ]


def test_credentials_are_renewed_once_after_a_401(connect: Connect) -> None:
    denied = BufferedResponse(401, {}, b"")
    renewed: list[bool] = []
    script = Script(denied)
    client = connect(script, renew=lambda: renewed.append(True))
    client.resource(PODS).create({"metadata": {"name": "a"}}, "web")
    assert (len(script.requests), len(renewed)) == (2, 1)
    script = Script(denied, denied, denied)
    client = connect(script, renew=lambda: renewed.append(True))
    with pytest.raises(Unauthorized):
        client.resource(PODS).get("a", "web")
    assert (len(script.requests), len(renewed)) == (2, 2)


def test_a_renewal_that_outlasts_the_deadline_ends_the_call(
    connect: Connect, fake_clock: FakeClock
) -> None:
    script = Script(BufferedResponse(401, {}, b""))
    client = connect(script, clock=fake_clock, renew=lambda: fake_clock.advance(30), timeout=30.0)
    with pytest.raises(RequestTimeout, match="deadline passed before the request was sent"):
        client.resource(PODS).get("a", "web")
    assert len(script.requests) == 1, "no request is sent with a timeout of 0"


@pytest.mark.parametrize("fails", [False, True])
def test_requests_that_were_refused_at_once_renew_once(connect: Connect, fails: bool) -> None:
    """All are refused with the first token; after its replacement it is not renewed again."""
    together = threading.Barrier(4)
    tokens, renewed = ["old"], []

    def answer(request: HttpRequest) -> BufferedResponse:
        if request.headers["Authorization"] == "old" and len(seen) < 4:
            seen.append("old")
            together.wait(30)
            return BufferedResponse(401, {}, b"")
        return BufferedResponse(401 if fails else 200, {}, b"")

    def renew() -> None:
        renewed.append(True)
        if fails:
            raise CredentialsFailed("plugin", "logged out")
        tokens[0] = f"new {len(renewed)}"

    seen: list[str] = []
    client = connect(answer, authorization=lambda: tokens[0], renew=renew)

    def status() -> object:
        try:
            return client.raw("GET", "/x").status
        except CredentialsFailed:
            return "failed"

    with ThreadPoolExecutor(4) as threads:
        found = sorted(map(str, threads.map(lambda _: status(), range(4))))
    assert len(renewed) == 1
    assert found == (["401", "401", "401", "failed"] if fails else ["200"] * 4)
    # A later request is refused with the new credentials, and renews them.
    status()
    assert len(renewed) == (2 if fails else 1)


def test_requests_beyond_the_burst_wait_for_their_turn(
    connect: Connect, fake_clock: FakeClock
) -> None:
    script = Script()
    client = connect(script, clock=fake_clock, qps=2.0, burst=2)
    client.raw("GET", "/1")
    client.raw("GET", "/2")
    collect = in_thread(fake_clock, lambda: client.raw("GET", "/3").status)
    assert len(script.requests) == 2
    assert fake_clock.next_deadline() == 0.5
    fake_clock.advance(0.5)
    assert collect() == 200


def test_a_wait_beyond_the_deadline_reserves_nothing(
    connect: Connect, fake_clock: FakeClock
) -> None:
    script = Script()
    client = connect(script, clock=fake_clock, qps=0.1, burst=1)
    client.raw("GET", "/1")
    with pytest.raises(RequestTimeout) as caught:
        client.raw("GET", "/2", timeout=5.0)
    assert not caught.value.sent
    assert "rate limit" in caught.value.why
    fake_clock.advance(10.0)
    client.raw("GET", "/3", timeout=5.0)
    assert len(script.requests) == 2


def test_a_header_that_is_given_replaces_the_clients_own_however_it_is_spelled(
    connect: Connect,
) -> None:
    script = Script()
    client = connect(script, user_agent="me/1", authorization=lambda: "Bearer mine")
    given = {"accept": "text/plain", "USER-AGENT": "you/2", "authorization": "Bearer yours"}
    client.raw("POST", "/x", body={}, headers={**given, "content-type": "a/b"})
    sent = script.requests[0].headers
    assert sorted(name.lower() for name in sent) == [
        "accept",
        "accept-encoding",
        "authorization",
        "content-type",
        "user-agent",
    ]
    assert {name: sent[name] for name in given} == given


def test_waits_for_the_clients_own_limit_are_measured(
    connect: Connect, fake_clock: FakeClock
) -> None:
    instruments = Instruments()
    client = connect(Script(), clock=fake_clock, qps=2.0, burst=1, instruments=instruments)
    client.raw("GET", "/1")
    collect = in_thread(fake_clock, lambda: client.raw("GET", "/2").status)
    fake_clock.advance(0.5)
    assert collect() == 200
    name, labels = "rest_client_rate_limiter_duration_seconds", {"verb": "GET", "host": "api.test"}
    sample = instruments.registry.get_sample_value
    assert sample(f"{name}_count", labels) == 2
    assert sample(f"{name}_sum", labels) == 0.5


@pytest.mark.rule("CL-17")
def test_warnings_of_the_server_are_logged_once_each(connect: Connect) -> None:
    header = '299 - "policy/v1beta1 is deprecated", 299 - "a \\"second\\" one"'
    answers = [BufferedResponse(200, {"warning": header}, b"{}") for _ in range(2)]
    client = connect(Script(*answers))
    with capture_logs() as logs:
        client.raw("GET", "/x")
        client.raw("GET", "/x")
    assert [(log["event"], log["text"]) for log in logs] == [
        ("api_server_warning", "policy/v1beta1 is deprecated"),
        ("api_server_warning", 'a \\"second\\" one'),
    ]


@pytest.mark.rule("CL-17")
def test_the_number_of_remembered_warnings_is_limited(connect: Connect) -> None:
    answers = [BufferedResponse(200, {"warning": f'299 - "{n}"'}, b"{}") for n in range(1_002)]
    client = connect(Script(*answers))
    with capture_logs() as logs:
        for _ in answers:
            client.raw("GET", "/x")
    assert [log["text"] for log in logs] == [str(n) for n in range(1_000)]


@pytest.mark.rule("MT-07")
def test_every_try_is_counted_without_names_of_objects(connect: Connect) -> None:
    instruments = Instruments()
    script = Script(BufferedResponse(404, {}, b""), ConnectFailed("reset", kept=True, sent=True))
    client = connect(script, instruments=instruments)
    client.raw("POST", "/x")
    client.resource(PODS).get("a", "web")
    sample = instruments.registry.get_sample_value

    def requests(code: str, method: str) -> float | None:
        labels = {"code": code, "method": method, "host": "api.test"}
        return sample("rest_client_requests_total", labels)

    assert requests("404", "POST") == 1
    assert requests("<error>", "GET") == 1
    assert requests("200", "GET") == 1
    again = {"code": "200", "verb": "GET", "host": "api.test"}
    assert sample("rest_client_request_retries_total", again) == 1
    labels = {"verb": "get", "resource": "pods", "code": "200"}
    assert sample("navarchos_client_request_duration_seconds_count", labels) == 1


def test_every_request_has_a_user_agent_and_an_accept_header(connect: Connect) -> None:
    script = Script()
    connect(script, user_agent="me/1").raw("GET", "/x")
    headers = script.requests[0].headers
    assert (headers["User-Agent"], headers["Accept"]) == ("me/1", "application/json")
    assert "Content-Type" not in headers


def test_a_request_never_shows_its_credentials(connect: Connect) -> None:
    script = Script()
    connect(script, authorization=lambda: "Bearer secret").raw("POST", "/x", body={"p": "secret"})
    assert "secret" not in repr(script.requests[0])
