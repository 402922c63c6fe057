"""The decisions of the eviction handler, one by one, in its order.

The order follows the pod registry's eviction.go. The statuses of the budgets are ones that a
controller may write.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import Make

ANOTHER_UID = "11111111-1111-1111-1111-111111111111"
MANY = {f"p{number}": "2026-01-01T00:00:00Z" for number in range(2001)}

BODIES: dict[str, tuple[dict[str, Any], int]] = {
    "another-name": ({"metadata": {"name": "q"}}, 400),
    "no-name": ({"metadata": {}}, 400),
    "another-namespace": ({"metadata": {"name": "p", "namespace": "elsewhere"}}, 400),
    "another-kind": ({"kind": "Pod", "apiVersion": "v1"}, 400),
    "no-such-kind": ({"kind": "Removal"}, 400),
    "no-kind": ({"kind": ""}, 201),
    "no-such-version": ({"apiVersion": "policy/v2"}, 400),
    "no-group": ({"apiVersion": "v1"}, 400),
    "no-version": ({"apiVersion": ""}, 201),
    "no-options": ({"deleteOptions": "now"}, 400),
    "no-grace": ({"deleteOptions": {"gracePeriodSeconds": "now"}}, 400),
    "an-unknown-field": ({"colour": "red"}, 201),
    "a-uid-of-the-eviction": ({"metadata": {"name": "p", "uid": ANOTHER_UID}}, 201),
    "a-version-of-the-eviction": ({"metadata": {"name": "p", "resourceVersion": "1"}}, 201),
}

Evict = Callable[..., Reply]


def denied(reason: str, message: str) -> list[dict[str, Any]]:
    """Return the condition of a budget that allows no disruption."""
    return [
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]


def post_eviction(
    http: Http, core: str, name: str, body: dict[str, Any] | None, **query: Any
) -> Reply:
    head = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return http("POST", f"{core}/pods/{name}/eviction", {**head, **(body or {})}, **query)


@pytest.fixture
def evict(http: Http, core: str) -> Evict:
    """Posts an eviction; `body` has the fields other than kind and the pod's name."""

    def send(name: str = "p", body: dict[str, Any] | None = None, **query: Any) -> Reply:
        return post_eviction(http, core, name, body, **query)

    return send


