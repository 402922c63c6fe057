"""Access and token reviews: everyone is the administrator here."""

from typing import Final

from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.status import bad_request

__all__ = ["review"]

_USER: Final = {
    "username": "kubernetes-admin",
    "groups": ["system:masters", "system:authenticated"],
}
_ALL_RULES: Final = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}


def review(kind: Kind, body: JsonValue) -> JsonObject:
    """Answer a review with the status that an administrator gets."""
    if not isinstance(body, dict):
        raise bad_request(f"expected a {kind.kind}")
    return {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {"creationTimestamp": None},
        "spec": body.get("spec") or {},
        "status": _status(kind.kind),
    }


def _status(kind: str) -> JsonObject:
    if kind == "TokenReview":
        return {"authenticated": True, "user": dict(_USER)}
    if kind == "SelfSubjectReview":
        return {"userInfo": dict(_USER)}
    if kind == "SelfSubjectRulesReview":
        return dict(_ALL_RULES)
    return {"allowed": True}
