"""Access reviews and token reviews, which are answered and not stored."""

from collections.abc import Callable, Mapping
from typing import Final

from navarchos.testing.apiserver import kinds, objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.access import AccessControl, rules, tokens, users
from navarchos.testing.apiserver.access.authorizer import Authorizer

__all__ = ["review"]

_QUESTIONS: Final = ("resourceAttributes", "nonResourceAttributes")


def review(
    access: AccessControl,
    kind: kinds.Kind,
    namespace: str,
    body: objects.JsonValue,
    user: users.User,
) -> objects.JsonObject:
    """Return a review with its result.

    Args:
        access: Knows users and permissions.
        kind: The kind of the review.
        namespace: The namespace of a local review; empty for other reviews.
        body: The review as sent.
        user: The user of the request.

    Raises:
        StatusError: The review has no question, or names no user.
    """
    if not isinstance(body, dict):
        raise statuses.bad_request(f"expected a {kind.kind}")
    spec = {key: value for key, value in (body.get("spec") or {}).items() if value != []}
    status = _ANSWERS[kind.kind](access, kind, namespace, spec, user)
    metadata = {"namespace": namespace} if namespace else {}
    if kind.kind == "SelfSubjectReview":
        return _envelope(kind, {"creationTimestamp": objects.timestamp()}, None, status)
    if kind.kind == "SelfSubjectRulesReview":
        return _envelope(kind, metadata, {}, status)
    return _envelope(kind, metadata, spec, status)


def _envelope(
    kind: kinds.Kind,
    metadata: objects.JsonObject,
    spec: objects.JsonObject | None,
    status: objects.JsonObject,
) -> objects.JsonObject:
    said = {} if spec is None else {"spec": spec}
    return {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": metadata,
        **said,
        "status": status,
    }


def _review_token(
    access: AccessControl,
    _kind: kinds.Kind,
    _namespace: str,
    spec: objects.JsonObject,
    _user: users.User,
) -> objects.JsonObject:
    if not spec.get("token"):
        raise statuses.bad_request("token is required for TokenReview in authentication")
    try:
        user, audiences = access.tokens.authenticate(
            spec["token"], spec.get("audiences") or [tokens.AUDIENCE]
        )
    except tokens.InvalidToken as error:
        return {"user": {}, "error": str(error)}
    return {"authenticated": True, "user": user.to_json(), "audiences": list(audiences)}


def _review_self(
    _access: AccessControl,
    _kind: kinds.Kind,
    _namespace: str,
    _spec: objects.JsonObject,
    user: users.User,
) -> objects.JsonObject:
    return {"userInfo": user.to_json()}


def _review_rules(
    access: AccessControl,
    _kind: kinds.Kind,
    _namespace: str,
    spec: objects.JsonObject,
    user: users.User,
) -> objects.JsonObject:
    namespace = spec.get("namespace")
    if not namespace:
        raise statuses.bad_request("no namespace on request")
    found = access.authorizer.rules_of(user, namespace)
    answer: objects.JsonObject = {
        "resourceRules": [rule for rule in found.rules if rule.get("resources")],
        "nonResourceRules": [rule for rule in found.rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
    return {**answer, "evaluationError": found.error} if found.error else answer


def _review_access(
    access: AccessControl,
    kind: kinds.Kind,
    namespace: str,
    spec: objects.JsonObject,
    user: users.User,
) -> objects.JsonObject:
    _check(kind, namespace, spec)
    if not kind.kind.startswith("Self"):
        extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
        user = users.User(
            spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra
        )
    return _decision(access.authorizer, user, spec)


def _decision(
    authorizer: Authorizer, user: users.User, spec: objects.JsonObject
) -> objects.JsonObject:
    asked = spec.get("resourceAttributes")
    if asked:
        attributes = rules.Attributes(
            asked.get("verb") or "",
            asked.get("group") or "",
            asked.get("resource") or "",
            asked.get("subresource") or "",
            asked.get("namespace") or "",
            asked.get("name") or "",
        )
    else:
        asked = spec["nonResourceAttributes"]
        attributes = rules.Attributes(asked.get("verb") or "", path=asked.get("path") or "")
    found = authorizer.decide(user, attributes)
    answer: objects.JsonObject = {"allowed": found.allowed}
    return {**answer, "reason": found.reason} if found.reason else answer


def _check(kind: kinds.Kind, namespace: str, spec: objects.JsonObject) -> None:
    both = [bool(spec.get(question)) for question in _QUESTIONS]
    errors: list[statuses.FieldError] = []
    if all(both):
        text = "cannot be specified in combination with resourceAttributes"
        errors.append(
            statuses.invalid_value("spec.nonResourceAttributes", spec[_QUESTIONS[1]], text)
        )
    elif not any(both):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(statuses.invalid_value("spec.resourceAttributes", None, text))
    if not kind.kind.startswith("Self") and not spec.get("user") and not spec.get("groups"):
        text = "at least one of user or group must be specified"
        errors.append(statuses.invalid_value("spec.user", "", text))
    if kind.namespaced:
        errors += _local_errors(namespace, spec)
    if errors:
        # Upstream leaves the kind out of this error.
        raise statuses.invalid("", kind.group, "", errors)


def _local_errors(namespace: str, spec: objects.JsonObject) -> list[statuses.FieldError]:
    """Return the errors of a local review that asks about something outside its namespace."""
    asked = spec.get("resourceAttributes")
    if asked and asked.get("namespace") != namespace:
        text = "must match metadata.namespace"
        field = "spec.resourceAttributes.namespace"
        return [statuses.invalid_value(field, asked.get("namespace") or "", text)]
    if spec.get("nonResourceAttributes"):
        text = "disallowed on this kind of request"
        return [statuses.forbidden_field("spec.nonResourceAttributes", text)]
    return []


_Answer = Callable[
    [AccessControl, kinds.Kind, str, objects.JsonObject, users.User], objects.JsonObject
]
_ANSWERS: Final[Mapping[str, _Answer]] = {
    "TokenReview": _review_token,
    "SelfSubjectReview": _review_self,
    "SelfSubjectRulesReview": _review_rules,
    "SelfSubjectAccessReview": _review_access,
    "SubjectAccessReview": _review_access,
    "LocalSubjectAccessReview": _review_access,
}
