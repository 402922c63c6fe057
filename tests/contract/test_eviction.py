"""The eviction subresource, with budgets whose status the test writes."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import Make

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


@pytest.fixture
def evict(http: Http, core: str) -> Callable[..., Reply]:
    def send(name: str, version: str = "policy/v1", **options: object) -> Reply:
        body = {
            "apiVersion": version,
            "kind": "Eviction",
            "metadata": {"name": name},
            "deleteOptions": options,
        }
        return http("POST", f"{core}/pods/{name}/eviction", body)

    return send


def budget_status(http: Http, namespace: str, name: str = "b") -> dict[str, Any]:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"
    found: dict[str, Any] = http("GET", path).body["status"]
    return found


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
def test_a_pod_without_a_budget_is_evicted(
    http: Http, core: str, running: Make, evict: Callable[..., Reply], version: str
) -> None:
    running("p")
    reply = evict("p", version)
    assert (reply.code, reply.body["status"]) == (201, "Success")
    found = http("GET", f"{core}/pods/p").body
    assert found["metadata"]["deletionTimestamp"]
    target = next(c for c in found["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


def test_a_missing_pod_is_not_found(evict: Callable[..., Reply]) -> None:
    assert evict("none").code == 404


def test_the_body_must_name_the_pod(http: Http, core: str, running: Make) -> None:
    running("p")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}}
    reply = http("POST", f"{core}/pods/p/eviction", body)
    assert (reply.code, reply.reason) == (400, "BadRequest")


def test_a_budget_of_zero_refuses_without_retry_after(
    running: Make, budget: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    budget()
    reply = evict("p")
    assert (reply.code, reply.reason, reply.message) == (429, "TooManyRequests", REFUSED)
    assert reply.causes == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 2 healthy pods and has 2 currently",
        }
    ]
    assert "Retry-After" not in reply.headers


def test_an_unobserved_budget_refuses_for_ten_seconds(
    running: Make, budget: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    budget(observedGeneration=0, disruptionsAllowed=5)
    reply = evict("p")
    assert reply.code == 429
    assert reply.headers["Retry-After"] == "10"
    assert reply.body["details"]["retryAfterSeconds"] == 10
    assert "is still being processed by the server" in reply.causes[0]["message"]


def test_an_eviction_spends_the_budget(
    http: Http, namespace: str, running: Make, budget: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    running("q")
    budget(disruptionsAllowed=1)
    assert evict("p").code == 201
    status = budget_status(http, namespace)
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p"]
    assert evict("q").code == 429


def test_a_negative_budget_is_forbidden(
    running: Make, budget: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    budget(disruptionsAllowed=0)
    assert evict("p").code == 429


def test_two_budgets_are_an_error(running: Make, budget: Make, evict: Callable[..., Reply]) -> None:
    running("p")
    budget("a", disruptionsAllowed=1)
    budget("b", disruptionsAllowed=1)
    reply = evict("p")
    assert reply.code == 500
    assert "more than one PodDisruptionBudget" in reply.message


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_do_not_run_need_no_budget(
    http: Http, core: str, running: Make, budget: Make, evict: Callable[..., Reply], phase: str
) -> None:
    running("p", phase=phase)
    budget()
    assert evict("p").code == 201


def test_a_terminating_pod_needs_no_budget(
    http: Http, core: str, running: Make, budget: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    budget()
    http("DELETE", f"{core}/pods/p")
    assert evict("p").code == 201


def test_nothing_is_evicted_in_a_terminating_namespace(
    http: Http, core: str, running: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    http.merge(f"{core}/pods/p", {"metadata": {"finalizers": ["example.com/hold"]}})
    with http.unrecorded():
        http("DELETE", core)
    refused = evict("p")
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert evict("none").code == 403, "the namespace is looked at before the pod"
    with http.unrecorded():
        http.merge(f"{core}/pods/p", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    ("policy", "healthy", "code"),
    [(None, 2, 201), (None, 1, 429), ("IfHealthyBudget", 1, 429), ("AlwaysAllow", 1, 201)],
)
def test_unready_pods_follow_the_budgets_policy(
    http: Http,
    namespace: str,
    running: Make,
    budget: Make,
    evict: Callable[..., Reply],
    policy: str | None,
    healthy: int,
    code: int,
) -> None:
    running("p", ready=False)
    spec = {"unhealthyPodEvictionPolicy": policy} if policy else None
    budget(spec=spec, currentHealthy=healthy)
    assert evict("p").code == code
    assert "disruptedPods" not in budget_status(http, namespace)


def test_an_empty_selector_guards_everything(
    running: Make, budget: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    budget(spec={"selector": {}})
    assert evict("p").code == 429


def test_another_uid_is_a_conflict(
    http: Http, core: str, running: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    reply = evict("p", preconditions={"uid": "11111111-1111-1111-1111-111111111111"})
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "deletionTimestamp" not in http("GET", f"{core}/pods/p").body["metadata"]


def test_the_right_uid_is_fine(running: Make, evict: Callable[..., Reply]) -> None:
    uid = running("p")["metadata"]["uid"]
    assert evict("p", preconditions={"uid": uid}).code == 201


def test_a_dry_run_changes_nothing(
    http: Http, core: str, namespace: str, running: Make, budget: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    budget(disruptionsAllowed=1)
    assert evict("p", dryRun=["All"]).code == 201
    assert "deletionTimestamp" not in http("GET", f"{core}/pods/p").body["metadata"]
    assert budget_status(http, namespace)["disruptionsAllowed"] == 1


def test_grace_comes_from_the_options(
    http: Http, core: str, running: Make, evict: Callable[..., Reply]
) -> None:
    running("p")
    assert evict("p", gracePeriodSeconds=7).code == 201
    found = http("GET", f"{core}/pods/p").body["metadata"]
    assert found["deletionGracePeriodSeconds"] == 7
