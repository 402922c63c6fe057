"""Access and token reviews: no tokens were given out here, and whoever asks may do anything."""

from typing import Final

from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.status import FieldError, bad_request, invalid, invalid_value

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
_QUESTIONS: Final = ("resourceAttributes", "nonResourceAttributes")


def review(kind: Kind, body: JsonValue) -> JsonObject:
    """Answer a review with the status that an administrator gets.

    Raises:
        StatusError: The review asks nothing, or about nobody.
    """
    if not isinstance(body, dict):
        raise bad_request(f"expected a {kind.kind}")
    spec = body.get("spec") or {}
    if kind.kind == "TokenReview" and not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    if kind.kind.endswith("SubjectAccessReview"):
        _check(kind, spec)
    return {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {},
        "spec": spec,
        "status": _status(kind.kind),
    }


def _check(kind: Kind, spec: JsonObject) -> None:
    both = [bool(spec.get(question)) for question in _QUESTIONS]
    errors: list[FieldError] = []
    if all(both):
        text = "cannot be specified in combination with resourceAttributes"
        errors.append(invalid_value("spec.nonResourceAttributes", spec[_QUESTIONS[1]], text))
    elif not any(both):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(invalid_value("spec.resourceAttributes", None, text))
    if kind.kind == "SubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        text = "at least one of user or group must be specified"
        errors.append(invalid_value("spec.user", "", text))
    if errors:
        # Upstream leaves the kind out of this error.
        raise invalid("", kind.group, "", errors)


def _status(kind: str) -> JsonObject:
    if kind == "TokenReview":
        return {"user": {}, "error": "invalid bearer token"}
    if kind == "SelfSubjectReview":
        return {"userInfo": dict(_USER)}
    if kind == "SelfSubjectRulesReview":
        return dict(_ALL_RULES)
    return {"allowed": True}
