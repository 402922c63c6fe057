"""The requests that verbs send, and the results of the responses."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from tests.unit.client.wire import Connect

from navarchos.client import (
    ApiError,
    BufferedResponse,
    Conflict,
    DecodeError,
    Forbidden,
    HttpRequest,
    Invalid,
    NotFound,
    PatchType,
    Propagation,
    Resource,
    ResourceClient,
    TooManyRequests,
    create_or_patch,
    create_or_update,
)
from navarchos.client.options import ListOptions
from navarchos.errors import ConfigError
from navarchos.meta import Object, ObjectMeta


class PodSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    node_name: str = ""


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()


PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict)


class Recorder:
    """Sends the given responses in order, and then the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self.requests: list[HttpRequest] = []
        self._answers = list(answers) or [{"metadata": {"name": "a"}}]

    def __call__(self, request: HttpRequest) -> BufferedResponse:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, tuple):
            status, value = answer
            return BufferedResponse(status, {}, json.dumps(value).encode())
        return BufferedResponse(200, {}, json.dumps(answer).encode())

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
def pods(connect: Connect, server: Recorder) -> ResourceClient[Pod]:
    client: ResourceClient[Pod] = connect(server).resource(PODS)
    return client


def test_get_requests_one_object(server: Recorder, pods: ResourceClient[Pod]) -> None:
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
def test_a_list_in_pages_has_the_first_ones_version_and_sends_it_once(connect: Connect) -> None:
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
        ListOptions(
            label_selector="a=b",
            limit=2,
            resource_version="5",
            resource_version_match="NotOlderThan",
        ),
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
def test_an_expired_token_makes_it_one_full_list_at_the_version_asked_for(connect: Connect) -> None:
    server = Recorder(
        {"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [{}]},
        (410, {"code": 410, "reason": "Expired"}),
        {"metadata": {"resourceVersion": "9"}, "items": [{}, {}, {}]},
    )
    found = connect(server).resource(PODS).list(options=ListOptions(resource_version="5", limit=1))
    assert (len(found.items), found.resource_version, found.pages) == (3, "9", 1)
    assert server.line == "GET /api/v1/pods?resourceVersion=5"


def test_one_page_shows_where_the_next_begins(connect: Connect) -> None:
    server = Recorder(
        {"metadata": {"resourceVersion": "5", "continue": "t", "remainingItemCount": 4}}
    )
    page = (
        connect(server)
        .resource(PODS)
        .list_page(options=ListOptions(limit=1, field_selector="spec.nodeName=n"))
    )
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


def test_a_review_needs_no_metadata(connect: Connect, server: Recorder) -> None:
    reviews = Resource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        namespaced=False,
        type=dict,
    )
    spec = {"resourceAttributes": {"resource": "pods", "verb": "list"}}
    connect(server).resource(reviews).create({"spec": spec})
    assert server.line == "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert server.body["spec"] == spec


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


def test_a_patch_for_another_uid_is_a_conflict(connect: Connect) -> None:
    """Servers treat it as an attempt to change the uid."""
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


@pytest.mark.rule("CL-14")
def test_an_object_with_only_metadata_is_not_created(connect: Connect, server: Recorder) -> None:
    pods = connect(server).resource(PODS).projected(Object)
    with pytest.raises(ConfigError, match="nothing but metadata"):
        pods.create(Object(metadata=ObjectMeta(name="a")), "web")
    assert server.requests == []
    assert pods.get("a", "web").metadata.name == "a"
    assert pods.patch("a", {"metadata": {"labels": {"x": "y"}}}, "web").metadata.name == "a"


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


def test_a_refused_eviction_is_not_repeated(connect: Connect) -> None:
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
    connect: Connect, status: tuple[int, object], expected: type[NotFound]
) -> None:
    with pytest.raises(expected) as caught:
        connect(Recorder(status)).resource(PODS).patch("a", {}, "web")
    error = caught.value
    assert (error.verb, error.resource, error.key) == ("patch", "pods", "web/a")


def test_an_undecodable_object_is_reported_with_its_verb(connect: Connect) -> None:
    with pytest.raises(DecodeError) as caught:
        connect(Recorder(["no", "object"])).resource(PODS).get("a", "web")
    assert caught.value.verb == "get"


def test_cluster_scoped_kinds_take_no_namespace(connect: Connect, server: Recorder) -> None:
    nodes = connect(server).resource(NODES)
    assert nodes.get("n1")["kind"] == "Node"
    assert server.line == "GET /api/v1/nodes/n1"
    with pytest.raises(ConfigError):
        nodes.get("n1", "web")


