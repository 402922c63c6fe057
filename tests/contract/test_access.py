"""Users and permissions: tokens, RBAC, impersonation, escalation.

Both servers know the users of these tests: the in-process one by `rbac=True`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any

import pytest
from tests.cases.waiting import wait_for
from tests.contract.conftest import opened
from tests.contract.exchanges import Exchange, Http, Reply
from tests.contract.objects import config_map
from tests.namespaces import namespaces_of_their_own
from tests.servers import IN_PROCESS, Served

from navarchos.client import Client
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.controlplane import ControlPlane

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"

Rule = Mapping[str, Any]


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> Rule:
    return {
        "verbs": verbs.split(),
        "apiGroups": [group],
        "resources": resources.split(),
        **more,
    }


@pytest.fixture(scope="session")
def rbac_server(served: Served) -> Iterator[ApiServer | ControlPlane]:
    """A server that knows users."""
    if served.kind == IN_PROCESS:
        with ApiServer(rbac=True) as server:
            yield server
    elif isinstance(served.server, ControlPlane):
        yield served.server
    else:
        pytest.skip("this suite can make users only on its own servers")


@pytest.fixture
def http(rbac_server: ApiServer | ControlPlane, compared: list[Exchange]) -> Iterator[Http]:
    """The administrator."""
    with opened(rbac_server.client_config()) as http:
        yield replace(http, exchanges=compared)


@pytest.fixture(scope="module")
def namespaces(rbac_server: ApiServer | ControlPlane) -> Iterator[Callable[[], str]]:
    """Makes namespaces, which are deleted after the module."""
    with (
        Client(rbac_server.client_config()) as client,
        namespaces_of_their_own(client, "contract-") as make,
    ):
        yield make


@dataclass
class NamedUser:
    """A user of the test, without permissions until the test grants some."""

    http: Http
    name: str
    admin: Http
    namespace: str

    def __call__(self, method: str, path: str, body: object = None, **more: Any) -> Reply:
        return self.http(method, path, body, **more)

    def may(self, *rules: Rule, everywhere: bool = False, **subject: str) -> None:
        """Grant permissions in the namespace, or cluster-wide; return when they are effective."""
        kind, where = ("ClusterRole", RBAC) if everywhere else ("Role", self.path)
        metadata = {"name": self.namespace}
        who = subject or {"kind": "User", "name": self.name, "apiGroup": GROUP}
        with self.admin.unrecorded():
            self.admin.create(f"{where}/{kind.lower()}s", {"metadata": metadata, "rules": rules})
            self.admin.create(
                f"{where}/{kind.lower()}bindings",
                {
                    "metadata": metadata,
                    "roleRef": {"apiGroup": GROUP, "kind": kind, "name": self.namespace},
                    "subjects": [who],
                },
            )
        if not subject:
            wait_for("the rights", lambda: all(self._has(rule) for rule in rules))

    @property
    def path(self) -> str:
        return f"{RBAC}/namespaces/{self.namespace}"

    def _has(self, wanted: Rule) -> bool:
        if "nonResourceURLs" in wanted:
            asked = {"path": wanted["nonResourceURLs"][0].replace("*", "x")}
            question = {"nonResourceAttributes": {**asked, "verb": wanted["verbs"][0]}}
        else:
            resource, _, sub = wanted["resources"][0].partition("/")
            names = wanted.get("resourceNames") or [""]
            asked = {
                "group": wanted["apiGroups"][0],
                "resource": resource.replace("*", "x"),
                "subresource": sub,
                "namespace": self.namespace,
                "name": names[0],
                "verb": wanted["verbs"][0],
            }
            question = {"resourceAttributes": asked}
        return self.allowed(question)

    def allowed(self, question: Mapping[str, Any]) -> bool:
        with self.admin.unrecorded():
            body = {"spec": {"user": self.name, **question}}
            answer = self.admin("POST", f"{REVIEWS}/subjectaccessreviews", body)
        return bool(answer.body["status"]["allowed"])


@pytest.fixture
def ann(
    rbac_server: ApiServer | ControlPlane,
    http: Http,
    namespace: str,
    compared: list[Exchange],
) -> Iterator[NamedUser]:
    """A user in the group `readers`."""
    name = f"ann-{namespace}"
    config = rbac_server.client_config(user=name, groups=["readers"])
    with opened(config) as own:
        yield NamedUser(replace(own, exchanges=compared), name, http, namespace)
    with http.unrecorded():
        for kind in ("clusterrolebindings", "clusterroles"):
            http("DELETE", f"{RBAC}/{kind}/{namespace}")


@pytest.fixture
def without_credentials(http: Http) -> Http:
    """A client without credentials, whose exchanges are compared."""
    headers = {key: value for key, value in http.headers.items() if key != "Authorization"}
    return replace(http, headers=headers)


# A connection cannot omit its certificate for one request, so this opens another one.
@pytest.fixture
def anonymous(
    rbac_server: ApiServer | ControlPlane, compared: list[Exchange]
) -> Iterator[Callable[[str], Http]]:
    """Clients without a certificate, with a given `Authorization` header or none."""
    config = rbac_server.client_config()
    with ExitStack() as stack:

        def make(authorization: str = "") -> Http:
            header = (lambda: authorization) if authorization else None
            bare = replace(config, cert_file=None, key_file=None, authorization=header)
            http = stack.enter_context(opened(bare))
            return replace(http, exchanges=compared)

        yield make


ASKED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "list": ("GET", "/api/v1/namespaces/{}/pods", {}),
    "list-everywhere": ("GET", "/api/v1/pods", {}),
    "get": ("GET", "/api/v1/namespaces/{}/configmaps/a", {}),
    "watch": ("GET", "/api/v1/namespaces/{}/pods", {"watch": "true"}),
    "list-one": ("GET", "/api/v1/namespaces/{}/pods", {"fieldSelector": "metadata.name=a"}),
    "create": ("POST", "/api/v1/namespaces/{}/configmaps", {}),
    "update": ("PUT", "/api/v1/namespaces/{}/configmaps/a", {}),
    "patch-status": ("PATCH", "/api/v1/nodes/n/status", {}),
    "delete": ("DELETE", "/apis/apps/v1/namespaces/{}/deployments/d", {}),
    "delete-all": ("DELETE", "/api/v1/namespaces/{}/pods", {}),
    "evict": ("POST", "/api/v1/namespaces/{}/pods/p/eviction", {}),
    "scale": ("PATCH", "/apis/apps/v1/namespaces/{}/deployments/d/scale", {}),
    "a-namespace": ("GET", "/api/v1/namespaces/{}", {}),
    "all-namespaces": ("GET", "/api/v1/namespaces", {}),
    "finalize": ("PUT", "/api/v1/namespaces/{}/finalize", {}),
    "no-such-resource": ("GET", "/api/v1/namespaces/{}/things", {}),
    "no-such-group": ("GET", "/apis/nobody.example.com/v1/things/a", {}),
    "a-path": ("GET", "/metrics", {}),
    "a-path-like-html": ("GET", "/<b>&", {}),
    "a-path-to-post-to": ("POST", "/version", {}),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_refusal_names_the_missing_permission(ann: NamedUser, what: str) -> None:
    method, path, query = ASKED[what]
    body: object = None if method == "GET" else {}
    reply = ann(method, path.format(ann.namespace), body, **query)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert ann.name in reply.message


@pytest.mark.parametrize("path", ["/api", "/apis/apps/v1", "/healthz", "/openapi/v3"])
def test_every_authenticated_user_may_discover(ann: NamedUser, path: str) -> None:
    with ann.http.unrecorded():  # the two servers have different objects
        assert ann("GET", path).code == 200


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_needs_no_credentials(anonymous: Callable[..., Http], path: str) -> None:
    assert anonymous()("GET", path).body == "ok"


@pytest.mark.parametrize("path", ["/api", "/api/v1/nodes", "/api/v1/namespaces/default/pods/p"])
def test_a_request_without_credentials_is_anonymous(
    anonymous: Callable[..., Http], path: str
) -> None:
    reply = anonymous()("GET", path)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert "system:anonymous" in reply.message


@pytest.mark.parametrize(
    ("header", "code"),
    [("Bearer made-up", 401), ("Bearer a.b.c", 401), ("Basic YTpi", 403), ("Bearer ", 403)],
)
def test_an_invalid_token_is_unauthorized(
    anonymous: Callable[..., Http], header: str, code: int
) -> None:
    assert anonymous(header)("GET", "/api/v1/nodes").code == code


def test_a_role_applies_in_its_namespace(ann: NamedUser) -> None:
    ann.may(rule("get list create", "configmaps"))
    path = f"/api/v1/namespaces/{ann.namespace}/configmaps"
    with ann.http.unrecorded():
        assert ann("POST", path, config_map("a")).code == 201
        assert ann("GET", f"{path}/a").code == 200
        assert ann("GET", path).code == 200
    assert ann("DELETE", f"{path}/a").code == 403
    assert ann("GET", "/api/v1/configmaps").code == 403
    assert ann("GET", "/api/v1/namespaces/default/configmaps").code == 403


def test_a_cluster_role_applies_everywhere(ann: NamedUser) -> None:
    ann.may(rule("list", "nodes configmaps"), everywhere=True)
    with ann.http.unrecorded():
        assert ann("GET", "/api/v1/nodes").code == 200
        assert ann("GET", f"/api/v1/namespaces/{ann.namespace}/configmaps").code == 200
    assert ann("GET", "/api/v1/nodes/n").code == 403


def test_names_limit_a_rule_to_requests_that_name_them(ann: NamedUser) -> None:
    ann.may(rule("get list delete", "configmaps", resourceNames=["a"]))
    path = f"/api/v1/namespaces/{ann.namespace}/configmaps"
    assert ann("GET", f"{path}/a").code == 404
    assert ann("GET", f"{path}/b").code == 403
    assert ann("GET", path).code == 403
    assert ann("GET", path, fieldSelector="metadata.name=a").code == 200
    assert ann("GET", path, fieldSelector="metadata.name=b").code == 403
    assert ann("DELETE", path, {}).code == 403


def test_subresources_need_separate_permissions(ann: NamedUser) -> None:
    ann.may(rule("get", "pods/status"), rule("get", "*/scale", "apps"))
    pods = f"/api/v1/namespaces/{ann.namespace}/pods/p"
    assert ann("GET", f"{pods}/status").code == 404
    assert ann("GET", pods).code == 403
    deployments = f"/apis/apps/v1/namespaces/{ann.namespace}/deployments/d"
    assert ann("GET", f"{deployments}/scale").code == 404
    assert ann("GET", deployments).code == 403


def test_a_star_in_a_rule_matches_everything(ann: NamedUser) -> None:
    ann.may(rule("*", "*", "apps"), rule("get", "*"))
    assert ann("GET", f"/apis/apps/v1/namespaces/{ann.namespace}/deployments/d").code == 404
    assert ann("DELETE", f"/apis/apps/v1/namespaces/{ann.namespace}/deployments/d").code == 404
    assert ann("GET", f"/api/v1/namespaces/{ann.namespace}/pods/p/status").code == 404
    assert ann("DELETE", f"/api/v1/namespaces/{ann.namespace}/pods/p").code == 403
    assert ann("GET", f"/apis/batch/v1/namespaces/{ann.namespace}/jobs/j").code == 403


def test_paths_are_granted_whole_or_by_prefix(ann: NamedUser) -> None:
    paths = {"verbs": ["get"], "nonResourceURLs": ["/nowhere/*", "/somewhere"]}
    ann.may(paths, everywhere=True)
    with ann.http.unrecorded():  # the servers respond differently after authorization
        assert ann("GET", "/nowhere/x/y").code == 404
        assert ann("GET", "/somewhere").code == 404
    assert ann("GET", "/somewhere/x").code == 403
    assert ann("GET", "/nowhere").code == 403


def test_a_group_gets_the_permissions_of_its_binding(ann: NamedUser) -> None:
    ann.may(rule("list", "pods"), kind="Group", name="readers", apiGroup=GROUP)
    path = f"/api/v1/namespaces/{ann.namespace}/pods"
    with ann.http.unrecorded():
        wait_for("the rights", lambda: ann("GET", path).code == 200)
    assert ann("GET", path).code == 200


def test_a_refusal_names_the_missing_role_of_a_binding(ann: NamedUser, http: Http) -> None:
    who = {"kind": "User", "name": ann.name, "apiGroup": GROUP}
    for role in ("absent", "missing"):
        with http.unrecorded():
            http.create(
                f"{ann.path}/rolebindings",
                {
                    "metadata": {"name": role},
                    "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": role},
                    "subjects": [who],
                },
            )
    path = f"/api/v1/namespaces/{ann.namespace}/pods"
    with ann.http.unrecorded():
        wait_for("the bindings", lambda: '"missing"' in ann("GET", path).message)
    assert ann("GET", path).code == 403


def access(**asked: Any) -> dict[str, Any]:
    return {"spec": asked}


def test_an_access_review_names_the_binding(ann: NamedUser, http: Http) -> None:
    ann.may(rule("list", "pods"))
    pods = {"verb": "list", "resource": "pods", "namespace": ann.namespace}
    path = f"{REVIEWS}/subjectaccessreviews"
    answer = http("POST", path, access(user=ann.name, resourceAttributes=pods))
    assert answer.body["status"]["allowed"]
    assert f'RoleBinding "{ann.namespace}' in answer.body["status"]["reason"]
    nodes = {"verb": "list", "resource": "nodes"}
    answer = http("POST", path, access(user=ann.name, resourceAttributes=nodes))
    assert answer.body["status"] == {"allowed": False}
    own = ann("POST", f"{REVIEWS}/selfsubjectaccessreviews", access(resourceAttributes=pods))
    assert own.body["status"]["allowed"]
    assert ann("POST", path, access(user="x", resourceAttributes=pods)).code == 403


def test_a_service_account_is_reviewed_by_its_name(ann: NamedUser, http: Http) -> None:
    ann.may(rule("list", "pods"), kind="ServiceAccount", name="default", namespace=ann.namespace)
    pods = {"verb": "list", "resource": "pods", "namespace": ann.namespace}
    user = f"system:serviceaccount:{ann.namespace}:default"
    body = access(user=user, resourceAttributes=pods)
    path = f"{REVIEWS}/subjectaccessreviews"
    with http.unrecorded():
        wait_for("the rights", lambda: http("POST", path, body).body["status"]["allowed"])
    assert http("POST", path, body).body["status"]["allowed"]


LOCAL: dict[str, dict[str, Any]] = {
    "of-this-namespace": {"verb": "list", "resource": "pods", "namespace": "{}"},
    "of-another": {"verb": "list", "resource": "pods", "namespace": "default"},
    "of-none": {"verb": "list", "resource": "pods"},
}


@pytest.mark.parametrize("what", LOCAL)
def test_a_local_review_stays_in_its_namespace(http: Http, namespace: str, what: str) -> None:
    asked = dict(LOCAL[what])
    if asked.get("namespace") == "{}":
        asked["namespace"] = namespace
    body = access(user="ann", resourceAttributes=asked)
    path = f"{REVIEWS}/namespaces/{namespace}/localsubjectaccessreviews"
    reply = http("POST", path, body)
    assert reply.code == (201 if what == "of-this-namespace" else 422)


def test_a_user_can_list_the_own_rules(ann: NamedUser) -> None:
    ann.may(rule("get list", "pods"), rule("get", "configmaps", resourceNames=["a"]))
    path = f"{REVIEWS}/selfsubjectrulesreviews"
    with ann.http.unrecorded():  # the default rules differ a little
        answer = ann("POST", path, access(namespace=ann.namespace))
    assert rule("get list", "pods") in answer.body["status"]["resourceRules"]
    named = rule("get", "configmaps", resourceNames=["a"])
    assert named in answer.body["status"]["resourceRules"]
    assert ann("POST", path, access()).code == 400


def test_a_self_review_returns_the_user(ann: NamedUser, http: Http) -> None:
    reply = ann("POST", WHO, {})
    groups = ["readers", "system:authenticated"]
    with http.unrecorded():  # users of certificates have further groups
        seen = reply.body["status"]["userInfo"]
    assert (seen["username"], seen["groups"]) == (ann.name, groups)


@pytest.fixture
def account(http: Http, namespace: str) -> str:
    """The path of a service account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    with http.unrecorded():
        http.create(path, {"metadata": {"name": "robot"}})
    return f"{path}/robot"


