"""What each verb puts on the wire, and what it makes of the answer."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from navarchos.client import (
    ApiError,
    BufferedAnswer,
    Conflict,
    DecodeError,
    HttpRequest,
    Invalid,
    NotFound,
    PatchType,
    Propagation,
    Resource,
    ResourceClient,
    TooManyRequests,
)
from navarchos.errors import ConfigError
from navarchos.meta import Object, ObjectMeta

Make = Callable[..., Any]


class PodSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    node_name: str = ""


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()


PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict)


class Recorder:
    """Answers with what it is given, in order; then with the last for ever."""

    def __init__(self, *answers: object) -> None:
        self.requests: list[HttpRequest] = []
        self._answers = list(answers) or [{"metadata": {"name": "a"}}]

    def __call__(self, request: HttpRequest) -> BufferedAnswer:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, tuple):
            status, value = answer
            return BufferedAnswer(status, {}, json.dumps(value).encode())
        return BufferedAnswer(200, {}, json.dumps(answer).encode())

    @property
    def line(self) -> str:
        return f"{self.requests[-1].method} {self.requests[-1].target}"

    @property
    def body(self) -> Any:
        return json.loads(self.requests[-1].body or b"null")


@pytest.fixture
def server() -> Recorder:
    return Recorder()


@pytest.fixture
def pods(connect: Make, server: Recorder) -> ResourceClient[Pod]:
    client: ResourceClient[Pod] = connect(server).resource(PODS)
    return client


def test_get_asks_for_one_object(server: Recorder, pods: ResourceClient[Pod]) -> None:
    assert pods.get("a", "web", resource_version="0").metadata.name == "a"
    assert server.line == "GET /api/v1/namespaces/web/pods/a?resourceVersion=0"


@pytest.mark.parametrize("verb", ["get", "patch", "apply", "replace", "delete", "evict"])
def test_an_empty_name_is_refused_because_it_would_mean_the_collection(
    server: Recorder, pods: ResourceClient[Pod], verb: str
) -> None:
    options: dict[str, dict[str, Any]] = {
        "patch": {"body": {}},
        "replace": {"body": {}},
        "apply": {"body": {}, "field_manager": "me"},
    }
    with pytest.raises(ConfigError) as caught:
        getattr(pods, verb)("", namespace="web", **options.get(verb, {}))
    assert caught.value.name == "name"
    assert server.requests == []


@pytest.mark.rule("RF-10")
def test_a_list_in_pages_has_the_first_ones_version_and_sends_it_once(connect: Make) -> None:
    server = Recorder(
        {
            "metadata": {"resourceVersion": "5", "continue": "t1", "remainingItemCount": 2},
            "items": [{"metadata": {"name": "a"}}],
        },
        {
            "metadata": {"resourceVersion": "6", "continue": "t2"},
            "items": [{"metadata": {"name": "b"}}, {"metadata": {"name": "x"}, "spec": 3}],
        },
        {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "c"}}]},
    )
    pods = connect(server).resource(PODS)
    found = pods.list(
        "web",
        label_selector="a=b",
        limit=2,
        resource_version="5",
        resource_version_match="NotOlderThan",
    )
    assert [pod.metadata.name for pod in found.items] == ["a", "b", "c"]
    assert [failure.name for failure in found.failures] == ["x"]
    assert (found.resource_version, found.continue_token, found.pages) == ("5", "", 3)
    path = "/api/v1/namespaces/web/pods?labelSelector=a%3Db&limit=2"
    assert [request.target for request in server.requests] == [
        f"{path}&resourceVersion=5&resourceVersionMatch=NotOlderThan",
        f"{path}&continue=t1",
        f"{path}&continue=t2",
    ]


@pytest.mark.rule("RF-10")
def test_an_expired_token_makes_it_one_full_list_at_the_version_asked_for(connect: Make) -> None:
    server = Recorder(
        {"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [{}]},
        (410, {"code": 410, "reason": "Expired"}),
        {"metadata": {"resourceVersion": "9"}, "items": [{}, {}, {}]},
    )
    found = connect(server).resource(PODS).list(resource_version="5", limit=1)
    assert (len(found.items), found.resource_version, found.pages) == (3, "9", 1)
    assert server.line == "GET /api/v1/pods?resourceVersion=5"


def test_one_page_shows_where_the_next_begins(connect: Make) -> None:
    server = Recorder(
        {"metadata": {"resourceVersion": "5", "continue": "t", "remainingItemCount": 4}}
    )
    page = connect(server).resource(PODS).list_page(limit=1, field_selector="spec.nodeName=n")
    assert (page.continue_token, page.remaining) == ("t", 4)
    assert server.line == "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn&limit=1"


def test_create_fills_in_the_kind_and_finds_the_namespace(
    server: Recorder, pods: ResourceClient[Pod]
) -> None:
    pods.create(Pod(metadata=ObjectMeta(generate_name="a-", namespace="web")), dry_run=True)
    assert server.line == "POST /api/v1/namespaces/web/pods?dryRun=All"
    assert server.body == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "a-", "namespace": "web"},
    }
    pods.create({"metadata": {"name": "a"}}, "web", field_manager="me", field_validation="Strict")
    assert server.line.endswith("?fieldManager=me&fieldValidation=Strict")


def test_create_without_any_namespace_is_refused(pods: ResourceClient[Pod]) -> None:
    with pytest.raises(ConfigError):
        pods.create({"metadata": {"name": "a"}})


@pytest.mark.rule("CL-11")
@pytest.mark.parametrize("kind", [PatchType.MERGE, PatchType.STRATEGIC])
def test_a_patch_can_be_bound_to_one_version_of_one_object(
    server: Recorder, pods: ResourceClient[Pod], kind: PatchType
) -> None:
    body = {"metadata": {"labels": {"a": "b"}}}
    pods.patch("a", body, "web", type=kind, resource_version="7", uid="u")
    assert server.line == "PATCH /api/v1/namespaces/web/pods/a"
    assert server.requests[-1].headers["Content-Type"] == kind.value
    assert server.body["metadata"] == {"labels": {"a": "b"}, "uid": "u", "resourceVersion": "7"}
    assert body == {"metadata": {"labels": {"a": "b"}}}


def test_a_patch_for_another_uid_is_a_conflict(connect: Make) -> None:
    """As servers see it, it is an attempt to change the uid."""
    cause = {"reason": "FieldValueInvalid", "message": "immutable", "field": "metadata.uid"}
    status = {"code": 422, "reason": "Invalid", "message": "no", "details": {"causes": [cause]}}
    pods = connect(Recorder((422, status))).resource(PODS)
    with pytest.raises(Conflict) as caught:
        pods.patch("a", {}, "web", uid="u")
    assert (caught.value.status, caught.value.key) == (409, "web/a")
    with pytest.raises(Invalid):
        pods.patch("a", {"metadata": {"uid": "u"}}, "web")


def test_a_json_patch_tests_the_version_first(server: Recorder, pods: ResourceClient[Pod]) -> None:
    change = {"op": "remove", "path": "/spec/x"}
    pods.patch("a", [change], "web", type=PatchType.JSON, resource_version="7")
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert server.body == [test, change]


@pytest.mark.parametrize(("kind", "body"), [(PatchType.JSON, {}), (PatchType.MERGE, [])])
def test_a_patch_of_the_wrong_shape_is_refused(
    pods: ResourceClient[Pod], kind: PatchType, body: Any
) -> None:
    with pytest.raises(ConfigError):
        pods.patch("a", body, "web", type=kind)


@pytest.mark.rule("CL-14")
def test_a_status_patch_goes_to_the_subresource(
    server: Recorder, pods: ResourceClient[Pod]
) -> None:
    pods.patch("a", {"status": {"phase": "Done"}}, "web", subresource="status")
    assert server.line == "PATCH /api/v1/namespaces/web/pods/a/status"


@pytest.mark.rule("CL-10")
def test_apply_names_its_manager_and_the_whole_identity(
    server: Recorder, pods: ResourceClient[Pod]
) -> None:
    pods.apply("a", {"spec": {}}, "web", field_manager="me", force=True, subresource="status")
    assert server.line == "PATCH /api/v1/namespaces/web/pods/a/status?fieldManager=me&force=true"
    assert server.requests[-1].headers["Content-Type"] == "application/apply-patch+yaml"
    assert server.body == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "web"},
        "spec": {},
    }
    with pytest.raises(ConfigError):
        pods.apply("a", {}, "web", field_manager="")


def test_replace_puts_the_whole_object(server: Recorder, pods: ResourceClient[Pod]) -> None:
    pods.replace("a", {"metadata": {"resourceVersion": "7"}}, "web")
    assert server.line == "PUT /api/v1/namespaces/web/pods/a"
    assert server.body == {"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": "7"}}


def test_delete_sends_only_what_is_set(server: Recorder, pods: ResourceClient[Pod]) -> None:
    pods.delete("a", "web")
    assert server.line == "DELETE /api/v1/namespaces/web/pods/a"
    assert server.body == {"apiVersion": "v1", "kind": "DeleteOptions"}
    pods.delete(
        "a",
        "web",
        uid="u",
        resource_version="7",
        propagation=Propagation.FOREGROUND,
        grace_period_seconds=0,
    )
    assert server.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }


def test_evict_posts_an_eviction(server: Recorder, pods: ResourceClient[Pod]) -> None:
    pods.evict("a", "web", uid="u", grace_period_seconds=5, dry_run=True)
    assert server.line == "POST /api/v1/namespaces/web/pods/a/eviction"
    assert server.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a", "namespace": "web"},
        "deleteOptions": {
            "preconditions": {"uid": "u"},
            "gracePeriodSeconds": 5,
            "dryRun": ["All"],
        },
    }


def test_a_refused_eviction_goes_straight_to_the_caller(connect: Make) -> None:
    status = {
        "code": 429,
        "reason": "TooManyRequests",
        "details": {
            "retryAfterSeconds": 10,
            "causes": [{"reason": "DisruptionBudget", "message": "The budget web needs 2"}],
        },
    }
    server = Recorder((429, status))
    with pytest.raises(TooManyRequests) as caught:
        connect(server).resource(PODS).evict("a", "web")
    assert len(server.requests) == 1
    assert caught.value.retry_after == 10.0
    assert caught.value.causes[0].type == "DisruptionBudget"
    assert (caught.value.resource, caught.value.key) == ("pods/eviction", "web/a")


@pytest.mark.parametrize(
    ("status", "expected"), [((404, {"code": 404}), NotFound), ((409, {"code": 409}), Conflict)]
)
def test_a_refusal_names_verb_resource_and_key(
    connect: Make, status: tuple[int, object], expected: type[NotFound]
) -> None:
    with pytest.raises(expected) as caught:
        connect(Recorder(status)).resource(PODS).patch("a", {}, "web")
    error = caught.value
    assert (error.verb, error.resource, error.key) == ("patch", "pods", "web/a")


def test_an_answer_that_is_no_object_is_named_with_its_verb(connect: Make) -> None:
    with pytest.raises(DecodeError) as caught:
        connect(Recorder(["no", "object"])).resource(PODS).get("a", "web")
    assert caught.value.verb == "get"


def test_cluster_scoped_kinds_take_no_namespace(connect: Make, server: Recorder) -> None:
    nodes = connect(server).resource(NODES)
    assert nodes.get("n1")["kind"] == "Node"
    assert server.line == "GET /api/v1/nodes/n1"
    with pytest.raises(ConfigError):
        nodes.get("n1", "web")


@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_is_a_refusal_and_is_not_followed(connect: Make, status: int) -> None:
    server = Recorder((status, "log in first"))
    with pytest.raises(ApiError) as caught:
        connect(server).resource(PODS).get("a", "web")
    assert caught.value.status == status
    assert len(server.requests) == 1


def test_raw_hands_out_any_status(connect: Make) -> None:
    server = Recorder((503, {"x": 1}))
    answer = connect(server).raw("GET", "/readyz?verbose", query={"exclude": "etcd"})
    assert (answer.status, answer.body) == (503, b'{"x": 1}')
    assert server.line == "GET /readyz?verbose&exclude=etcd"


def test_raw_sends_bytes_as_they_are_and_the_rest_as_json(connect: Make) -> None:
    server = Recorder({})
    client = connect(server)
    client.raw("POST", "/x", body=b"a: b", headers={"Content-Type": "application/yaml"})
    assert server.requests[-1].body == b"a: b"
    assert server.requests[-1].headers["Content-Type"] == "application/yaml"
    client.raw("POST", "/x", body={"a": 1})
    assert server.requests[-1].body == b'{"a":1}'
