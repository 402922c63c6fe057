"""Dedicated clients: the same server and user, without limits and fences."""

import pytest

from navarchos.client import BufferedResponse, Client, ClientConfig, HttpRequest
from navarchos.errors import Stopped


class Line:
    """A transport that the user of a client provided."""

    def __init__(self) -> None:
        self.is_closed = False
        self.requests: list[HttpRequest] = []

    def send(self, request: HttpRequest) -> BufferedResponse:
        self.requests.append(request)
        return BufferedResponse(200, {}, b"{}")

    def close(self) -> None:
        self.is_closed = True


def shut() -> float:
    raise Stopped("shut")


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def client(line: Line) -> Client:
    config = ClientConfig("http://server", user_agent="user-transport", qps=1.0, burst=1)
    return Client(config, transport=line)


def test_a_transport_that_was_given_carries_the_requests_of_both(
    client: Client, line: Line
) -> None:
    client.dedicated().raw("GET", "/a")
    assert [request.headers["User-Agent"] for request in line.requests] == ["user-transport"]


def test_neither_limit_nor_fence_delays_a_dedicated_client(client: Client, line: Line) -> None:
    beside = client.fenced(shut).dedicated()
    assert (beside.config.qps, beside.config.burst) == (None, None)
    for _ in range(5):
        beside.raw("POST", "/a", body=b"x")
    assert len(line.requests) == 5


@pytest.mark.parametrize("closes_first", [True, False])
def test_closing_one_does_not_close_the_other(
    client: Client, line: Line, closes_first: bool
) -> None:
    beside = client.dedicated()
    closed, other = (client, beside) if closes_first else (beside, client)
    closed.close()
    assert line.is_closed is closes_first
    assert other.raw("GET", "/a").status == 200
