"""Errors of responses."""

import json
from typing import Any

import pytest

from navarchos.client import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ServerError,
    StatusCause,
    TooManyRequests,
    Unauthorized,
    ignore_already_exists,
    ignore_not_found,
    is_resource_version_too_large,
)
from navarchos.client.errors import error_from_response


def error(code: int, headers: dict[str, str] | None = None, **status: Any) -> ApiError:
    body = json.dumps({"kind": "Status", "code": code, **status}).encode()
    return error_from_response(
        code, headers or {}, body, verb="get", resource="pods", key="default/web"
    )


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", BadRequest),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (405, "MethodNotAllowed", MethodNotAllowed),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Expired),
        (410, "Gone", Expired),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (503, "ServiceUnavailable", ServerError),
        (504, "Timeout", ServerError),
        (418, "Teapot", ApiError),
        (409, "SomethingNew", Conflict),
        (599, "", ServerError),
    ],
)
def test_reason_then_status_decide_which_error_it_is(
    code: int, reason: str, expected: type[ApiError]
) -> None:
    found = error(code, reason=reason, message="no")
    assert type(found) is expected
    assert (found.status, found.reason, found.message) == (code, reason, "no")


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 503])
def test_a_response_without_a_status_is_classified_by_its_code_and_cut_to_a_line(code: int) -> None:
    page = b"<html>\n  <body>" + b"secret " * 1000 + b"</body></html>"
    found = error_from_response(code, {}, page)
    assert found.status == code
    assert type(found) is not ApiError
    assert len(found.message) < 250
    assert "\n" not in found.message


def test_details_and_causes_are_attributes() -> None:
    found = error(
        422,
        reason="Invalid",
        message="is invalid",
        details={
            "name": "web",
            "causes": [
                {"reason": "FieldValueInvalid", "message": "too big", "field": "spec.size"},
                {"reason": 3},
                None,
            ],
        },
    )
    assert found.causes == (
        StatusCause(type="FieldValueInvalid", message="too big", field="spec.size"),
    )
    assert found.details["name"] == "web"


def test_nulls_in_a_status_count_as_absent() -> None:
    found = error(404, reason="NotFound", message="gone", details=None)
    assert isinstance(found, NotFound)
    assert found.details == {}


@pytest.mark.parametrize(
    ("headers", "details", "expected"),
    [
        ({"retry-after": "7"}, {"retryAfterSeconds": 3}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"retry-after": "0"}, {}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None),
        ({}, {"retryAfterSeconds": 0}, None),
        ({}, {}, None),
    ],
)
def test_retry_after_comes_from_the_header_then_from_the_details(
    headers: dict[str, str], details: dict[str, int], expected: float | None
) -> None:
    assert error(429, headers, details=details, message="wait").retry_after == expected


def test_the_text_names_verb_object_and_next_step_once() -> None:
    text = str(error(409, reason="Conflict", message="the object has been modified"))
    assert text.startswith("get pods default/web: the object has been modified")
    assert "read the object again" in text


@pytest.mark.rule("RF-07")
@pytest.mark.parametrize(
    "status",
    [
        {"code": 504, "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}},
        {
            "code": 504,
            "reason": "Timeout",
            "details": {"causes": [{"message": "Too large resource version"}]},
        },
        {"code": 504, "message": "Too large resource version: 9, current: 3"},
    ],
)
def test_a_resource_version_from_the_future_is_recognised(status: dict[str, Any]) -> None:
    code = status.pop("code")
    assert is_resource_version_too_large(error(code, **status))


@pytest.mark.rule("RF-07")
def test_other_timeouts_are_not_a_resource_version_from_the_future() -> None:
    assert not is_resource_version_too_large(error(504, reason="Timeout", message="busy"))
    assert not is_resource_version_too_large(ValueError("Too large resource version"))
    assert not is_resource_version_too_large(error(400, message="Too large resource version: 9"))


@pytest.mark.rule("CL-15")
def test_ignoring_an_error_ignores_that_one_only() -> None:
    with ignore_not_found():
        raise error(404, reason="NotFound")
    with ignore_already_exists():
        raise error(409, reason="AlreadyExists")
    with pytest.raises(Conflict), ignore_already_exists():
        raise error(409, reason="Conflict")
    with pytest.raises(Forbidden), ignore_not_found():
        raise error(403, reason="Forbidden")
