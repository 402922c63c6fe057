"""Reviews of tokens and of permissions."""

from typing import Any

import pytest
from tests.contract.exchanges import Http

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
RIGHTS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OWN_RIGHTS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
METRICS = {"path": "/metrics", "verb": "get"}
PODS = {"verb": "list", "resource": "pods", "namespace": "default"}


def review(kind: str, **spec: object) -> dict[str, Any]:
    group = "authentication" if kind == "TokenReview" else "authorization"
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}


def test_a_made_up_token_is_not_authenticated(http: Http) -> None:
    answer = http("POST", TOKENS, review("TokenReview", token="nobody-gave-this-out"))
    assert answer.code == 201
    assert "authenticated" not in answer.body["status"]
    assert answer.body["status"]["user"] == {}


def test_a_token_review_needs_a_token(http: Http) -> None:
    assert http("POST", TOKENS, review("TokenReview")).code == 400


@pytest.mark.parametrize("what", [{"nonResourceAttributes": METRICS}, {"resourceAttributes": PODS}])
def test_an_administrator_is_allowed_everything(http: Http, what: dict[str, Any]) -> None:
    who = {"user": "somebody", "groups": ["system:masters"]}
    answer = http("POST", RIGHTS, review("SubjectAccessReview", **who, **what))
    assert (answer.code, answer.body["status"]) == (201, {"allowed": True})
    own = http("POST", OWN_RIGHTS, review("SelfSubjectAccessReview", **what))
    assert (own.code, own.body["status"]) == (201, {"allowed": True})


@pytest.mark.parametrize(
    "spec",
    [
        {"user": "somebody"},
        {"user": "somebody", "resourceAttributes": PODS, "nonResourceAttributes": METRICS},
        {"nonResourceAttributes": METRICS},
        {},
    ],
    ids=["nothing asked", "two asked at once", "no user named", "empty"],
)
def test_an_access_review_names_a_user_and_one_resource(http: Http, spec: dict[str, Any]) -> None:
    assert http("POST", RIGHTS, review("SubjectAccessReview", **spec)).code == 422


def test_a_self_access_review_names_one_resource(http: Http) -> None:
    assert http("POST", OWN_RIGHTS, review("SelfSubjectAccessReview")).code == 422


@pytest.mark.parametrize("path", [TOKENS, RIGHTS, OWN_RIGHTS])
def test_reviews_are_not_stored(http: Http, path: str) -> None:
    assert http("GET", path).code == 405