def token_request(**spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    return {**kind, "spec": spec}


def test_a_token_authenticates_as_its_service_account(
    http: Http, account: str, namespace: str, anonymous: Callable[..., Http]
) -> None:
    answer = http("POST", f"{account}/token", token_request())
    assert answer.code == 201
    robot = anonymous(f"Bearer {answer.body['status']['token']}")
    seen = robot("POST", WHO, {}).body["status"]["userInfo"]
    assert seen["username"] == f"system:serviceaccount:{namespace}:robot"
    assert robot("GET", f"/api/v1/namespaces/{namespace}/pods").code == 403
    with http.unrecorded():
        replies = [http("POST", f"{account}/token", token_request()) for _ in range(20)]
        http("DELETE", account)
    # A real server caches a valid token for ten seconds, so each check uses another token.
    spare = [reply.body["status"]["token"] for reply in replies]
    tokens = chain(spare, repeat(spare[-1]))

    def has_ended() -> bool:
        robot.headers["Authorization"] = f"Bearer {next(tokens)}"
        return robot("POST", WHO, {}).code == 401

    with robot.unrecorded():
        wait_for("the end of the tokens", has_ended)


REQUESTS: dict[str, tuple[dict[str, Any], int]] = {
    "short": ({"expirationSeconds": 599}, 422),
    "long": ({"expirationSeconds": (1 << 32) + 1}, 422),
    "for-somebody": ({"audiences": ["somebody"], "expirationSeconds": 600}, 201),
    "of-no-pod": ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}, 404),
    "of-a-map": ({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "p"}}, 400),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_token_has_the_requested_properties(http: Http, account: str, what: str) -> None:
    spec, code = REQUESTS[what]
    assert http("POST", f"{account}/token", token_request(**spec)).code == code