@pytest.fixture
def left(http: Http, core: str, namespace: str) -> Callable[[], None]:
    """Reads the pod and the budget, so that their states are compared with a real server's."""

    def look() -> None:
        http("GET", f"{core}/pods/p")
        http("GET", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")

    return look


@pytest.mark.parametrize("what", BODIES)
def test_bodies_of_evictions(
    running: Make, evict: Evict, left: Callable[[], None], what: str
) -> None:
    running("p")
    body, code = BODIES[what]
    assert evict("p", body).code == code
    left()


@pytest.mark.parametrize("verb", ["GET", "PUT", "PATCH", "DELETE"])
def test_an_eviction_can_only_be_created(http: Http, core: str, running: Make, verb: str) -> None:
    running("p")
    assert http(verb, f"{core}/pods/p/eviction").code in {405, 415}


@pytest.mark.parametrize("query", ["All", "Some", None])
@pytest.mark.parametrize("said", [["All"], ["Some"], [], None])
def test_a_dry_run_is_requested_in_the_query_or_in_the_body(
    running: Make,
    budget: Make,
    evict: Evict,
    left: Callable[[], None],
    query: str | None,
    said: list[str] | None,
) -> None:
    running("p")
    budget(disruptionsAllowed=1)
    evict("p", {"deleteOptions": {"dryRun": said}}, dryRun=query)
    left()


@pytest.mark.parametrize("bound", ["bound", "unbound"])
@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed", "Unknown", "Running"])
def test_a_pod_that_does_not_run_is_evicted_without_its_budget(
    http: Http,
    core: str,
    running: Make,
    budget: Make,
    evict: Evict,
    left: Callable[[], None],
    phase: str,
    bound: str,
) -> None:
    running("p", phase=phase, bound=bound == "bound")
    budget(observedGeneration=0)
    with http.unrecorded():
        http.merge(f"{core}/pods/p", {"metadata": {"finalizers": ["example.com/hold"]}})
    code = 429 if phase in {"Unknown", "Running"} else 201
    assert evict().code == code
    left()
    with http.unrecorded():
        http.merge(f"{core}/pods/p", {"metadata": {"finalizers": None}})


def test_a_terminating_pod_may_be_evicted_again(
    http: Http, core: str, running: Make, budget: Make, evict: Evict, left: Callable[[], None]
) -> None:
    running("p")
    budget(disruptionsAllowed=0)
    with http.unrecorded():
        http("DELETE", f"{core}/pods/p")
    assert evict().code == 201
    assert evict("p", {"deleteOptions": {"gracePeriodSeconds": 3}}).code == 201
    left()


@pytest.mark.parametrize("allowed", [0, 1])
@pytest.mark.parametrize("what", ["uid", "resourceVersion", "both"])
def test_a_pod_with_another_uid_stays(
    running: Make,
    budget: Make,
    evict: Evict,
    left: Callable[[], None],
    what: str,
    allowed: int,
) -> None:
    running("p")
    budget(disruptionsAllowed=allowed)
    other = {"uid": ANOTHER_UID, "resourceVersion": "1"}
    said = other if what == "both" else {what: other[what]}
    assert evict("p", {"deleteOptions": {"preconditions": said}}).code == (409 if allowed else 429)
    left()


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_an_eviction_may_require_a_version(
    running: Make, budget: Make, evict: Evict, left: Callable[[], None], phase: str
) -> None:
    version = running("p", phase=phase)["metadata"]["resourceVersion"]
    budget(disruptionsAllowed=1)
    said = {"deleteOptions": {"preconditions": {"resourceVersion": version}}}
    assert evict("p", said).code == 201
    left()


def test_a_pod_with_another_uid_stays_without_a_budget(
    http: Http, core: str, running: Make
) -> None:
    """In parallel: a real server retries for ten seconds if the uid differs."""

    def ask(pod: str, what: str, other: str) -> Callable[[Http], Reply]:
        body = {"deleteOptions": {"preconditions": {what: other}}}
        return lambda http: post_eviction(http, core, pod, body)

    asks = []
    for phase in ("Pending", "Succeeded"):
        for what, other in (("uid", ANOTHER_UID), ("resourceVersion", "1")):
            name = f"{phase}-{what}".lower()
            running(name, phase=phase)
            asks.append(ask(name, what, other))
    for reply in http.in_parallel(*asks):
        assert reply.code == 409
    assert len(http("GET", f"{core}/pods").body["items"]) == len(asks)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"selector": None}, 201),
        ({"selector": {}}, 429),
        ({"selector": {"matchLabels": {"app": "db"}}}, 201),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, 429),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, 201),
    ],
    ids=["null", "everything", "others", "labelled", "unlabelled"],
)
def test_a_budget_protects_the_pods_that_it_selects(
    running: Make, budget: Make, evict: Evict, spec: dict[str, Any], code: int
) -> None:
    running("p")
    budget(spec=spec)
    assert evict().code == code


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("allowed", [0, 1])
def test_two_budgets_are_an_error_in_any_state(
    running: Make, budget: Make, evict: Evict, left: Callable[[], None], ready: bool, allowed: int
) -> None:
    running("p", ready=ready)
    budget("a", disruptionsAllowed=allowed, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"})
    budget("b", disruptionsAllowed=allowed)
    assert evict().code == 500
    assert evict("p", dryRun="All").code == 500
    left()


@pytest.mark.parametrize("policy", [None, "IfHealthyBudget", "AlwaysAllow"])
@pytest.mark.parametrize(
    "status",
    [
        {"disruptionsAllowed": 1},
        {"disruptionsAllowed": 1, "currentHealthy": 1},
        {"currentHealthy": 2, "desiredHealthy": 2},
        {"currentHealthy": 1, "desiredHealthy": 2},
        {"currentHealthy": 0, "desiredHealthy": 0},
        {"observedGeneration": 0, "currentHealthy": 1},
        {"observedGeneration": 0, "currentHealthy": 2},
    ],
    ids=["allowed", "allowed-once", "healthy", "unhealthy", "none", "unseen", "unseen-healthy"],
)
@pytest.mark.parametrize("ready", [True, False])
def test_an_unready_pod_is_evicted_without_using_the_budget(
    running: Make,
    budget: Make,
    evict: Evict,
    left: Callable[[], None],
    policy: str | None,
    status: dict[str, int],
    ready: bool,
) -> None:
    running("p", ready=ready)
    budget(spec={"unhealthyPodEvictionPolicy": policy} if policy else None, **status)
    evict()
    left()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"observedGeneration": 0, "disruptionsAllowed": 1}, 429),
        ({"observedGeneration": 7, "disruptionsAllowed": 1}, 201),
        ({"disruptionsAllowed": 1, "disruptedPods": MANY}, 403),
        ({"disruptionsAllowed": 0, "disruptedPods": MANY}, 403),
        ({"currentHealthy": 3}, 429),
        ({"currentHealthy": 1}, 429),
        ({"conditions": denied("SyncFailed", "it broke")}, 429),
        ({"conditions": denied("SyncFailed", "")}, 429),
        ({"conditions": denied("InsufficientPods", "too few")}, 429),
        ({"currentHealthy": 3, "conditions": denied("InsufficientPods", "too few")}, 429),
        ({"currentHealthy": 3, "conditions": denied("SyncFailed", "it broke")}, 429),
        ({"disruptionsAllowed": 1, "conditions": denied("SyncFailed", "it broke")}, 201),
        ({"disruptionsAllowed": 2, "conditions": denied("InsufficientPods", "")}, 201),
        ({"disruptionsAllowed": 1, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}}, 201),
    ],
    ids=[
        "unseen", "seen-early", "too-many", "too-many-and-none-left", "more-than-needed", "fewer",
        "broken", "broken-without-words", "too-few", "denied-by-words", "broken-but-healthy",
        "the-last", "not-the-last", "again",
    ],
)  # fmt: skip
def test_an_eviction_uses_the_budget(
    http: Http,
    namespace: str,
    running: Make,
    budget: Make,
    evict: Evict,
    left: Callable[[], None],
    status: dict[str, Any],
    code: int,
) -> None:
    running("p")
    budget(**status)
    reply = evict()
    assert reply.code == code
    if "disruptedPods" not in status or code == 201:
        left()


@pytest.mark.parametrize("grace", [None, 0, 3, -1])
@pytest.mark.parametrize("policy", ["Background", "Maybe", None])
def test_a_pod_is_deleted_with_the_given_options(
    running: Make,
    evict: Evict,
    left: Callable[[], None],
    grace: int | None,
    policy: str | None,
) -> None:
    running("p")
    said = {"gracePeriodSeconds": grace, "propagationPolicy": policy}
    code = 422 if policy == "Maybe" else 201
    assert evict("p", {"deleteOptions": said}).code == code
    left()


@pytest.mark.parametrize("query", [{"dryRun": "All"}, {"fieldManager": "me"}, {"pretty": "true"}])
def test_a_missing_pod_is_not_found_with_any_body(evict: Evict, query: dict[str, object]) -> None:
    assert evict("none", **query).code == 404
