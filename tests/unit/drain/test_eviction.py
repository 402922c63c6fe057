"""What each response to an eviction means, as the server sends it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from navarchos.client import BufferedResponse, Client, ConnectFailed, HttpRequest
from navarchos.drain import (
    EvictionOutcome,
    EvictionResult,
    Evictor,
    Pod,
    eviction_result,
    retry_delay,
)

ClientOf = Callable[[Callable[[HttpRequest], BufferedResponse]], Client]
V1 = {"name": "pods/eviction", "kind": "Eviction", "group": "policy", "version": "v1"}


def status(
    code: int,
    reason: str,
    message: str,
    *,
    details: Mapping[str, Any] | None = None,
    retry_after: str = "",
) -> BufferedResponse:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    headers = {"retry-after": retry_after} if retry_after else {}
    return BufferedResponse(code, headers, json.dumps({**body, "details": details or {}}).encode())


def budget_cause(message: str) -> dict[str, Any]:
    return {"causes": [{"reason": "DisruptionBudget", "message": message}]}


class Server:
    def __init__(self, answer: BufferedResponse | Exception, resource: Any = V1) -> None:
        self.response = answer
        self.resource = resource
        self.requests: list[tuple[str, str, Any]] = []

    def __call__(self, request: HttpRequest) -> BufferedResponse:
        if request.method == "GET":
            resources = [self.resource] if self.resource else []
            return BufferedResponse(200, {}, json.dumps({"resources": resources}).encode())
        self.requests.append((request.method, request.target, json.loads(request.body or b"null")))
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


CREATED = status(201, "", "")
NEEDS = "The disruption budget web needs 3 healthy pods and has 3 currently"
CASES: list[tuple[str, BufferedResponse, EvictionOutcome, str]] = [
    ("accepted", CREATED, EvictionOutcome.EVICTED, ""),
    ("gone", status(404, "NotFound", 'pods "web-1" not found'), EvictionOutcome.GONE, ""),
    (
        "another uid",
        status(409, "Conflict", "Precondition failed: UID in precondition: a, in meta: b"),
        EvictionOutcome.GONE,
        "",
    ),
    (
        "budget is zero",
        status(429, "TooManyRequests", "Cannot evict", details=budget_cause(NEEDS)),
        EvictionOutcome.BLOCKED_BY_BUDGET,
        "web",
    ),
    (
        "budget not observed",
        status(
            429,
            "TooManyRequests",
            "Cannot evict",
            details=budget_cause(
                "The disruption budget web is still being processed by the server."
            ),
            retry_after="10",
        ),
        EvictionOutcome.IN_PROGRESS,
        "web",
    ),
    (
        "server busy",
        status(429, "TooManyRequests", "too many requests", retry_after="1"),
        EvictionOutcome.IN_PROGRESS,
        "",
    ),
    (
        "several budgets",
        status(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource "
            "does not support.",
        ),
        EvictionOutcome.MULTIPLE_BUDGETS,
        "",
    ),
    (
        "namespace in deletion",
        status(
            403,
            "Forbidden",
            "unable to create new content because it is being terminated",
            details={"causes": [{"reason": "NamespaceTerminating", "message": "x"}]},
        ),
        EvictionOutcome.NAMESPACE_TERMINATING,
        "",
    ),
    (
        "budget negative",
        status(
            403,
            "Forbidden",
            'poddisruptionbudget.policy "web" is forbidden: pdb disruptions allowed is negative',
            details={"kind": "poddisruptionbudget", "name": "web"},
        ),
        EvictionOutcome.BLOCKED_BY_BUDGET,
        "web",
    ),
    (
        "no permission",
        status(
            403,
            "Forbidden",
            'pods "web-1" is forbidden: User "x" cannot create resource "pods/eviction" in API '
            'group "" in the namespace "default"',
        ),
        EvictionOutcome.FORBIDDEN,
        "",
    ),
    (
        "webhook, 403",
        status(403, "Forbidden", 'admission webhook "drain.example" denied the request: mine'),
        EvictionOutcome.WEBHOOK_DENIED,
        "",
    ),
    (
        "webhook, 429",
        status(429, "TooManyRequests", 'admission webhook "drain.example" denied the request'),
        EvictionOutcome.WEBHOOK_DENIED,
        "",
    ),
    (
        "webhook that fails",
        status(
            500,
            "InternalError",
            'Internal error occurred: failed calling webhook "drain.example": failed to call '
            'webhook: Post "https://drain.example": context deadline exceeded',
        ),
        EvictionOutcome.WEBHOOK_FAILED,
        "",
    ),
    (
        "policy",
        status(422, "Invalid", "ValidatingAdmissionPolicy says no"),
        EvictionOutcome.REFUSED,
        "",
    ),
    ("bad request", status(400, "BadRequest", "name in URL"), EvictionOutcome.REFUSED, ""),
    ("forbidden by a plugin", status(403, "Forbidden", "no"), EvictionOutcome.REFUSED, ""),
    ("unavailable", status(503, "ServiceUnavailable", "later"), EvictionOutcome.RETRY, ""),
    ("timeout", status(504, "Timeout", "conflicts", retry_after="10"), EvictionOutcome.RETRY, ""),
    ("expired token", status(401, "Unauthorized", "Unauthorized"), EvictionOutcome.RETRY, ""),
]


@pytest.mark.rule("OP-43")
@pytest.mark.parametrize(
    ("answer", "expected", "budget"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_every_response_has_one_outcome(
    make_pod: Callable[..., Pod],
    client_of: ClientOf,
    answer: BufferedResponse,
    expected: EvictionOutcome,
    budget: str,
) -> None:
    with client_of(Server(answer)) as client:
        result = Evictor(client).evict(make_pod())
    assert (result.outcome, result.budget) == (expected, budget)
    assert bool(result.message) == (expected is not EvictionOutcome.EVICTED)


@pytest.mark.rule("OP-43")
@pytest.mark.rule("N-19")
def test_an_eviction_without_a_response_is_retried() -> None:
    assert eviction_result(ConnectFailed("refused")).outcome is EvictionOutcome.RETRY


@pytest.mark.rule("OP-43")
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.rule("N-19")
def test_an_eviction_has_the_version_of_the_server_and_the_uid_of_the_pod(
    make_pod: Callable[..., Pod], client_of: ClientOf, version: str
) -> None:
    server = Server(CREATED, {**V1, "version": version})
    with client_of(server) as client:
        evictor = Evictor(client)
        evictor.evict(make_pod(uid="u-1"), grace=0)
        evictor.evict(make_pod(uid="u-1"))
    (method, target, first), (_, _, second) = server.requests
    assert (method, target) == ("POST", "/api/v1/namespaces/default/pods/web-1/eviction")
    assert first["apiVersion"] == f"policy/{version}"
    assert first["deleteOptions"]["preconditions"] == {"uid": "u-1"}
    assert first["deleteOptions"]["gracePeriodSeconds"] == 0
    assert "gracePeriodSeconds" not in second["deleteOptions"]


def test_a_server_without_evictions_gets_deletions(
    make_pod: Callable[..., Pod], client_of: ClientOf
) -> None:
    server = Server(status(200, "", ""), None)
    with client_of(server) as client:
        assert Evictor(client).evict(make_pod(uid="u-1")).outcome is EvictionOutcome.DELETED
    ((method, target, body),) = server.requests
    assert (method, target) == ("DELETE", "/api/v1/namespaces/default/pods/web-1")
    assert body["preconditions"] == {"uid": "u-1"}


@pytest.mark.parametrize(
    "answer",
    [status(503, "ServiceUnavailable", "later"), BufferedResponse(200, {}, b"<html>")],
    ids=["refused", "garbled"],
)
def test_a_server_that_does_not_name_its_eviction_version_gets_no_deletions(
    make_pod: Callable[..., Pod], client_of: ClientOf, answer: BufferedResponse
) -> None:
    methods: list[str] = []

    def server(request: HttpRequest) -> BufferedResponse:
        methods.append(request.method)
        return answer

    with client_of(server) as client:
        assert Evictor(client).evict(make_pod()).outcome is EvictionOutcome.RETRY
    assert set(methods) == {"GET"}


@pytest.mark.rule("OP-43")
def test_retry_after_of_the_server_replaces_the_usual_delay() -> None:
    result = EvictionResult(EvictionOutcome.IN_PROGRESS, retry_after=10.0)
    assert retry_delay(result, 7, base=5, rand=lambda: 0.0) == 10.0


@pytest.mark.rule("OP-43")
def test_delays_grow_to_half_a_minute_with_a_random_part() -> None:
    result = EvictionResult(EvictionOutcome.BLOCKED_BY_BUDGET, retry_after=0.0)
    delays = [retry_delay(result, n, base=5, rand=lambda: 0.0) for n in range(8)]
    assert delays[0] == 5.0
    assert delays == sorted(delays)
    assert delays[-1] == 30.0
    assert retry_delay(result, 0, base=5, rand=lambda: 0.999) > 5.9
    assert retry_delay(result, 9, base=60, rand=lambda: 0.0) == 60.0


def test_an_evicted_pod_gets_another_request_after_the_base_delay() -> None:
    assert retry_delay(EvictionResult(EvictionOutcome.EVICTED), 5, base=5, rand=lambda: 0.0) == 5.0