def test_a_token_request_needs_an_existing_account(http: Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/nobody/token"
    assert http("POST", path, token_request()).code == 404


def test_a_token_request_must_match_the_account(http: Http, account: str) -> None:
    other = {**token_request(), "metadata": {"name": "other"}}
    assert http("POST", f"{account}/token", other).code == 422
    uid = "00000000-0000-0000-0000-000000000000"
    other = {**token_request(), "metadata": {"uid": uid}}
    assert http("POST", f"{account}/token", other).code == 409


def test_a_bound_token_becomes_invalid_with_its_secret(
    http: Http, account: str, namespace: str
) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    with http.unrecorded():
        uid = http.create(secrets, {"metadata": {"name": "s"}})["metadata"]["uid"]
    bound = {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": uid}
    answer = http("POST", f"{account}/token", token_request(boundObjectRef=bound))
    token = answer.body["status"]["token"]
    seen = http("POST", TOKENS, access(token=token))
    assert seen.body["status"]["authenticated"]
    other = {**bound, "uid": "00000000-0000-0000-0000-000000000000"}
    assert http("POST", f"{account}/token", token_request(boundObjectRef=other)).code == 409


def test_a_token_review_checks_the_audiences(http: Http, account: str) -> None:
    with http.unrecorded():
        answer = http("POST", f"{account}/token", token_request(audiences=["one", "two"]))
    token = answer.body["status"]["token"]
    good = http("POST", TOKENS, access(token=token, audiences=["two", "three"]))
    assert good.body["status"]["audiences"] == ["two"]
    for audiences in (["three"], []):
        bad = http("POST", TOKENS, access(token=token, audiences=audiences))
        assert "authenticated" not in bad.body["status"]


def impersonating(http: Http, **headers: str) -> Http:
    """Return a client that impersonates a user."""
    named = {f"Impersonate-{name.replace('_', '-')}": value for name, value in headers.items()}
    return replace(http, headers={**http.headers, **named})


ROLES: Sequence[dict[str, str]] = (
    {"User": "eve"},
    {"User": "eve", "Group": "readers"},
    {"User": "eve", "Uid": "u-1", "Extra-example.com%2Fscopes": "view"},
    {"User": "system:serviceaccount:default:robot"},
    {"User": "system:anonymous"},
    {"User": "system:node:n"},
    {"User": "eve", "Group": "system:unauthenticated"},
)


@pytest.mark.parametrize("who", ROLES, ids=lambda who: "-".join(who.values()))
def test_an_administrator_may_impersonate_every_user(http: Http, who: dict[str, str]) -> None:
    reply = impersonating(http, **who)("POST", WHO, {})
    if reply.code == 201:
        assert reply.body["status"]["userInfo"]["username"] == who["User"]
    else:
        assert "anonymous" in who["User"] or "unauthenticated" in who.get("Group", "")


def test_impersonation_needs_a_user_name(http: Http) -> None:
    assert impersonating(http, Group="readers")("GET", "/api/v1/nodes").code == 400


def test_permissions_are_those_of_the_impersonated_user(http: Http, namespace: str) -> None:
    reply = impersonating(http, User="eve")("GET", f"/api/v1/namespaces/{namespace}/pods")
    assert reply.code == 403
    assert '"eve"' in reply.message


@pytest.mark.parametrize("who", ROLES, ids=lambda who: "-".join(who.values()))
def test_impersonation_needs_a_permission(ann: NamedUser, who: dict[str, str]) -> None:
    reply = impersonating(ann.http, **who)("GET", "/api/v1/nodes")
    assert (reply.code, reply.reason) == (403, "Forbidden")


def test_impersonation_is_granted_by_name(ann: NamedUser) -> None:
    ann.may(rule("impersonate", "users", resourceNames=["eve"]), everywhere=True)
    assert impersonating(ann.http, User="eve")("POST", WHO, {}).code == 201
    assert impersonating(ann.http, User="adam")("POST", WHO, {}).code == 403
    assert impersonating(ann.http, User="eve", Group="readers")("POST", WHO, {}).code == 403


def test_impersonation_can_be_granted_for_some_requests(ann: NamedUser) -> None:
    group = "authentication.k8s.io"
    ann.may(
        rule("impersonate:user-info", "users", group),
        rule("impersonate-on:user-info:create", "selfsubjectreviews", group),
        everywhere=True,
    )
    assert impersonating(ann.http, User="eve")("POST", WHO, {}).code == 201
    assert impersonating(ann.http, User="eve")("GET", "/api/v1/nodes").code == 403


MANAGE = rule("create update patch get", "roles rolebindings clusterroles", GROUP)


def binding(role: str, kind: str = "Role") -> dict[str, Any]:
    return {
        "metadata": {"name": f"to-{role}"},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": GROUP}],
    }


def test_a_user_cannot_grant_more_permissions_than_their_own(ann: NamedUser) -> None:
    ann.may(MANAGE, rule("get list", "pods"))
    mine = {"metadata": {"name": "mine"}, "rules": [rule("get", "pods")]}
    assert ann("POST", f"{ann.path}/roles", mine).code == 201
    more = [rule("get delete create", "pods secrets"), rule("get", "jobs", "batch")]
    reply = ann("POST", f"{ann.path}/roles", {"metadata": {"name": "more"}, "rules": more})
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert "attempting to grant RBAC permissions not currently held" in reply.message
    change = {"rules": [rule("get", "pods"), rule("get", "secrets", resourceNames=["a", "b"])]}
    assert ann.http.merge(f"{ann.path}/roles/mine", change).code == 403
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert ann.http.merge(f"{ann.path}/roles/mine", labels).code == 200


def test_a_user_cannot_bind_a_role_with_more_permissions(ann: NamedUser, http: Http) -> None:
    ann.may(MANAGE, rule("get list", "pods"))
    with http.unrecorded():
        for name, verbs in (("less", "get"), ("more", "get delete")):
            role = {"metadata": {"name": name}, "rules": [rule(verbs, "pods")]}
            http.create(f"{ann.path}/roles", role)
    bindings = f"{ann.path}/rolebindings"
    with ann.http.unrecorded():
        known = lambda: ann("POST", bindings, binding("less"), dryRun="All").code == 201  # noqa: E731
        wait_for("the role", known)
    assert ann("POST", bindings, binding("less")).code == 201
    with ann.http.unrecorded():
        known = lambda: ann("POST", bindings, binding("more")).code == 403  # noqa: E731
        wait_for("the other role", known)
    assert ann("POST", bindings, binding("more")).code == 403
    assert ann("POST", bindings, binding("absent")).code == 404
    assert ann("POST", bindings, binding("absent", "ClusterRole")).code == 404


def test_escalate_and_bind_lift_the_limits_of_grants(ann: NamedUser, http: Http) -> None:
    ann.may(
        MANAGE,
        rule("escalate", "roles", GROUP),
        rule("bind", "clusterroles", GROUP, resourceNames=["cluster-admin"]),
    )
    more = {"metadata": {"name": "more"}, "rules": [rule("*", "*", "*")]}
    assert ann("POST", f"{ann.path}/roles", more).code == 201
    bindings = f"{ann.path}/rolebindings"
    assert ann("POST", bindings, binding("cluster-admin", "ClusterRole")).code == 201
    assert ann("POST", bindings, binding("system:auth-delegator", "ClusterRole")).code == 403


def test_only_administrators_write_aggregated_roles(ann: NamedUser) -> None:
    ann.may(rule("create", "clusterroles", GROUP), everywhere=True)
    selector = {"matchLabels": {"a": "b"}}
    role = {
        "metadata": {"name": f"{ann.namespace}"},
        "aggregationRule": {"clusterRoleSelectors": [selector]},
    }
    reply = ann("POST", f"{RBAC}/clusterroles", role)
    assert (reply.code, reply.reason) == (403, "Forbidden")


UNFIT: dict[str, dict[str, Any]] = {
    "no-verbs": {"rules": [rule("", "pods")]},
    "no-resources": {"rules": [rule("get", "")]},
    "no-groups": {"rules": [{"verbs": ["get"], "resources": ["pods"]}]},
    "a-path-in-a-namespace": {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
    "both": {"rules": [rule("get", "pods", nonResourceURLs=["/x"])]},
}


@pytest.mark.parametrize("what", UNFIT)
@pytest.mark.parametrize("kind", ["roles", "clusterroles"])
def test_a_malformed_rule_is_invalid(http: Http, namespace: str, kind: str, what: str) -> None:
    path = RBAC if kind == "clusterroles" else f"{RBAC}/namespaces/{namespace}"
    body = {"metadata": {"name": f"x-{namespace}"}, **UNFIT[what]}
    reply = http("POST", f"{path}/{kind}", body, dryRun="All")
    fits = (kind, what) == ("clusterroles", "a-path-in-a-namespace")
    assert reply.code == (201 if fits else 422)


BINDINGS: dict[str, dict[str, Any]] = {
    "no-role": {"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": ""}},
    "no-kind-of-role": {"roleRef": {"apiGroup": GROUP, "kind": "Rolle", "name": "a"}},
    "no-group-of-roles": {"roleRef": {"apiGroup": "x", "kind": "Role", "name": "a"}},
    "no-kind-of-subject": {"subjects": [{"kind": "Robot", "name": "a"}]},
    "no-name": {"subjects": [{"kind": "User", "name": ""}]},
    "another-group": {"subjects": [{"kind": "User", "name": "a", "apiGroup": "x"}]},
    "an-account-of-a-group": {
        "subjects": [{"kind": "ServiceAccount", "name": "a", "apiGroup": GROUP}]
    },
}


@pytest.mark.parametrize("what", BINDINGS)
def test_a_malformed_binding_is_invalid(http: Http, namespace: str, what: str) -> None:
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    reply = http("POST", path, {**binding("a"), **BINDINGS[what]}, dryRun="All")
    assert (reply.code, reply.reason) == (422, "Invalid")


def test_a_subject_account_without_namespace_is_invalid(http: Http, namespace: str) -> None:
    body = binding("view", "ClusterRole")
    body["subjects"] = [{"kind": "ServiceAccount", "name": "a"}]
    reply = http("POST", f"{RBAC}/clusterrolebindings", body, dryRun="All")
    assert (reply.code, reply.reason) == (422, "Invalid")


def test_the_role_of_a_binding_is_immutable(http: Http, namespace: str) -> None:
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    made = http.create(path, binding("a"))
    other = {**made, "roleRef": {**made["roleRef"], "name": "b"}}
    assert http("PUT", f"{path}/to-a", other).code == 422


def test_a_binding_gets_defaults(http: Http, namespace: str) -> None:
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    subjects = [{"kind": kind, "name": "a"} for kind in ("User", "Group")]
    body = {**binding("a"), "roleRef": {"kind": "Role", "name": "a"}, "subjects": subjects}
    found = http.create(path, body)
    assert found["roleRef"]["apiGroup"] == GROUP
    assert {subject["apiGroup"] for subject in found["subjects"]} == {GROUP}


def test_a_role_without_rules_has_null_rules(http: Http, namespace: str) -> None:
    path = f"{RBAC}/namespaces/{namespace}/roles"
    assert http.create(path, {"metadata": {"name": "a"}})["rules"] is None
    assert http("GET", f"{path}/a").body["rules"] is None
