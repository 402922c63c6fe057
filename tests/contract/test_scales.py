"""The scale subresource: replaced, patched in every format, applied."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.contract.conftest import defined
from tests.contract.exchanges import Http
from tests.contract.objects import GROUP, widget_definition

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    },
}
DIALS = widget_definition(
    "dials",
    SCHEMA,
    subresources={
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    },
)
STEP = [{"op": "replace", "path": "/spec/replicas", "value": 7}]
PATCHES: dict[str, tuple[str, object, int]] = {
    "json": ("application/json-patch+json", STEP, 200),
    "merge": ("application/merge-patch+json", {"spec": {"replicas": 7}}, 200),
    "a-version": ("application/merge-patch+json", {"metadata": {"resourceVersion": "1"}}, 409),
    "labels": ("application/merge-patch+json", {"metadata": {"labels": {"a": "b"}}}, 200),
    "status": ("application/merge-patch+json", {"status": {"replicas": 9}}, 200),
    "another-format": ("text/plain", {"spec": {"replicas": 7}}, 415),
}


@pytest.fixture(scope="module")
def dials(admin: Http) -> Iterator[str]:
    with defined(admin, DIALS) as path:
        yield path


@pytest.fixture
def dial(http: Http, dials: str) -> Iterator[str]:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Dial", "metadata": {"name": "a"}}
    with http.unrecorded():
        http.create(dials, {**body, "spec": {"replicas": 1}})
    yield f"{dials}/a"
    with http.unrecorded():
        http("DELETE", f"{dials}/a")


@pytest.fixture(params=["deployment", "dial"])
def path(request: pytest.FixtureRequest) -> str:
    """An object with one replica, of a built-in kind and of a custom one."""
    found: str = request.getfixturevalue(request.param)
    return found


def scale(name: str = "a", **spec: object) -> dict[str, Any]:
    head = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}}
    return {**head, "spec": spec}


def replicas(http: Http, path: str) -> object:
    with http.unrecorded():
        return http("GET", path).body["spec"].get("replicas")


@pytest.mark.parametrize("what", PATCHES)
def test_a_scale_is_patched_in_any_format(http: Http, path: str, what: str) -> None:
    media, body, code = PATCHES[what]
    reply = http("PATCH", f"{path}/scale", body, content_type=media)
    assert reply.code == code
    assert replicas(http, path) == (7 if what in {"json", "merge"} else 1)


@pytest.mark.parametrize(("body", "code"), [({"spec": {"replicas": 3}}, 200), ({"colour": 1}, 422)])
def test_a_scale_of_a_deployment_has_a_strategic_patch(
    http: Http, deployment: str, body: dict[str, Any], code: int
) -> None:
    media = "application/strategic-merge-patch+json"
    at = f"{deployment}/scale"
    assert http("PATCH", at, body, content_type=media, fieldValidation="Strict").code == code
    assert replicas(http, deployment) == (3 if code == 200 else 1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (scale(replicas=3), 200),
        (scale(), 200),
        (scale(name="x", replicas=3), 400),
        ({"spec": {"replicas": 3}}, 400),
        ({**scale(replicas=3), "kind": "Gizmo"}, 400),
        (scale(replicas=-1), 422),
        (scale(replicas="x"), 400),
    ],
    ids=["more", "none", "name", "no-name", "kind", "below-zero", "no-number"],
)
def test_a_scale_is_replaced(http: Http, deployment: str, body: dict[str, Any], code: int) -> None:
    assert http("PUT", f"{deployment}/scale", body).code == code
    expected = body["spec"].get("replicas", 0) if code == 200 else 1
    assert replicas(http, deployment) == expected


@pytest.mark.parametrize("wanted", [3, 0])
def test_a_scale_of_a_custom_object_is_replaced(http: Http, dial: str, wanted: int) -> None:
    assert http("PUT", f"{dial}/scale", scale(replicas=wanted)).code == 200
    assert replicas(http, dial) == wanted


def test_the_scale_of_a_custom_object_cannot_be_changed_by_apply(http: Http, dial: str) -> None:
    at = f"{dial}/scale"
    assert http.apply(at, scale(replicas=3)).code == 409
    assert http.apply(at, scale(replicas=3), force="true").code == 500
    assert replicas(http, dial) == 1


def test_replicas_are_applied_through_the_scale(http: Http, deployment: str) -> None:
    path, at = deployment, f"{deployment}/scale"
    reply = http.apply(at, scale(replicas=3))
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.causes[0]["field"] == ".spec.replicas"
    assert http.apply(at, scale(replicas=3), force="true").body["spec"] == {"replicas": 3}
    http("GET", path)
    assert http.apply(at, scale(replicas=4), manager="two").code == 409
    assert http.apply(at, scale(replicas=3), manager="two").code == 200
    http("GET", path)
    assert http.apply(at, scale(replicas=5), manager="two", force="true").code == 200
    http("GET", path)
    assert http.apply(at, scale(), manager="two").code == 200
    http("GET", path)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (scale(replicas=-1), 422),
        ({**scale(replicas=1), "colour": 1}, 500),
        ({"spec": {"replicas": 1}}, 400),
        ({**scale(replicas=1), "kind": "Deployment"}, 400),
    ],
    ids=["below-zero", "unknown", "no-kind", "another-kind"],
)
def test_a_malformed_scale_is_not_applied(
    http: Http, deployment: str, body: dict[str, Any], code: int
) -> None:
    assert http.apply(f"{deployment}/scale", body, force="true").code == code
    http("GET", deployment)


def test_the_scale_of_a_missing_object_is_not_found(http: Http, path: str) -> None:
    at = path.removesuffix("/a") + "/none/scale"
    assert http("GET", at).code == 404
    assert http("PUT", at, scale(name="none", replicas=1)).code == 404
    assert http.merge(at, {"spec": {"replicas": 1}}).code == 404
    assert http.apply(at, scale(name="none", replicas=1)).code == 404