@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_is_a_refusal_and_is_not_followed(connect: Connect, status: int) -> None:
    server = Recorder((status, "log in first"))
    with pytest.raises(ApiError) as caught:
        connect(server).resource(PODS).get("a", "web")
    assert caught.value.status == status
    assert len(server.requests) == 1


def test_raw_returns_any_status(connect: Connect) -> None:
    server = Recorder((503, {"x": 1}))
    answer = connect(server).raw("GET", "/readyz?verbose", query={"exclude": "etcd"})
    assert (answer.status, answer.body) == (503, b'{"x": 1}')
    assert server.line == "GET /readyz?verbose&exclude=etcd"


def test_raw_sends_bytes_unchanged_and_other_values_as_json(connect: Connect) -> None:
    server = Recorder({})
    client = connect(server)
    client.raw("POST", "/x", body=b"a: b", headers={"Content-Type": "application/yaml"})
    assert server.requests[-1].body == b"a: b"
    assert server.requests[-1].headers["Content-Type"] == "application/yaml"
    client.raw("POST", "/x", body={"a": 1})
    assert server.requests[-1].body == b'{"a":1}'


WRITES: dict[str, Callable[[ResourceClient[Any]], object]] = {
    "create": lambda pods: pods.create({"metadata": {"name": "a"}}, "web"),
    "patch": lambda pods: pods.patch("a", {}, "web"),
    "apply": lambda pods: pods.apply("a", {}, "web", field_manager="own"),
    "replace": lambda pods: pods.replace("a", {}, "web"),
    "create_subresource": lambda pods: pods.create_subresource("a", "token", {}, "web"),
}


@pytest.mark.rule("CL-13")
@pytest.mark.parametrize("verb", WRITES)
def test_options_for_every_write_can_be_given_once(
    connect: Connect, server: Recorder, verb: str
) -> None:
    pods = connect(server).resource(PODS).projected(dict)
    wrapped = pods.with_defaults(field_manager="me", field_validation="Strict")
    WRITES[verb](wrapped.with_defaults(dry_run=True))
    query = parse_qs(urlsplit(server.requests[-1].target).query)
    manager = "own" if verb == "apply" else "me"
    assert query == {"dryRun": ["All"], "fieldManager": [manager], "fieldValidation": ["Strict"]}
    WRITES[verb](pods)
    assert "dryRun" not in server.line
    assert "Strict" not in server.line


@pytest.mark.rule("CL-13")
def test_a_dry_run_client_deletes_and_evicts_nothing(connect: Connect, server: Recorder) -> None:
    dry = connect(server).resource(PODS).with_defaults(dry_run=True)
    dry.delete("a", "web")
    assert server.body["dryRun"] == ["All"]
    dry.evict("a", "web")
    assert server.body["deleteOptions"]["dryRun"] == ["All"]
    connect(server).resource(PODS).delete("a", "web", dry_run=True)
    assert server.body["dryRun"] == ["All"]


@pytest.mark.rule("CL-13")
def test_a_scale_is_set_with_the_options_of_all_writes(connect: Connect, server: Recorder) -> None:
    pods = connect(server).resource(PODS).with_defaults(dry_run=True, field_manager="me")
    pods.set_scale("a", 2, "web", uid="u", resource_version="7")
    assert server.line.endswith("/web/pods/a/scale?dryRun=All&fieldManager=me")
    metadata = {"uid": "u", "resourceVersion": "7"}
    assert server.body == {"spec": {"replicas": 2}, "metadata": metadata}


@pytest.mark.parametrize("status", [None, {}, {"token": "t", "expirationTimestamp": "soon"}])
def test_a_response_without_a_token_is_an_error_without_secrets(
    connect: Connect, status: Any
) -> None:
    pods = connect(Recorder({"status": status})).resource(PODS)
    with pytest.raises(DecodeError, match="not a TokenRequest") as caught:
        pods.request_token("a", "web")
    assert caught.value.resource == "pods/token"


