"""Who may look at metrics: what the API server is asked, and what follows from its answers."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import structlog

from navarchos.client import BufferedResponse, Client, ClientConfig, FunctionTransport, HttpRequest
from navarchos.runtime.httpserver import HttpResponse
from navarchos.runtime.token_reviewer import TokenReviewer
from navarchos.testing import FakeClock

WHO = {"username": "prometheus", "uid": "u", "groups": ["scrapers"], "extra": {"a": ["b"]}}
UNKNOWN = {"user": {}, "error": "invalid bearer token"}


class Reviews:
    """An API server that reviews, and records the reviews."""

    def __init__(self) -> None:
        self.tokens: dict[str, Mapping[str, Any]] = {}
        self.allowed: set[tuple[str, str]] = set()
        self.failing = ""
        self.asked: list[tuple[str, Any]] = []

    def answer(self, request: HttpRequest) -> BufferedResponse:
        plural = request.target.partition("?")[0].rpartition("/")[2]
        spec = json.loads(request.body or b"{}")["spec"]
        self.asked.append((plural, spec))
        if plural == self.failing:
            return BufferedResponse(503, {}, b"no etcd")
        status: object
        if plural == "tokenreviews":
            user = self.tokens.get(spec["token"])
            status = {"authenticated": True, "user": user} if user else UNKNOWN
        else:
            asked = spec["nonResourceAttributes"]
            assert asked["verb"] == "get"
            status = {"allowed": (spec["user"], asked["path"]) in self.allowed}
        return BufferedResponse(201, {}, json.dumps({"metadata": {}, "status": status}).encode())

    def count(self, plural: str) -> int:
        return sum(asked == plural for asked, _ in self.asked)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def reviews() -> Reviews:
    reviews = Reviews()
    reviews.tokens["good"] = WHO
    reviews.allowed.add(("prometheus", "/metrics"))
    return reviews


@pytest.fixture
def reviewer(reviews: Reviews, clock: FakeClock) -> TokenReviewer:
    config = ClientConfig("http://nowhere")
    client = Client(config, transport=FunctionTransport(reviews.answer), clock=clock)
    return TokenReviewer(client, clock=clock)


def refusal(reviewer: TokenReviewer, path: str, authorization: str) -> tuple[int, str]:
    answer = reviewer.guard(path, authorization)
    assert isinstance(answer, HttpResponse)
    return answer.status, answer.body.decode()


@pytest.mark.rule("MG-16")
def test_a_user_that_may_get_the_path_passes(reviewer: TokenReviewer, reviews: Reviews) -> None:
    assert reviewer.guard("/metrics", "Bearer good") is None
    attributes = {"path": "/metrics", "verb": "get"}
    user = {"user": "prometheus", "uid": "u", "groups": ["scrapers"], "extra": {"a": ["b"]}}
    assert reviews.asked == [
        ("tokenreviews", {"token": "good"}),
        ("subjectaccessreviews", {**user, "nonResourceAttributes": attributes}),
    ]


@pytest.mark.rule("MG-16")
def test_without_the_right_to_that_path_the_answer_is_403(reviewer: TokenReviewer) -> None:
    assert refusal(reviewer, "/state", "Bearer good") == (
        403,
        "Authorization denied for user prometheus\n",
    )


@pytest.mark.rule("MG-16")
@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic Z29vZA==", "good"])
def test_without_a_token_the_answer_is_401_and_no_review_is_sent(
    reviewer: TokenReviewer, reviews: Reviews, header: str
) -> None:
    answer = reviewer.guard("/metrics", header)
    assert answer is not None
    assert (answer.status, answer.body, dict(answer.headers)) == (
        401,
        b"Unauthorized\n",
        {"WWW-Authenticate": "Bearer"},
    )
    assert reviews.asked == []


@pytest.mark.rule("MG-16")
def test_a_token_that_the_server_does_not_know_is_401(
    reviewer: TokenReviewer, reviews: Reviews
) -> None:
    assert refusal(reviewer, "/metrics", "bearer made-up") == (401, "Unauthorized\n")
    assert reviews.count("subjectaccessreviews") == 0


@pytest.mark.rule("MG-16")
@pytest.mark.parametrize(
    ("failing", "text"),
    [
        ("tokenreviews", "Authentication failed\n"),
        ("subjectaccessreviews", "Authorization for user prometheus failed\n"),
    ],
)
def test_a_failing_server_refuses_all_and_is_asked_again(
    reviewer: TokenReviewer, reviews: Reviews, failing: str, text: str
) -> None:
    reviews.failing = failing
    with structlog.testing.capture_logs() as logs:
        assert refusal(reviewer, "/metrics", "Bearer good") == (500, text)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "access_review_failed"
    ]
    assert "good" not in str(logs)
    reviews.failing = ""
    assert reviewer.guard("/metrics", "Bearer good") is None


@pytest.mark.rule("MG-16")
def test_answers_are_remembered_for_a_while(
    reviewer: TokenReviewer, reviews: Reviews, clock: FakeClock
) -> None:
    def ask(*paths: str) -> tuple[int, int]:
        reviews.asked.clear()
        for path in paths:
            reviewer.guard(path, "Bearer good")
            reviewer.guard(path, "Bearer bad")
        return reviews.count("tokenreviews"), reviews.count("subjectaccessreviews")

    assert ask("/metrics", "/metrics", "/state", "/state") == (2, 2)
    clock.advance(31)  # a no
    assert ask("/metrics", "/state") == (0, 1)
    clock.advance(31)  # the user of a token, or that the token is unknown
    assert ask("/metrics", "/metrics") == (2, 0)
    clock.advance(239)  # a yes
    assert ask("/metrics") == (2, 1)


@pytest.mark.rule("MG-16")
def test_a_right_that_was_taken_ends_within_minutes(
    reviewer: TokenReviewer, reviews: Reviews, clock: FakeClock
) -> None:
    assert reviewer.guard("/metrics", "Bearer good") is None
    reviews.tokens.clear()
    clock.advance(61)
    assert refusal(reviewer, "/metrics", "Bearer good")[0] == 401
    reviews.tokens["good"] = WHO
    reviews.allowed.clear()
    clock.advance(300)
    assert refusal(reviewer, "/metrics", "Bearer good")[0] == 403


def test_made_up_tokens_do_not_fill_the_memory(reviewer: TokenReviewer, reviews: Reviews) -> None:
    reviewer.guard("/metrics", "Bearer made-up-first")
    for number in range(1100):
        reviewer.guard("/metrics", f"Bearer made-up-{number}")
    reviews.asked.clear()
    reviewer.guard("/metrics", "Bearer made-up-1099")
    reviewer.guard("/metrics", "Bearer made-up-first")
    assert reviews.asked == [("tokenreviews", {"token": "made-up-first"})]