def test_a_token_request_has_the_given_options(connect: Connect) -> None:
    answer = {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}
    server = Recorder({"status": answer})
    pods = connect(server).resource(PODS)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"}
    pods.request_token("a", "web", audiences=["x"], expiration_seconds=600, bound_to=bound)
    spec = {"audiences": ["x"], "expirationSeconds": 600, "boundObjectRef": bound}
    assert server.line == "POST /api/v1/namespaces/web/pods/a/token"
    assert (server.body["kind"], server.body["spec"]) == ("TokenRequest", spec)
    pods.request_token("a", "web")
    assert server.body["spec"] == {}


@pytest.mark.rule("CL-13")
def test_an_option_of_a_call_has_precedence(connect: Connect, server: Recorder) -> None:
    pods = connect(server).resource(PODS)
    wrapped = pods.with_defaults(field_manager="me", field_validation="Strict")
    wrapped.patch("a", {}, "web", field_manager="you", field_validation="Warn")
    assert server.line.endswith("?fieldManager=you&fieldValidation=Warn")
    wrapped.apply("a", {}, "web")
    assert server.line.endswith("?fieldManager=me&fieldValidation=Strict")
    with pytest.raises(ConfigError):
        pods.apply("a", {}, "web")


IN_TEAM: dict[str, Callable[[ResourceClient[Any], str], object]] = {
    "get": lambda pods, where: pods.get("a", where),
    "get_subresource": lambda pods, where: pods.get_subresource("a", "scale", where),
    "list": lambda pods, where: pods.list(where),
    "list_page": lambda pods, where: pods.list_page(where),
    "watch": lambda pods, where: pods.watch(where).close(),
    "create": lambda pods, where: pods.create({"metadata": {"name": "a"}}, where),
    "patch": lambda pods, where: pods.patch("a", {}, where),
    "apply": lambda pods, where: pods.apply("a", {}, where, field_manager="m"),
    "replace": lambda pods, where: pods.replace("a", {}, where),
    "delete": lambda pods, where: pods.delete("a", where),
    "create_subresource": lambda pods, where: pods.create_subresource("a", "token", {}, where),
    "evict": lambda pods, where: pods.evict("a", where),
    "get_scale": lambda pods, where: pods.get_scale("a", where),
    "set_scale": lambda pods, where: pods.set_scale("a", 1, where),
}


@pytest.mark.rule("CL-13")
@pytest.mark.parametrize("verb", IN_TEAM)
def test_a_client_of_one_namespace_never_leaves_it(
    connect: Connect, server: Recorder, verb: str
) -> None:
    team = connect(server).resource(PODS).projected(dict).in_namespace("team")
    for where in ("", "team"):
        IN_TEAM[verb](team, where)
        assert "/namespaces/team/pods" in server.line
    with pytest.raises(ConfigError) as caught:
        IN_TEAM[verb](team, "web")
    assert (caught.value.name, caught.value.value) == ("namespace", "web")
    assert len(server.requests) == 2


@pytest.mark.rule("CL-13")
def test_an_object_of_another_namespace_is_refused(connect: Connect, server: Recorder) -> None:
    team = connect(server).resource(PODS).in_namespace("team")
    foreign = {"metadata": {"name": "a", "namespace": "web"}}
    writes: list[Callable[[], object]] = [
        lambda: team.create(foreign),
        lambda: team.create(foreign, "team"),
        lambda: team.replace("a", foreign),
        lambda: team.apply("a", foreign, field_manager="m"),
    ]
    for write in writes:
        with pytest.raises(ConfigError, match="limited to namespace team"):
            write()
    assert server.requests == []
    team.apply("a", {}, field_manager="m")
    assert server.body["metadata"] == {"name": "a", "namespace": "team"}
    nodes = connect(server).resource(NODES).in_namespace("team")
    assert nodes.get("n")
    assert server.line == "GET /api/v1/nodes/n"


@pytest.mark.rule("CL-01")
@pytest.mark.rule("CL-03")
@pytest.mark.parametrize("upsert", [create_or_update, create_or_patch])
def test_an_object_in_the_wanted_state_or_unreadable_is_not_written(
    connect: Connect, upsert: Any
) -> None:
    same = Recorder({"metadata": {"name": "a", "labels": None}, "spec": {"replicas": 1}})
    upsert(connect(same).resource(PODS), "a", lambda obj: obj["spec"].update(replicas=1), "web")
    assert [request.method for request in same.requests] == ["GET"]
    closed = Recorder((403, {"reason": "Forbidden"}))
    with pytest.raises(Forbidden):
        upsert(connect(closed).resource(PODS), "a", lambda obj: obj.clear(), "web")
    assert [request.method for request in closed.requests] == ["GET"]
